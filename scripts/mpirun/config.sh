#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Where an installation has its parts: tutti-config.
# shellcheck source-path=SCRIPTDIR
folder=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
# shellcheck source=machine.sh
source "$folder/machine.sh"
# shellcheck source=dialects.sh
source "$folder/dialects.sh"
# shellcheck source=preload.sh
source "$folder/preload.sh"

help() {
  cat <<'END_OF_HELP'
usage: tutti-config --preload [PROGRAM]
       tutti-config [--cflags] [--libs] [--prefix] [--version]

  --preload   the library for LD_PRELOAD, with which programs that know MPI alone use Tutti's
              collectives; for the MPI of PROGRAM, or of the first launcher in the PATH (MPIRUN):
                LD_PRELOAD=$(tutti-config --preload) mpirun -np 2 PROGRAM
  --cflags    what programs in C and C++ that use Tutti are compiled with
  --libs      what they are linked with
  --prefix    the folder that Tutti is installed in
  --version   its version
END_OF_HELP
}

# Sets `library` to the newest library that is installed here, by its full name.
find_library() {
  library=$(find "$prefix"/lib* -maxdepth 2 -name 'libtutti.so.*' -type f 2>/dev/null |
    sort -V | tail -n 1) || true
  [ -n "$library" ] || fail "there is no libtutti.so in $prefix/lib: Tutti is not installed there"
}

require_headers() {
  if ! [ -e "$prefix/include/tutti/tutti.hpp" ] || ! [ -e "${library%.so.*}.so" ]; then
    fail "there is no tutti/tutti.hpp in $prefix/include, or no libtutti.so in ${library%/*}:" \
      "install them, too (Debian: libtutti-dev)"
  fi
}

# The preloaded library for a program or, without one, for the launcher that would be taken.
preload() {
  if [ $# != 0 ]; then
    has_command "$1" || fail "'$1': no such program, or not executable"
    warn_of_static "$1" tutti-config
  fi
  choose_launcher "${1:-true}"
  require_preload "${1:-true}"
  printf '%s\n' "$preloaded"
}

prefix=$(cd -- "$folder/../../.." && pwd)
case ${1:-} in
  --help | -h)
    help
    exit
    ;;
  --preload)
    if [ $# -gt 2 ]; then
      help >&2
      exit 1
    fi
    preload "${@:2}"
    exit
    ;;
esac
words=()
for option; do
  find_library
  case $option in
    --prefix) words+=("$prefix") ;;
    --version) words+=("${library##*.so.}") ;;
    --cflags)
      require_headers
      words+=("$(printf -- '-I%q' "$prefix/include")")
      ;;
    --libs)
      require_headers
      words+=("$(printf -- '-L%q -ltutti' "${library%/*}")")
      ;;
    *) words=() && break ;;
  esac
done
if [ ${#words[@]} = 0 ]; then
  help >&2
  exit 1
fi
printf '%s\n' "${words[*]}"
