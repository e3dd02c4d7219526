// SPDX-License-Identifier: Apache-2.0
// A program that knows MPI alone: whether LD_PRELOAD gives it this library's collectives.
#pragma once

#include <filesystem>
#include <string>

#include "apps/doctor/checks.hpp"

namespace apps::doctor {

/// What the file of a program says. Facts of files that are no programs of this machine are false.
struct ProgramFile {
  std::string path;           ///< with its folder; empty: there is no such program
  bool is_elf = false;        ///< a 64-bit executable of Linux, and not a script
  bool has_loader = false;    ///< loads shared libraries, and so LD_PRELOAD's
  bool takes_rights = false;  ///< runs with the rights of its owner or group
  bool calls_mpi = false;     ///< calls functions of MPI in shared libraries
  bool contains_mpi = false;  ///< has its own MPI_Init, as programs with libmpi.a
};

/// Looks for a program as a shell does, and reads it.
ProgramFile read_program(const std::filesystem::path& program);

/// Says whether a library that LD_PRELOAD names takes part in the program, and else why not.
Finding check_program(const std::filesystem::path& program, const ProgramFile& file);

}  // namespace apps::doctor
