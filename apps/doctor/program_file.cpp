// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/program_file.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <fstream>
#include <span>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace apps::doctor {

namespace {

namespace fs = std::filesystem;

bool can_run(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored) && access(file.c_str(), X_OK) == 0;
}

/// The program's file; empty if there is none.
fs::path find_program(const fs::path& program) {
  if (program.has_parent_path()) return can_run(program) ? program : fs::path();
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (can_run(fs::path(folder) / program)) return fs::path(folder) / program;
  }
  return {};
}

/// Parts of a 64-bit ELF file. What lies outside of the file is empty.
class Elf {
 public:
  explicit Elf(const fs::path& path) : stream_(path, std::ios::binary) {
    std::error_code error;
    bytes_ = fs::file_size(path, error);
    if (error) bytes_ = 0;
    const auto headers = read<Elf64_Ehdr>(0, 1);
    if (headers.empty()) return;
    header_ = headers.front();
    is_valid_ = std::memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0 &&
                header_.e_ident[EI_CLASS] == ELFCLASS64;
  }

  [[nodiscard]] bool is_valid() const { return is_valid_; }

  [[nodiscard]] bool has_loader() {
    return std::ranges::any_of(read<Elf64_Phdr>(header_.e_phoff, header_.e_phnum),
                               [](const Elf64_Phdr& part) { return part.p_type == PT_INTERP; });
  }

  /// Calls `take(name, is_defined)` for each symbol.
  template <class Take>
  void for_each_symbol(Take&& take) {
    const auto sections = read<Elf64_Shdr>(header_.e_shoff, header_.e_shnum);
    for (const Elf64_Shdr& section : sections) {
      if (section.sh_type != SHT_DYNSYM && section.sh_type != SHT_SYMTAB) continue;
      if (section.sh_link >= sections.size()) continue;
      const Elf64_Shdr& texts = sections[section.sh_link];
      auto names = read<char>(texts.sh_offset, texts.sh_size);
      names.push_back('\0');
      const auto symbols = read<Elf64_Sym>(section.sh_offset, section.sh_size / sizeof(Elf64_Sym));
      for (const Elf64_Sym& symbol : symbols) {
        if (symbol.st_name >= names.size()) continue;
        take(std::string_view(&names[symbol.st_name]), symbol.st_shndx != SHN_UNDEF);
      }
    }
  }

 private:
  template <class T>
  std::vector<T> read(std::uint64_t begin, std::uint64_t count) {
    if (begin > bytes_ || count > (bytes_ - begin) / sizeof(T)) return {};
    std::vector<T> parts(count);
    stream_.clear();
    stream_.seekg(static_cast<std::streamoff>(begin));
    stream_.read(reinterpret_cast<char*>(parts.data()),
                 static_cast<std::streamsize>(count * sizeof(T)));
    if (!stream_) return {};
    return parts;
  }

  std::ifstream stream_;
  std::uint64_t bytes_ = 0;
  Elf64_Ehdr header_{};
  bool is_valid_ = false;
};

/// True for the names that C and Fortran have for functions of MPI.
bool is_of_mpi(std::string_view name) {
  name = name.substr(0, name.find('@'));
  return name.starts_with("MPI_") || name.starts_with("PMPI_") ||
         (name.starts_with("mpi_") && name.ends_with("_"));
}

}  // namespace

ProgramFile read_program(const fs::path& program) {
  ProgramFile found;
  const fs::path path = find_program(program);
  found.path = path.string();
  if (path.empty()) return found;
  struct stat status {};
  found.takes_rights =
      stat(path.c_str(), &status) == 0 && (status.st_mode & (S_ISUID | S_ISGID)) != 0;
  Elf file(path);
  found.is_elf = file.is_valid();
  if (!found.is_elf) return found;
  found.has_loader = file.has_loader();
  file.for_each_symbol([&](std::string_view name, bool is_defined) {
    if (!is_defined && is_of_mpi(name)) found.calls_mpi = true;
    if (is_defined && name == "MPI_Init") found.contains_mpi = true;
  });
  return found;
}

Finding check_program(const fs::path& program, const ProgramFile& file) {
  const std::string topic = "preload";
  const std::string& path = file.path;
  const std::string own = ": its own MPI carries out all collectives";
  const auto warning = [&](const std::string& why, const std::string& remedy) {
    return Finding{Level::warning, topic, path + " " + why + own, remedy};
  };
  if (path.empty()) {
    return {Level::error, topic, program.string() + ": no such program, or not executable",
            "name the program's file"};
  }
  if (!file.is_elf) {
    return {Level::ok, topic, path + " is a script: what counts is the MPI program that it starts",
            ""};
  }
  if (!file.has_loader) {
    return warning("is linked statically, and loads no library, LD_PRELOAD's neither",
                   "link it without -static");
  }
  if (file.takes_rights) {
    return warning("runs with the rights of its owner or group, and takes no LD_PRELOAD for that",
                   "chmod ug-s, or start a copy without these rights");
  }
  if (file.contains_mpi) {
    return warning("contains its MPI (libmpi.a), and calls no library for it",
                   "link it with libmpi.so, as mpicc does");
  }
  if (!file.calls_mpi) {
    return {Level::ok, topic, path + " itself calls no function of MPI; a library of it may", ""};
  }
  return {Level::ok, topic,
          path + " calls MPI in a shared library; LD_PRELOAD=$(tutti-config --preload " + path +
              ") or launch.sh --mpi-program gives it Tutti's collectives",
          ""};
}

}  // namespace apps::doctor
