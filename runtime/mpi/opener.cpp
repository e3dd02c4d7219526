// SPDX-License-Identifier: Apache-2.0
// open_mpi() of the shared library: finds or loads the MPI of this process, and its plug-in.
//
// A plug-in does not name the libraries that it needs. The MPI is loaded first, with RTLD_GLOBAL,
// which Open MPI's components need, and the plug-in finds its functions there: in libmpi.so.12 as
// well as in Debian's libmpich.so.12, in a program that contains MPI, or in the file of TUTTI_MPI.
// The MPI is searched for beside the launcher that has started this process (launcher_files.hpp),
// because several MPIs of the same name may be installed. After that the system searches
// LD_LIBRARY_PATH, the RUNPATH of this library (the MPIs of the build, if they have folders of
// their own), and its own folders.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <link.h>

#include "tutti/error.hpp"

#include "runtime/mpi/launcher_files.hpp"
#include "runtime/mpi/library.hpp"

namespace tutti::mpi {

namespace {

/// The libraries of an MPI, by the names that programs request.
struct Names {
  MpiAbi abi;
  std::vector<const char*> names;
  const char* where;  ///< how to install it
};

const std::array<Names, 3>& all_names() {
  static const std::array<Names, 3> names = {
      Names{MpiAbi::openmpi, {"libmpi.so.40"}, "Debian, Ubuntu: apt-get install openmpi-bin"},
      Names{MpiAbi::mpich,
            {"libmpi.so.12", "libmpich.so.12"},
            "Debian, Ubuntu: apt-get install mpich"},
      Names{MpiAbi::standard, {"libmpi_abi.so.1"}, "MPICH from 5.0 on has it"}};
  return names;
}

const Names& names_of(MpiAbi abi) {
  return *std::find_if(all_names().begin(), all_names().end(),
                       [&](const Names& row) { return row.abi == abi; });
}

/// True if the library has the standard ABI. In MPI 5 libraries with another ABI the function
/// returns -1.
bool has_standard_abi(void* library) {
  using GetAbi = int(int*, int*);
  auto* get = reinterpret_cast<GetAbi*>(dlsym(library, "MPI_Abi_get_version"));
  int major = -1;
  int minor = -1;
  return get != nullptr && get(&major, &minor) == 0 && major == 1;
}

/// Returns what an open library reports about itself; nothing if it is no MPI.
std::optional<Library> mpi_in(void* library, const std::string& file) {
  using GetVersion = int(char*, int*);
  constexpr std::size_t kMost = 8192;  // more than any known MPI needs
  auto* get = reinterpret_cast<GetVersion*>(dlsym(library, "MPI_Get_library_version"));
  if (get == nullptr) return std::nullopt;
  std::string text(kMost + 1, '\0');
  int length = 0;
  get(text.data(), &length);
  return Library{short_version(text.c_str()), file, has_standard_abi(library)};
}

std::string last_error() {
  const char* text = dlerror();
  return text == nullptr ? "unknown error" : text;
}

/// Returns the folder of plug-ins, relative to the library that this function is in.
std::filesystem::path folder_of_plugins() {
  Dl_info info{};
  std::filesystem::path own;
  if (dladdr(reinterpret_cast<const void*>(&folder_of_plugins), &info) != 0) own = info.dli_fname;
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::canonical(own, error);
  return (error ? own : whole).parent_path() / TUTTI_PLUGIN_FOLDER;
}

std::vector<MpiAbi> plugins_in(const std::filesystem::path& folder) {
  std::vector<MpiAbi> found;
  for (const Names& row : all_names()) {
    std::error_code error;
    if (!std::filesystem::exists(folder / plugin_name(row.abi), error)) continue;
    const bool is_default = std::strcmp(to_string(row.abi), TUTTI_DEFAULT_MPI) == 0;
    found.insert(is_default ? found.begin() : found.end(), row.abi);
  }
  return found;
}

/// A callback of dl_iterate_phdr() that collects files of this process that are named like an MPI.
int collect_mpi(dl_phdr_info* info, std::size_t /*size*/, void* files) {
  const std::string file = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  const std::string name = file.substr(file.rfind('/') + 1);
  const auto is_called = [&](const char* start) { return name.starts_with(start); };
  if (is_called("libmpi.so") || is_called("libmpich.so") || is_called("libmpi_abi.so")) {
    static_cast<std::vector<std::string>*>(files)->push_back(file);
  }
  return 0;
}

/// Opens a library for all that are loaded later. Returns null if it does not exist.
void* open_for_all(const char* file) { return dlopen(file, RTLD_NOW | RTLD_GLOBAL); }

/// The file that open_first() has opened, or the reason why there is none.
struct Search {
  std::string file;  ///< empty if none is suitable
  std::string why;
};

/// Opens the first of these files that is a library of that MPI.
Search open_first(const std::vector<std::string>& files, MpiAbi abi) {
  Search search;
  for (const std::string& file : files) {
    void* library = open_for_all(file.c_str());
    const std::string error = library == nullptr ? last_error() : "";
    const std::optional<Library> found = library == nullptr ? std::nullopt : mpi_in(library, file);
    if (found && abi_of(*found) == abi) return {file, ""};
    search.why += search.why.empty() ? "" : "; ";
    search.why += library == nullptr ? error : file + " is " + (found ? found->version : "no MPI");
  }
  return search;
}

/// Returns the files of this MPI beside its launcher.
std::vector<std::string> files_of_launcher(MpiAbi abi) {
  std::vector<std::string> files;
  for (const std::filesystem::path& folder : folders_of_launcher(abi)) {
    for (const char* name : names_of(abi).names) {
      std::error_code error;
      if (std::filesystem::exists(folder / name, error)) files.push_back(folder / name);
    }
  }
  return files;
}

/// Warns if the library is not the launcher's: the two may or may not understand each other.
void warn_of_another_one(const std::string& file, const std::vector<std::string>& expected) {
  const std::optional<Launch> launch = find_launch();
  const auto is_same = [&](const std::string& other) {
    std::error_code error;
    return std::filesystem::equivalent(file, other, error);
  };
  if (expected.empty() || !launch || launch->size == 1 || launch->rank > 0) return;
  if (std::any_of(expected.begin(), expected.end(), is_same)) return;
  std::fprintf(stderr,
               "tutti: warning: this process has loaded %s, and the launcher that started it, %s, "
               "belongs to %s; start it with the launcher of the MPI that it loads, or let it load "
               "that of the launcher (LD_LIBRARY_PATH)\n",
               file.c_str(), launch->launcher.c_str(), expected.front().c_str());
}

/// Loads the library. If the program has loaded it already, makes it visible to the plug-in.
/// Returns an error, or an empty text.
std::string open_library(const ChosenMpi& choice, bool looks_at_launcher) {
  const std::vector<std::string> expected =
      looks_at_launcher ? files_of_launcher(choice.abi) : std::vector<std::string>();
  if (!choice.library.empty()) {
    if (open_for_all(choice.library.c_str()) == nullptr) return last_error();
    warn_of_another_one(choice.library, expected);
    return {};
  }
  const Search beside = open_first(expected, choice.abi);
  if (!beside.file.empty()) return {};
  const auto& names = names_of(choice.abi).names;
  Search search = open_first({names.begin(), names.end()}, choice.abi);
  if (search.file.empty()) return search.why;
  if (!beside.why.empty()) warn_of_another_one(search.file, expected);
  return {};
}

std::string remedy_for(MpiAbi abi) {
  return std::string("install it (") + names_of(abi).where +
         "), load its module, put its folder into LD_LIBRARY_PATH, or name the file: "
         "TUTTI_MPI=/path/to/libmpi.so";
}

const Calls* open_plugin(const std::filesystem::path& file, MpiAbi abi) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(ErrorCode::io, "the plug-in for " + std::string(name_of(abi)) +
                                   " cannot be loaded: " + last_error() +
                                   "; install Tutti as a whole");
  }
  auto* function = reinterpret_cast<PluginFunction*>(dlsym(library, kPluginSymbol));
  const Plugin* plugin = function == nullptr ? nullptr : function();
  if (plugin == nullptr || plugin->layout != kLayout ||
      std::strcmp(plugin->version, TUTTI_VERSION) != 0 || plugin->calls->abi() != abi) {
    const bool is_other = plugin != nullptr;
    throw Error(
        ErrorCode::io,
        file.string() + ": expected the plug-in of Tutti " TUTTI_VERSION " for " + name_of(abi) +
            ", got " +
            (is_other ? std::string("one of Tutti ") + plugin->version : "another library") +
            "; install Tutti as a whole");
  }
  return plugin->calls;
}

