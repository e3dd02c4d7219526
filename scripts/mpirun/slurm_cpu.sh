#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A Slurm job on CPU nodes that saves itself before its time is up, and goes on in a later run.
# Change the numbers here or on the command line, which wins; submit it from the source folder, on a
# file system that all nodes share:
#
#   sbatch --nodes=4 --time=12:00:00 scripts/mpirun/slurm_cpu.sh \
#     build/bin/train-fashion-mnist --checkpoint-dir run --resume auto
#
# Two minutes before the limit the ranks get SIGUSR1. The program saves a checkpoint and ends with
# 75, and the job goes back into the queue under the same number; its log goes on, too. In an array
# (--array=0-9) each task has its own checkpoints where %a stands for its number:
# --checkpoint-dir run-%a.
#SBATCH --job-name=tutti
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=1
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log

# shellcheck source-path=SCRIPTDIR source=batch.sh
source "${SCRIPTS:-scripts/mpirun}/batch.sh" || exit 1

attempt="job $(slurm_job), attempt ${SLURM_RESTART_COUNT:-0},"
log "$attempt on $SLURM_JOB_NODELIST"
run_job "${@//%a/${TASK:-%a}}"
log "$attempt ended with $code"
requeue_if_asked
