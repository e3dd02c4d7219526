#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All that needs a GPU, on a machine that may have no network: builds for the GPU that is here, runs
# every test of it, looks for wrong accesses to its memory, and measures.
#
#   scripts/mpirun/gpu-check.sh [--only STEP]... [--json FILE]
#   scripts/mpirun/gpu-check.sh --bring
#
# STEP: tests, kernels, torch, pushes, peers, mps, ranks, training or memory; without it,
# all of them.
# Prints a table: step, verdict, seconds, and why a step was skipped. Exit code 0: what was to run
# has passed; 1: not all of it; 77: there is no GPU here. FILE (default build-gpu/gpu-check.json)
# has the same, and the speeds. --bring, on a machine with a network, puts Debian's packages of what
# the build needs into gpu-libraries, which goes with the tree to one without.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
show_help_if_asked "$@"

readonly no_gpu=77
folder=$root/build-gpu
json=$folder/gpu-check.json
libraries=$root/gpu-libraries
steps=(tests kernels torch pushes peers mps ranks training memory)
only=()
brings=no
while [ "$#" != 0 ]; do
  case $1 in
    --json | --only) [ "$#" -ge 2 ] || fail "$1: expected a value after it" ;;
  esac
  case $1 in
    --bring) brings=yes ;;
    --json)
      json=$2
      shift
      ;;
    --only)
      [[ " ${steps[*]} " = *" $2 "* ]] || fail "--only: expected one of ${steps[*]}, got $2"
      only+=("$2")
      shift
      ;;
    *) fail "unknown argument $1; usage: $0 [--only STEP]... [--json FILE], or $0 --bring" ;;
  esac
  shift
done

rows=()
failed=no

# step NAME COMMAND...: one row of the table; the output goes to a log.
step() {
  local name=$1 started=$SECONDS verdict=passed
  shift
  run_logged "$name" "$folder/log/${name// /-}.log" "$@" || verdict=FAILED
  [ "$verdict" = passed ] || failed=yes
  rows+=("$name|$verdict|$((SECONDS - started))|")
  write_json  # what is known stays, should this script be ended
}

# skip NAME REASON: a row, too. No step is missing without a word.
skip() { rows+=("$1|SKIPPED|0|$2"); }

# step_if NAME OBSTACLE COMMAND...: runs it unless there is an obstacle, or others were asked for.
step_if() {
  local name=$1 obstacle=$2
  shift 2
  if [ "${#only[@]}" != 0 ] && [[ " ${only[*]} " != *" $name "* ]]; then
    skip "$name" "not asked for"
  elif [ -n "$obstacle" ]; then
    skip "$name" "$obstacle"
  else
    step "$name" "$@"
  fi
}

# Ranks that share a machine's only GPU talk through its loopback, which may be down.
raise_loopback() {
  [ "$(cat /sys/class/net/lo/operstate 2>/dev/null)" != down ] || ip link set lo up || true
}

# The headers of xxHash, without which nothing is built, and Boost's program options, without which
# no ranks are measured and nothing is trained. They are the machine's, or of the packages that
# --bring has put beside the tree.
bring_libraries() {
  local packages=(libxxhash-dev) boost
  for boost in libboost-program-options-dev libboost-dev; do
    packages+=("$(apt-cache depends --important "$boost" | awk '/Depends:/ { print $2; exit }')")
  done
  packages+=("$(apt-cache depends --important "${packages[1]}" |
    awk '$2 ~ /^libboost-program-options[0-9.]+$/ { print $2; exit }')")
  mkdir -p -- "$libraries"
  (cd -- "$libraries" && rm -f -- *.deb && apt-get download "${packages[@]}")
  say "in $libraries: ${packages[*]}"
}

