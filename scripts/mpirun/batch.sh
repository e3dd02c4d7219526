# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the batch templates of this folder share. To be sourced. It sets `code` and `ended`.
# shellcheck disable=SC2034,SC2064
set -u

batch_folder=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" >/dev/null && pwd)

# A full disk or a log that nobody reads does not end the job.
log() { (printf '%s %s\n' "$(date '+%F %T')" "$*") || true; }

# The number of this job in an array of jobs, empty in other jobs. A PBS job that is submitted again
# is in no array, and is given its number as TASK.
TASK=${SLURM_ARRAY_TASK_ID:-${PBS_ARRAY_INDEX:-${PBS_ARRAYID:-${TASK:-}}}}
if [ -n "$TASK" ]; then export TASK; fi

# A deadline well below any time limit: a job that hangs says which rank is missing.
export TUTTI_TIMEOUT=${TUTTI_TIMEOUT:-300}

# run_job [OPTIONS OF launch.sh] PROGRAM [ARGUMENTS...]: its exit code is in `code`.
#
# SIGUSR1 is the warning before the time limit. The batch system sends it to the script alone; the
# script tells mpirun, and mpirun each rank once. SIGTERM comes when somebody else ends the job (a
# user's order, a preemption): where only the script gets it the ranks save, too, but `ended` says
# that the script is not to put the job back.
run_job() {
  local asked=no job=''
  ended=no
  trap 'asked=yes; [ -z "${job:-}" ] || kill -USR1 "$job" 2>/dev/null' USR1
  trap 'asked=yes ended=yes; [ -z "${job:-}" ] || kill -USR1 "$job" 2>/dev/null' TERM
  code=75
  if [ "$asked" = yes ]; then return; fi  # told to end before it has begun
  "$batch_folder/launch.sh" --max-restarts "${MAX_RESTARTS:-2}" "$@" &
  job=$!
  if [ "$asked" = yes ]; then kill -USR1 "$job" 2>/dev/null; fi  # it came before there was a job
  wait "$job"
  while kill -0 "$job" 2>/dev/null; do wait "$job"; done  # a signal ended the wait, not the job
  wait "$job"
  code=$?
  if [ "$asked" = yes ] && [ "$code" = 138 ]; then code=75; fi  # launch.sh could not take it yet
}

# slurm_job: what scontrol calls this job. In an array, SLURM_JOB_ID of the task that started last
# is the number of the whole array.
slurm_job() {
  if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then
    printf '%s\n' "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
  else
    printf '%s\n' "$SLURM_JOB_ID"
  fi
}

# requeue_if_asked: puts this Slurm job, and of an array this task alone, back into the queue if it
# has saved itself. Ends the script with the job's exit code.
requeue_if_asked() {
  if [ "$code" = 75 ] && [ "$ended" = no ]; then
    scontrol requeue "$(slurm_job)" && sleep 60  # Slurm ends this script meanwhile
  fi
  exit "$code"
}

# warn_before_the_limit SECONDS: SIGUSR1 for this script so long before a PBS job's limit, since PBS
# sends no warning itself. The limit is asked for once; without one there is no warning.
warn_before_the_limit() {
  local limit script=$$ hours minutes seconds
  limit=$(qstat -f "$PBS_JOBID" | sed -n 's/^ *Resource_List\.walltime = //p')
  IFS=: read -r hours minutes seconds <<<"$limit"
  if [ -z "${seconds:-}" ]; then
    log "no walltime found for $PBS_JOBID: there will be no warning before its end"
    return
  fi
  limit=$((10#$hours * 3600 + 10#$minutes * 60 + 10#$seconds - $1))
  # A read that nothing answers: unlike `sleep`, no process is left when it is ended.
  (read -r -t "$((limit > 0 ? limit : 1))" _ <> <(:); kill -USR1 "$script" 2>/dev/null) &
  trap "kill $! 2>/dev/null" EXIT
}

# require_this_script FILE: the script of a PBS job, which submit_again submits. THIS_SCRIPT, or the
# copy of it that PBS made when it was submitted and starts by its name: also where that was a copy
# of a template. A job that could not be submitted again ends at once.
require_this_script() {
  this_script=${THIS_SCRIPT:-$1}
  if [ -f "$this_script" ] && [ -r "$this_script" ]; then return; fi
  log "PBS does not say which file this script is, so it could not be submitted again:" \
    "qsub -v THIS_SCRIPT=/path/to/it"
  exit 1
}

# submit_again: a job that goes on after this one. PBS gives it the settings that `qsub -v` gave
# this one only if they are named again; their values come from the environment. A task of an array
# submits itself alone: without the script's line that makes an array (-J; Torque and older: -t).
submit_again() {
  local name next names=''
  for name in $(compgen -e); do
    case $name in
      TUTTI_* | NCCL_* | MPIRUN | SCRIPTS | MAX_RESTARTS | THIS_SCRIPT | TASK) names+=,$name ;;
    esac
  done
  if [ -n "$TASK" ]; then
    next=$(sed '/^#PBS  *-[Jt] /d' "$this_script" | qsub -v "${names#,}")
  else
    next=$(qsub -v "${names#,}" "$this_script")
  fi
  # shellcheck disable=SC2181
  if [ $? = 0 ]; then
    log "submitted again as $next"
  else
    log "qsub failed: this job is not submitted again"
    code=2
  fi
}

# run_benchmark FOLDER [OPTIONS OF collective-benchmark...]: one launch of BENCHMARK for each of
# COLLECTIVES, with results in FOLDER. `code` is the first one that is not 0; a collective that
# fails does not stop the others, and nothing is started again.
run_benchmark() {
  local folder=$1 collective files status
  local benchmark=${BENCHMARK:-build/bin/collective-benchmark}
  if [ -z "${BENCHMARK:-}" ] && [ ! -x "$benchmark" ]; then  # an installed copy
    benchmark=$batch_folder/../../../bin/collective-benchmark
  fi
  local all="allreduce reduce_scatter allgather broadcast reduce pushpull"
  shift
  code=0
  mkdir -p -- "$folder" || { code=1; return; }
  log "results in $folder"
  for collective in ${COLLECTIVES:-$all}; do
    files=(--json "$folder/$collective.json" --csv "$folder/$collective.csv")
    status=0
    "$batch_folder/launch.sh" "$benchmark" --collective "$collective" "${files[@]}" "$@" ||
      status=$?
    [ "$status" = 0 ] || log "$collective ended with $status"
    [ "$code" != 0 ] || code=$status
  done
}
