#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A PBS job with a rank per GPU that saves itself before its time is up, and goes on in another job.
# Change the numbers and the program here; submit it from the source folder, on a file system that
# all nodes share:  qsub scripts/mpirun/pbs_gpu.sh
#
# Two minutes before the limit the ranks get SIGUSR1. The program saves a checkpoint and ends with
# 75, and this script submits itself again: PBS lets operators alone requeue a job that runs. In an
# array (-J 0-9) TASK is the job's number: --checkpoint-dir "run-$TASK".
#
# Each rank sees one GPU of its node, by its local rank. A program computes on it if it asks for it,
# as train-fashion-mnist does with --device gpu; the library must be built with CUDA.
#PBS -N tutti
#PBS -l select=2:ncpus=32:mpiprocs=4:ngpus=4
#PBS -l walltime=04:00:00
#PBS -r y
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 1
# shellcheck source-path=SCRIPTDIR source=batch.sh
source "${SCRIPTS:-scripts/mpirun}/batch.sh" || exit 1

require_this_script "${BASH_SOURCE[0]:-}"
program=(./my-program --checkpoint-dir run)

log "job $PBS_JOBID on $(sort -u "$PBS_NODEFILE" | tr '\n' ' ')"
warn_before_the_limit 120
run_job --gpus yes "${program[@]}"
log "job $PBS_JOBID ended with $code"

if [ "$code" = 75 ] && [ "$ended" = no ]; then submit_again; fi
exit "$code"