unpack_libraries() {
  local package
  for package in "$libraries"/*.deb; do
    [ ! -e "$package" ] || dpkg-deb -x "$package" "$folder/libraries"
  done
}

# header NAME: the folder that it is in; fails if it is in none.
header() {
  local place
  for place in "${XXHASH_ROOT:-/nowhere}" "${BOOST_ROOT:-/nowhere}/include" /usr/include \
    /usr/local/include "$folder/libraries/usr/include"; do
    [ ! -e "$place/$1" ] || { printf '%s\n' "$place" && return; }
  done
  return 1
}

configure() {
  local apps=OFF place architecture
  architecture=$(g++ -print-multiarch)
  unpack_libraries
  place=$(header xxhash.h) ||
    fail "no xxhash.h: install libxxhash-dev, or run $0 --bring where there is a network."
  [ "$place" = /usr/include ] || set -- -DTUTTI_XXHASH_INCLUDE="$place"
  # By the library: a machine may have Boost's headers alone.
  if [ -e "$folder/libraries/usr/lib/$architecture/libboost_program_options.a" ]; then
    apps=ON
    set -- "$@" -DBOOST_ROOT="$folder/libraries/usr" -DBoost_NO_BOOST_CMAKE=ON \
      -DBOOST_LIBRARYDIR="$folder/libraries/usr/lib/$architecture"
  elif [ -n "${BOOST_ROOT:-}" ] ||
    compgen -G "/usr/lib/$architecture/libboost_program_options.*" >/dev/null; then
    apps=ON
  fi
  cmake -S "$root" -B "$folder" -DCMAKE_BUILD_TYPE=Release -DTUTTI_CUDA=ON "$@" \
    -DCMAKE_CUDA_ARCHITECTURES=native -DTUTTI_BUILD_APPS="$apps"
}

build_gpu() {
  local targets=(kernels_test gpu_ranks_test kernel-benchmark ranks-benchmark)
  if grep -q 'TUTTI_BUILD_APPS:BOOL=ON' "$folder/CMakeCache.txt"; then
    targets+=(collective-benchmark train-fashion-mnist)
  fi
  cmake --build "$folder" --parallel "$(build_jobs)" --target "${targets[@]}"
}

# A test that is skipped for want of a GPU is no pass here.
run_tests() {
  local log=$folder/log/ctest.log
  (cd -- "$folder" &&
    limited 500 ctest --output-on-failure --no-tests=error -L 'gpu|nccl') | tee -- "$log" ||
    return 1
  ! grep -q -F '***Skipped' "$log"
}

# limited SECONDS COMMAND...: what hangs on a GPU must not take the other steps' time.
limited() { timeout --kill-after=5 "$@"; }

# keep NAME COMMAND...: NAME.json is what the command prints, also where it says by exit code 3 that
# a result is wrong.
keep() {
  local name=$1 status=0
  shift
  rm -f -- "$folder/$name.json"
  "$@" >"$folder/$name.part" || status=$?
  case $status in 0 | 3) mv -- "$folder/$name.part" "$folder/$name.json" ;; esac
  return "$status"
}

check_memory() {
  limited 240 compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 1 \
    "$folder/tests/kernels_test" --test-case-exclude="*large*"
}

measure_kernels() { keep kernels limited 300 "$folder/tests/kernel-benchmark"; }

# The cases of kernel-benchmark by torch's fused optimizers.
measure_torch() { keep torch limited 300 python3 -B "$root/tests/gpu/torch_benchmark.py"; }

# Weights on the GPU, by cuBLAS and the store's kernels; its data set may not be here.
train() {
  limited 200 "$folder/bin/train-fashion-mnist" --device gpu --kvstore device --epochs 1
}

# two_ranks PROGRAM...: of one GPU.
two_ranks() {
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    limited 300 "$(open_mpi_launcher)" --oversubscribe --bind-to none -np 2 "$@"
}

# Each a node of its own: the copies to the host and back, and MPI between. NCCL alone wants a GPU
# per rank.
two_nodes() { TUTTI_RANKS_PER_NODE=1 two_ranks "$@"; }

# Pushes: by a program that is built without Boost.
measure_pushes() { keep pushes two_nodes "$folder/tests/ranks-benchmark"; }

# By kernels that read the memory of both ranks.
push_by_peers() { TUTTI_GPU_PATH=peers two_ranks "$folder/tests/ranks-benchmark"; }
measure_peers() { keep peers push_by_peers; }

# The same with NVIDIA's Multi-Process Service, by which the two do not take turns on the GPU. Its
# sockets want a short path.
measure_mps() {
  local status=0 folder_of_mps
  rm -f -- "$folder/mps.json"
  folder_of_mps=$(mktemp -d)
  export CUDA_MPS_PIPE_DIRECTORY=$folder_of_mps CUDA_MPS_LOG_DIRECTORY=$folder_of_mps
  if nvidia-cuda-mps-control -d; then
    keep mps push_by_peers || status=$?
    echo quit | nvidia-cuda-mps-control
  else
    status=1
  fi
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  rm -rf -- "$folder_of_mps"
  return "$status"
}

# Sums, beside MPI's own.
measure_ranks() {
  rm -f -- "$folder/ranks.json"
  two_nodes "$folder/bin/collective-benchmark" --device gpu --collective allreduce \
    -b 1M -e 256M -f 16 --backend tutti,mpi --json "$folder/ranks.json"
}

# The table as JSON, with what the benchmarks wrote in this run: the folder may have an older one's.
write_json() {
  local row name verdict seconds reason comma=''
  {
    printf '{"steps": ['
    for row in "${rows[@]}"; do
      IFS='|' read -r name verdict seconds reason <<<"$row"
      printf '%s{"step": "%s", "verdict": "%s", "seconds": %s, "reason": "%s"}' "$comma" "$name" \
        "$verdict" "$seconds" "$reason"
      comma=', '
    done
    printf ']'
    for row in "${rows[@]}"; do
      IFS='|' read -r name verdict _ <<<"$row"
      if [ "$verdict" != SKIPPED ] && [ -s "$folder/$name.json" ]; then
        printf ', "%s": ' "$name"
        cat -- "$folder/$name.json"
      fi
    done
    printf '}\n'
  } >"$json"
}

print_table() {
  local row name verdict seconds reason
  printf '%-10s %-8s %s\n' step verdict seconds
  for row in "${rows[@]}"; do
    IFS='|' read -r name verdict seconds reason <<<"$row"
    printf '%-10s %-8s %7s  %s\n' "$name" "$verdict" "$seconds" "$reason"
  done
}

# obstacle FILE REASON: the reason if the file is not there.
obstacle() { [ -e "$1" ] || printf '%s\n' "$2"; }

if [ "$brings" = yes ]; then
  bring_libraries
  exit
fi
gpus=$(nvidia-smi -L 2>/dev/null) || gpus=
[[ $gpus = *GPU* ]] || {
  say "no GPU: nvidia-smi finds none here."
  mkdir -p -- "$folder"
  for name in "${steps[@]}"; do skip "$name" "no GPU"; done
  write_json
  print_table
  exit "$no_gpu"
}
has_command nvcc || fail "nvcc is not here: put the CUDA toolkit's bin folder into PATH."
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv >&2
raise_loopback
mkdir -p -- "$folder/log"
step "configure" configure
if [ "$failed" = no ]; then step "build" build_gpu; fi
if [ "$failed" = no ]; then
  no_boost="no library boost_program_options; see --bring"
  no_images="no /usr/share/datasets/fashion-mnist (dataset-fashion-mnist)"
  cannot_train=$(obstacle "$folder/bin/train-fashion-mnist" "$no_boost")
  : "${cannot_train:=$(obstacle /usr/share/datasets/fashion-mnist "$no_images")}"
  cannot_check=
  has_command compute-sanitizer || cannot_check="compute-sanitizer is not here"
  step_if tests '' run_tests
  step_if kernels '' measure_kernels
  cannot_torch=
  python3 -c 'import torch' 2>/dev/null || cannot_torch="python3 cannot import torch"
  step_if torch "$cannot_torch" measure_torch
  step_if pushes '' measure_pushes
  step_if peers '' measure_peers
  cannot_serve=
  has_command nvidia-cuda-mps-control || cannot_serve="nvidia-cuda-mps-control is not here"
  step_if mps "$cannot_serve" measure_mps
  step_if ranks "$(obstacle "$folder/bin/collective-benchmark" "$no_boost")" measure_ranks
  step_if training "$cannot_train" train
  step_if memory "$cannot_check" check_memory
else
  for name in "${steps[@]}"; do skip "$name" "nothing was built"; done
fi
write_json
print_table
say "logs: $folder/log; results: $json"
[ "$failed" = no ]
