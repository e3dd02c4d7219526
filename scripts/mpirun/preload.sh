# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# launch.sh --mpi-program: the library that any program of an MPI may be started with. To
# be sourced.

# preload_library ABI: the file for this kind of MPI: of the build folder that this script belongs
# to, of the package for Python, or of the installation. Nothing if there is none.
preload_library() {
  local name=libtutti_mpi_$1.so folder candidate
  folder=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
  for candidate in "$folder/../../build/runtime/$name" "$folder/../../../runtime/$name" \
    "$folder/../$name" "$folder"/../../../lib*/"$name" "$folder"/../../../lib/*/"$name"; do
    if [ -e "$candidate" ]; then
      readlink -f -- "$candidate"
      return
    fi
  done
}

# A static program loads nothing, and says nothing of that.
warn_of_static() {  # PROGRAM WHO
  local file
  file=$(type -P -- "$1") || return 0
  [ "$(head -c 4 -- "$file" | tail -c 3)" = ELF ] || return 0
  if LC_ALL=C ldd "$file" 2>&1 | grep -qE 'statically linked|not a dynamic executable'; then
    say "$2: warning: $1 is linked statically and cannot load a library; its own MPI carries out" \
      "its collectives"
  fi
}

# require_preload WORD...: sets `preloaded` to the library for the MPI of the first program among
# these words or, where they name none, of the launcher.
require_preload() {
  local abi
  abi=$(abi_of_program "$@")
  abi=${abi:-$(family_of "$dialect")}
  preloaded=$(preload_library "${abi:-openmpi}")
  [ -n "$preloaded" ] || fail "there is no libtutti_mpi_${abi:-openmpi}.so in build/runtime/," \
    "nor where this script is installed; build or install Tutti for that MPI"
}

# Puts the library in front of `program`: launchers differ in how they pass variables on, and are
# not to load it themselves.
choose_preload() {
  warn_of_static "${program[0]}" "launch.sh: --mpi-program"
  require_preload "${program[@]}"
  program=(env "LD_PRELOAD=$preloaded${LD_PRELOAD:+:$LD_PRELOAD}" "${program[@]}")
}
