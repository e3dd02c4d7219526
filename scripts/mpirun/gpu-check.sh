#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All that needs a GPU, on a machine that may have no network: builds for the GPU that is here, runs
# every test of it, looks for wrong accesses to its memory, and measures.
#
#   scripts/mpirun/gpu-check.sh [--json FILE]
#
# Prints a table: step, verdict, seconds. Exit code 0: all passed; 1: something did not; 77: there
# is no GPU here. FILE (default build-gpu/gpu-check.json) has the same, with the kernels' speeds.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

readonly no_gpu=77
folder=$root/build-gpu
json=$folder/gpu-check.json
if [ "${1:-}" = --json ]; then
  [ "$#" -ge 2 ] || fail "--json: expected a file"
  json=$2
elif [ "$#" != 0 ]; then
  fail "unknown argument $1; usage: $0 [--json FILE]"
fi

rows=()
failed=no

# step NAME COMMAND...: one row of the table; the output goes to a log.
step() {
  local name=$1 started=$SECONDS verdict=passed
  shift
  run_logged "$name" "$folder/log/${name// /-}.log" "$@" || verdict=FAILED
  [ "$verdict" = passed ] || failed=yes
  rows+=("$name|$verdict|$((SECONDS - started))")
}

# Ranks that share a machine's only GPU talk through its loopback, which may be down.
raise_loopback() {
  [ "$(cat /sys/class/net/lo/operstate 2>/dev/null)" != down ] || ip link set lo up || true
}

# What such a machine may lack is unpacked beside the tree, from Debian's packages: the header of
# libxxhash-dev (XXHASH_ROOT: its folder), without which nothing is built, and
# libboost-program-options-dev (BOOST_ROOT), without which ranks are not measured.
has_program_libraries() {
  ldconfig -p | grep -q boost_program_options || [ -n "${BOOST_ROOT:-}" ]
}

configure() {
  local apps=OFF
  if has_program_libraries; then apps=ON; fi
  if [ -n "${XXHASH_ROOT:-}" ]; then set -- -DTUTTI_XXHASH_INCLUDE="$XXHASH_ROOT"; fi
  cmake -S "$root" -B "$folder" -DCMAKE_BUILD_TYPE=Release -DTUTTI_CUDA=ON "$@" \
    -DCMAKE_CUDA_ARCHITECTURES=native -DTUTTI_BUILD_APPS="$apps"
}

build_gpu() {
  local targets=(kernels_test gpu_ranks_test kernel-benchmark)
  if grep -q 'TUTTI_BUILD_APPS:BOOL=ON' "$folder/CMakeCache.txt"; then
    targets+=(collective-benchmark train-fashion-mnist)
  fi
  cmake --build "$folder" --parallel "$(build_jobs)" --target "${targets[@]}"
}

# A test that is skipped for want of a GPU is no pass here.
run_tests() {
  local log=$folder/log/ctest.log
  (cd -- "$folder" &&
    ctest --output-on-failure --no-tests=error -L 'gpu|nccl' --timeout 120) | tee -- "$log" ||
    return 1
  ! grep -q -F '***Skipped' "$log"
}

check_memory() {
  timeout 240 compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 1 \
    "$folder/tests/kernels_test" --test-case-exclude="*large*"
}

measure_kernels() {
  rm -f -- "$folder/kernels.json"
  "$folder/tests/kernel-benchmark" >"$folder/kernels.part" &&
    mv -- "$folder/kernels.part" "$folder/kernels.json"
}

# Weights on the GPU, by cuBLAS and the store's kernels; its data set may not be here.
train() {
  local images=/usr/share/datasets/fashion-mnist
  if [ ! -d "$images" ]; then
    echo "no $images: not trained"
    return
  fi
  "$folder/bin/train-fashion-mnist" --device gpu --kvstore device --epochs 1
}

# Ranks of one GPU, each a node of its own: the copies to the host and back, and MPI between. NCCL
# alone wants a GPU per rank.
measure_ranks() {
  rm -f -- "$folder/ranks.json"
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TUTTI_RANKS_PER_NODE=1 \
    "$(open_mpi_launcher)" --oversubscribe --bind-to none -np 2 \
    "$folder/bin/collective-benchmark" --device gpu --collective allreduce -b 1M -e 256M -f 16 \
    --backend tutti,mpi --json "$folder/ranks.json"
}

# The table as JSON, with what the benchmarks wrote, where they did.
write_json() {
  local row name verdict seconds comma=''
  {
    printf '{"steps": ['
    for row in "${rows[@]}"; do
      IFS='|' read -r name verdict seconds <<<"$row"
      printf '%s{"step": "%s", "verdict": "%s", "seconds": %s}' "$comma" "$name" "$verdict" \
        "$seconds"
      comma=', '
    done
    printf ']'
    for name in kernels ranks; do
      if [ -s "$folder/$name.json" ]; then
        printf ', "%s": ' "$name"
        cat -- "$folder/$name.json"
      fi
    done
    printf '}\n'
  } >"$json"
}

print_table() {
  local row name verdict seconds
  printf '%-24s %-8s %s\n' step verdict seconds
  for row in "${rows[@]}"; do
    IFS='|' read -r name verdict seconds <<<"$row"
    printf '%-24s %-8s %7s\n' "$name" "$verdict" "$seconds"
  done
}

nvidia-smi -L 2>/dev/null | grep -q GPU || {
  say "no GPU: nvidia-smi finds none here."
  exit "$no_gpu"
}
has_command nvcc || fail "nvcc is not here: put the CUDA toolkit's bin folder into PATH."
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv >&2
raise_loopback
mkdir -p -- "$folder/log"
step "configure" configure
if [ "$failed" = no ]; then step "build" build_gpu; fi
if [ "$failed" = no ]; then
  step "tests" run_tests
  if has_command compute-sanitizer; then step "memory accesses" check_memory; fi
  if [ -x "$folder/tests/kernel-benchmark" ]; then step "speed of kernels" measure_kernels; fi
  if [ -x "$folder/bin/train-fashion-mnist" ]; then step "training" train; fi
  if [ -x "$folder/bin/collective-benchmark" ]; then step "speed of ranks" measure_ranks; fi
fi
write_json
print_table
say "logs: $folder/log; results: $json"
[ "$failed" = no ]
