#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds everything, and runs every test.
#
#   scripts/mpirun/test.sh [--sanitizers] [ARGUMENTS OF ctest...]
#   scripts/mpirun/test.sh -R kvstore
#
# --sanitizers: afterwards, ThreadSanitizer over the tests labelled "threads", AddressSanitizer and
# UndefinedBehaviorSanitizer over the unit tests and the MPI tests of two and three ranks.
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
build_sanitizers() {
  chrt --idle --pid 0 "$BASHPID" 2>/dev/null || renice -n 19 -p "$BASHPID" >/dev/null || true
  build tsan thread_tests
  build asan unit_tests mpi_tests
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

with_sanitizers=no
if [ "${1:-}" = --sanitizers ]; then
  with_sanitizers=yes
  shift
fi

install_missing
install_test_tools
build release
if [ "$with_sanitizers" = no ]; then
  run_ctest release "$@"
  exit
fi
build_sanitizers &
status=0
run_ctest release "$@" || status=$?
wait "$!"  # also after a failure: nothing goes on behind the caller's back
[ "$status" = 0 ] || exit "$status"
run_thread_sanitizer "$@"
run_address_sanitizer "$@"
