#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds everything, and runs every test.
#
#   scripts/mpirun/test.sh [--sanitizers | --quick-sanitizers] [ARGUMENTS OF ctest...]
#   scripts/mpirun/test.sh -R kvstore
#
# --sanitizers: afterwards, ThreadSanitizer over the tests labelled "threads", AddressSanitizer and
# UndefinedBehaviorSanitizer over the unit tests and the MPI tests of two and three ranks.
# --quick-sanitizers: ThreadSanitizer over the engine, AddressSanitizer and cheap checks of
# UndefinedBehaviorSanitizer over what reads files, options and callers' memory.
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

# Open MPI keeps memory until the process ends, so leaks are looked for in the unit tests alone.
run_address_sanitizer() {
  build asan
  say "AddressSanitizer and UndefinedBehaviorSanitizer"
  run_ctest asan -L unit "$@"
  ASAN_OPTIONS=detect_leaks=0 run_ctest asan -R '_np[23]$' "$@"
}

# Only what is run is built, and while the other tests run, which mostly wait: with the processors
# that nobody wants, if the system knows such a thing.
thread_programs=(collectives_test)
quick_programs=(runtime_test checkpoint_unit_test compression_test row_sparse_test reduce_test
  observe_test fuzz_safetensors fuzz_manifest fuzz_options fuzz_settings fuzz_c_api)
build_sanitizers() {
  chrt --idle --pid 0 "$BASHPID" 2>/dev/null || renice -n 19 -p "$BASHPID" >/dev/null || true
  build tsan "${thread_programs[@]}"
  if [ "$sanitizers" = quick ]; then build asan-quick "${quick_programs[@]}"; fi
}

run_quick_sanitizer() {
  say "AddressSanitizer, quick"
  run_ctest asan-quick -R "^($(IFS='|' && echo "${quick_programs[*]}"))\$" "$@"
}

# ThreadSanitizer of gcc before version 14 does not start where the kernel spreads addresses widely.
run_thread_sanitizer() {
  say "ThreadSanitizer"
  runner=(setarch "$(uname -m)" --addr-no-randomize)
  "${runner[@]}" true 2>/dev/null || runner=()
  run_ctest tsan -R "^($(IFS='|' && echo "${thread_programs[*]}"))\$" "$@"
  runner=()
}

sanitizers=no
case ${1:-} in
  --sanitizers)
    sanitizers=all
    thread_programs+=(collective_kinds_test optimizer_bits_test meter_test gpu_test)
    shift
    ;;
  --quick-sanitizers) sanitizers=quick; shift ;;
esac

# What single tests need besides; without these tools they are skipped, and say so.
install_test_tools() {
  local tool missing=()
  for tool in pkg-config shellcheck; do
    has_command "$tool" || missing+=("$tool")
  done
  has_command ip || missing+=(iproute2)
  if [ "${#missing[@]}" = 0 ] || ! has_command apt-get; then return 0; fi
  if [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; then
    (apt_install "${missing[@]}") || say "not installed: ${missing[*]}; their tests are skipped."
  fi
}

install_missing
install_test_tools
build release
if [ "$sanitizers" = no ]; then
  run_ctest release "$@"
else
  build_sanitizers &
  status=0
  run_ctest release "$@" || status=$?
  wait "$!"  # also after a failure: nothing goes on behind the caller's back
  [ "$status" = 0 ] || exit "$status"
  if [ "$sanitizers" = all ]; then
    run_thread_sanitizer "$@"
    run_address_sanitizer "$@"
  else
    run_thread_sanitizer "$@" &
    run_quick_sanitizer "$@" || status=$?
    wait "$!"
    exit "$status"
  fi
fi
