#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# collective-benchmark as a PBS job: each collective, Tutti beside the MPI that it was built with,
# and the results as JSON and CSV in a folder per job. Change the numbers and options here;
# submit it from the source folder, on a file system that all nodes share:
#
#   qsub scripts/mpirun/pbs_benchmark.sh
#   qsub -v COLLECTIVES="allreduce pushpull" scripts/mpirun/pbs_benchmark.sh
#
# The nodes are the job's alone: times beside other programs are about those as well.
#PBS -N tutti-benchmark
#PBS -l select=2:ncpus=8:mpiprocs=8
#PBS -l place=scatter:excl
#PBS -l walltime=00:30:00
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 1
# shellcheck source-path=SCRIPTDIR source=batch.sh
source "${SCRIPTS:-scripts/mpirun}/batch.sh" || exit 1

options=(-b 8 -e 128M)

log "job $PBS_JOBID on $(sort -u "$PBS_NODEFILE" | tr '\n' ' ')"
run_benchmark "tutti-benchmark-$PBS_JOBID" "${options[@]}"
log "job $PBS_JOBID ended with $code"
exit "$code"
