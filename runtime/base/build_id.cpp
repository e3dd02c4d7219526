// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/build_id.hpp"

#include <bit>
#include <climits>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <link.h>
#include <span>
#include <string_view>
#include <unistd.h>

namespace tutti {

namespace {

/// Returns the description of GNU's build-ID note in a segment of notes; empty if there is none.
std::span<const std::uint8_t> id_in(std::span<const std::uint8_t> notes) {
  const auto padded = [](std::size_t bytes) { return (bytes + 3) / 4 * 4; };
  constexpr std::string_view kOwner("GNU\0", 4);  // including the terminating zero
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes.data(), sizeof note);
    const std::size_t content = sizeof note + padded(note.n_namesz);
    const std::size_t bytes = content + padded(note.n_descsz);
    if (bytes > notes.size()) break;
    const auto* name = reinterpret_cast<const char*>(notes.data() + sizeof note);
    if (note.n_type == NT_GNU_BUILD_ID && std::string_view(name, note.n_namesz) == kOwner) {
      return notes.subspan(content, note.n_descsz);
    }
    notes = notes.subspan(bytes);
  }
  return {};
}

std::string name_of(const dl_phdr_info& object) {
  std::string file = object.dlpi_name == nullptr ? "" : object.dlpi_name;
  if (file.empty()) {  // the program itself has no name here
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    if (length > 0) file.assign(path, static_cast<std::size_t>(length));
  }
  return file.substr(file.rfind('/') + 1);
}

/// Sets the BuildId if the object contains this function. A callback of dl_iterate_phdr().
int look_into(dl_phdr_info* object, std::size_t /*size*/, void* found) {
  const auto own = reinterpret_cast<std::uintptr_t>(&look_into);
  const std::span segments(object->dlpi_phdr, object->dlpi_phnum);
  bool is_own = false;
  for (const auto& segment : segments) {
    const std::uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    is_own |= segment.p_type == PT_LOAD && own >= begin && own < begin + segment.p_memsz;
  }
  if (!is_own) return 0;
  auto& build = *static_cast<BuildId*>(found);
  for (const auto& segment : segments) {
    if (segment.p_type != PT_NOTE || !build.id.empty()) continue;
    const auto* begin = std::bit_cast<const std::uint8_t*>(object->dlpi_addr + segment.p_vaddr);
    for (const std::uint8_t byte : id_in({begin, segment.p_memsz})) {
      constexpr const char* kDigits = "0123456789abcdef";
      build.id += {kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  if (!build.id.empty()) build.file = name_of(*object);
  return 1;
}

}  // namespace

BuildId build_id() {
  BuildId build;
  dl_iterate_phdr(look_into, &build);
  return build;
}

}  // namespace tutti
