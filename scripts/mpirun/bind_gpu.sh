#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command with one GPU of this host visible, the one of this rank's local number. launch.sh
# puts it in front of the program:  mpirun -np 4 bind_gpu.sh PROGRAM [ARGUMENTS...]
#
# CUDA_VISIBLE_DEVICES as the batch system or the user left it is the list to choose from; one that
# names a single GPU stays. With more ranks than GPUs they go round. A host without GPUs: nothing.
set -eu

# Under mpirun the variables of Slurm describe the batch script, so Open MPI's come first.
local_rank=${PMIX_LOCAL_RANK:-${SLURM_LOCALID:-0}}
local_rank=${MPI_LOCALRANKID:-${PALS_LOCAL_RANKID:-$local_rank}}
local_rank=${OMPI_COMM_WORLD_LOCAL_RANK:-$local_rank}

if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
  IFS=, read -ra gpus <<<"$CUDA_VISIBLE_DEVICES"
else
  gpus=()
  for device in "${LAUNCH_DEVICES:-/dev/nvidia}"[0-9]*; do
    if [ -e "$device" ]; then gpus+=("${#gpus[@]}"); fi
  done
fi
if [ "${#gpus[@]}" -gt 1 ] || { [ "${#gpus[@]}" = 1 ] && [ -z "${CUDA_VISIBLE_DEVICES:-}" ]; }; then
  export CUDA_VISIBLE_DEVICES=${gpus[local_rank % ${#gpus[@]}]}
  export CUDA_DEVICE_ORDER=${CUDA_DEVICE_ORDER:-PCI_BUS_ID}  # numbers mean the same everywhere
fi
exec "$@"
