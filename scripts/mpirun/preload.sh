# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# launch.sh --mpi-program: the library that any program of an MPI may be started with. To
# be sourced.

# preload_library FAMILY: the file for this MPI: of the build folder that this script belongs to, or
# of the installation. Nothing if there is none.
preload_library() {
  local name=libtutti_mpi_$1.so folder candidate
  folder=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
  for candidate in "$folder/../../build/runtime/$name" "$folder"/../../../lib*/"$name" \
    "$folder"/../../../lib/*/"$name"; do
    if [ -e "$candidate" ]; then
      readlink -f -- "$candidate"
      return
    fi
  done
}

# A static program loads nothing, and says nothing of that.
warn_of_static() {  # PROGRAM
  local file
  file=$(type -P -- "$1") || return 0
  [ "$(head -c 4 -- "$file" | tail -c 3)" = ELF ] || return 0
  if LC_ALL=C ldd "$file" 2>&1 | grep -qE 'statically linked|not a dynamic executable'; then
    say "launch.sh: warning: --mpi-program: $1 is linked statically and cannot load a library;" \
      "its own MPI carries out its collectives"
  fi
}

# Puts the library in front of `program`: launchers differ in how they pass variables on, and are
# not to load it themselves.
choose_preload() {
  local family library
  warn_of_static "${program[0]}"
  family=$(mpi_of_program "${program[@]}")
  family=${family:-$(family_of "$dialect")}
  library=$(preload_library "${family:-openmpi}")
  [ -n "$library" ] || fail "--mpi-program: there is no libtutti_mpi_${family:-openmpi}.so in" \
    "build/runtime/, nor where this script is installed; build or install Tutti for that MPI"
  program=(env "LD_PRELOAD=$library${LD_PRELOAD:+:$LD_PRELOAD}" "${program[@]}")
}