/// Opens the file of TUTTI_MPI, whose kind of MPI is used.
Library open_file(const std::string& wanted) {
  void* library = open_for_all(wanted.c_str());
  if (library == nullptr) {
    throw Error(ErrorCode::io, "TUTTI_MPI=" + wanted + " cannot be loaded: " + last_error() +
                                   "; name the library of an MPI, such as /path/to/libmpi.so");
  }
  if (const std::optional<Library> found = mpi_in(library, wanted)) return *found;
  throw Error(ErrorCode::invalid_argument, "TUTTI_MPI=" + wanted +
                                               ": expected the library of an MPI, which has " +
                                               "MPI_Get_library_version, got another one; it is "
                                               "called libmpi.so, libmpich.so or libmpi_abi.so");
}

}  // namespace

std::optional<Library> mpi_of_program() {
  const std::optional<Library> contained = mpi_in(RTLD_DEFAULT, "");
  std::vector<std::string> files;
  dl_iterate_phdr(collect_mpi, &files);
  for (const std::string& file : files) {
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) continue;
    const std::optional<Library> found = mpi_in(library, file);
    dlclose(library);
    if (found) return found;
  }
  return contained;
}

Opened open_mpi(const std::string& wanted, bool looks_at_launcher) {
  const std::filesystem::path folder = folder_of_plugins();
  Surroundings here;
  here.wanted = wanted;
  here.loaded = mpi_of_program();
  if (looks_at_launcher) here.launch = find_launch();
  here.has_pmix = looks_at_launcher && std::getenv("PMIX_RANK") != nullptr;
  here.plugins = plugins_in(folder);
  here.folder = folder.string();
  const bool is_file = wanted.find('/') != std::string::npos;
  std::error_code error;
  if (is_file && here.loaded && !std::filesystem::equivalent(wanted, here.loaded->file, error)) {
    throw Error(ErrorCode::invalid_argument,
                "TUTTI_MPI=" + wanted + ", but this process has loaded " + here.loaded->version +
                    " (" + here.loaded->file + "), and cannot have two MPIs; unset TUTTI_MPI");
  }
  if (is_file && !here.loaded) here.loaded = open_file(wanted);
  ChosenMpi choice = choose_mpi(here);
  if (here.plugins.empty()) {
    return {nullptr, "", "there is no plug-in for any MPI in " + folder.string()};
  }
  const bool is_contained = here.loaded && here.loaded->file.empty();
  const bool by_launcher = looks_at_launcher && !is_file;
  std::string why = is_contained ? "" : open_library(choice, by_launcher);
  const MpiAbi first = choice.abi;
  for (const MpiAbi other : here.plugins) {  // a job of one rank can use any MPI
    const bool will_do = choice.may_be_none || (choice.or_standard && other == MpiAbi::standard);
    if (why.empty()) break;
    if (other == first || !will_do) continue;
    choice.abi = other;
    if (open_library(choice, by_launcher).empty()) why.clear();
  }
  if (why.empty()) {
    const std::filesystem::path file = folder / plugin_name(choice.abi);
    return {open_plugin(file, choice.abi), file.string(), ""};
  }
  const std::string text = std::string("the library of ") + name_of(first) + " cannot be loaded (" +
                           why + "); " + remedy_for(first);
  if (!choice.may_be_none) throw Error(ErrorCode::io, text);
  return {nullptr, "", text};
}

}  // namespace tutti::mpi
