#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# collective-benchmark as a Slurm job: each collective, Tutti beside the MPI that it was built with,
# and the results as JSON and CSV in a folder per job. Change the numbers here or on the command
# line, which wins; submit it from the source folder, on a file system that all nodes share. What
# follows the script goes to collective-benchmark:
#
#   sbatch --nodes=4 --ntasks-per-node=32 scripts/mpirun/slurm_benchmark.sh -b 8 -e 256M
#   COLLECTIVES="allreduce pushpull" sbatch scripts/mpirun/slurm_benchmark.sh -n 100
#
# The nodes are the job's alone: times beside other programs are about those as well.
#SBATCH --job-name=tutti-benchmark
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=1
#SBATCH --exclusive
#SBATCH --time=00:30:00
#SBATCH --output=%x-%j.log

# shellcheck source-path=SCRIPTDIR source=batch.sh
source "${SCRIPTS:-scripts/mpirun}/batch.sh" || exit 1

log "job $SLURM_JOB_ID on $SLURM_JOB_NODELIST"
run_benchmark "tutti-benchmark-$SLURM_JOB_ID" "$@"
log "job $SLURM_JOB_ID ended with $code"
exit "$code"
