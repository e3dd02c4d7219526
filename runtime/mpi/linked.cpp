// SPDX-License-Identifier: Apache-2.0
// open_mpi() of the static library, whose programs link the one MPI for which it was built.
#include "tutti/error.hpp"

#include "runtime/mpi/library.hpp"

namespace tutti::mpi {

std::optional<Library> mpi_of_program() {
  return Library{short_version(compiled_calls().version()), "",
                 compiled_calls().abi() == MpiAbi::standard};
}

Opened open_mpi(const std::string& wanted, bool /*looks_at_launcher*/) {
  if (wanted.find('/') != std::string::npos) {
    throw Error(ErrorCode::invalid_argument,
                "TUTTI_MPI=" + wanted + ", but this program links " + mpi_of_program()->version +
                    " and the static library of Tutti; link the shared one, or unset TUTTI_MPI");
  }
  Surroundings here;
  here.wanted = wanted;
  here.loaded = mpi_of_program();
  here.plugins = {compiled_calls().abi()};
  here.folder = "this program, which links the static library";
  choose_mpi(here);
  return {&compiled_calls(), "linked", ""};
}

}  // namespace tutti::mpi
