#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mpirun, mpiexec or srun, with the options that the situation needs. All launcher options of the
# project are here and in dialects.sh.
# shellcheck source-path=SCRIPTDIR
folder=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
# shellcheck source=machine.sh
source "$folder/machine.sh"
# shellcheck source=placement.sh
source "$folder/placement.sh"
# shellcheck source=dialects.sh
source "$folder/dialects.sh"
# shellcheck source=preload.sh
source "$folder/preload.sh"
# shellcheck source=watch.sh
source "$folder/watch.sh"
# shellcheck source=snapshots.sh
source "$folder/snapshots.sh"
# shellcheck source=lost_hosts.sh
source "$folder/lost_hosts.sh"

# A batch system may warn a job that has not begun yet: a signal that comes before is kept.
stopped=no warned=no job='' early=''
forward() {
  case $1 in INT | TERM) stopped=yes early=$1 ;; USR1) warned=yes ;; esac
  if [ -z "$job" ]; then early=${early:-$1}; else kill -s "$1" "$job" 2>/dev/null || true; fi
}
for name in USR1 USR2 TERM; do
  # shellcheck disable=SC2064
  trap "forward $name" "$name"
done

# What is told to end is not begun.
end_if_told() {
  case $early in
    '') ;;
    INT) exit 130 ;;
    TERM) exit 143 ;;
    *)
      say "launch.sh: SIG$early came before the job was started, so it is not."
      exit "$requeue_exit"
      ;;
  esac
}

help() {
  cat <<'END'
usage: launch.sh [-np N] [OPTIONS] [OPTIONS OF mpirun...] [--] PROGRAM [ARGUMENTS...]

  -np N, -n N         ranks, also as -np2 or --np=2; without it, all slots of the batch job or of
                      the hosts, and on one machine one rank per core
  --hostfile FILE     the hosts, a line each: "name slots=4" (as mpirun's; so is --host a:4,b:4)
  --gpus auto|yes|no  give each rank one GPU of its host, by its local rank (default auto: where
                      this host has GPUs)
  --max-restarts N    start a job that failed again, up to N times; the program goes on from its
                      last checkpoint (train-fashion-mnist: --checkpoint-dir DIR --resume auto)
  --snapshot-every S  keep a snapshot of at most about S seconds ago in the memory of each host,
                      from which a job that is started again goes on; for programs that call
                      snapshot_when_due() and load() (train-fashion-mnist does)
  --spares K          the last K hosts of the list have no ranks until another host is lost
  --min-ranks M       with too few hosts left, start again with fewer ranks, but at least M
  --requeue-exit N    end with N instead of 75, for batch systems that requeue on their own code
  --mpi-program       PROGRAM knows MPI alone: its collectives become this library's
  --dry-run           print the launcher's command and end
  --help              this text

Every other option is the launcher's. --host, --hostfile, -N (ranks per node), --bind-to,
--oversubscribe and -x are translated where it is not Open MPI's: MPICH's or Intel's mpiexec, or
srun. On several hosts the variables TUTTI_*, NCCL_*, OMP_* and LD_LIBRARY_PATH are forwarded. Exit
codes 0 (done), 1 (usage; on several hosts, of the first two starts) and 75 (requeue me) of the
program are passed on at once, all others after the last restart. Signals are passed on to mpirun:
SIGUSR1 reaches the ranks and leaves them time to save; after SIGTERM it kills them. After SIGTERM,
SIGINT or SIGUSR1 nothing is started again. A job that SIGUSR1 tells to end before it began ends
with 75.
The launcher is the first mpirun or mpiexec in the PATH that is of the MPI that PROGRAM was built
with. MPIRUN=/path/to/launcher chooses another one; one of another MPI is refused.
END
}

usage() {
  say "error: $*"
  help | head -n 1 >&2
  exit 1
}

# --- the arguments -------------------------------------------------------------------------------

ranks='' c_value='' gpus=auto max_restarts=0 is_kept=no requeue_exit=75 dry_run=no
mpi_program=no
snapshot_every=''    # seconds
spares='' min_ranks=''
counted=no         # an option of mpirun's says how many ranks: per node, per socket, ...
slots_said=no      # the user says where ranks go, or whether they may take turns
binding_said=no    # the user says what they are bound to, or does by where they go
several_hosts=no   # a batch job or a list of hosts: mpirun knows its slots, this script does not
forwarded=' '      # variables that the user forwards
passed=()          # for the launcher
words_of=()        # how many of these words belong to each option

number() {  # OPTION TEXT LEAST
  [[ $2 =~ ^[0-9]+$ && $2 -ge $3 ]] || usage "$1 takes a number from $3 on, not '$2'"
}

seconds() {  # OPTION TEXT
  [[ $2 =~ ^[0-9]*\.?[0-9]+$ && $2 =~ [1-9] ]] || usage "$1 takes a number of seconds, not '$2'"
}

set_ranks() {  # OPTION TEXT
  number "$1" "$2" 1
  ranks=$2
}

# pass_on OPTION [VALUE...]: an option of mpirun's; sets `words` to how many arguments it takes.
pass_on() {
  words=1
  case $1 in
    --mca | -mca | --gmca | -gmca | --prtemca | --pmixmca | -genv | -env) words=3 ;;
    -x) words=2 forwarded+="${2%%=*} " ;;
    -H | -host | --host | -hostfile | --hostfile | -machinefile | --machinefile | \
      --default-hostfile) words=2 several_hosts=yes ;;
    -N | -npernode | --npernode | -nperboard | --nperboard | -npersocket | --npersocket | --ppr | \
      -nproc-per-node | --nproc-per-node) words=2 counted=yes slots_said=yes binding_said=yes ;;
    -N[0-9]* | -pernode | --pernode | -npernode=* | --npernode=* | -npersocket=* | \
      --npersocket=* | --ppr=* | --nproc-per-node=*) counted=yes slots_said=yes binding_said=yes ;;
    --map-by | -map-by)
      words=2 slots_said=yes binding_said=yes
      if [[ ${2:-} == ppr:* ]]; then counted=yes; fi
      ;;
    --map-by=ppr:* | -map-by=ppr:*) counted=yes slots_said=yes binding_said=yes ;;
    -rf | --rankfile) words=2 slots_said=yes binding_said=yes ;;
    --map-by=* | --rankfile=*) slots_said=yes binding_said=yes ;;
    --bind-to | -bind-to | --cpu-set | --cpu-list) words=2 binding_said=yes ;;
    --bind-to=* | --cpu-set=* | --cpu-list=* | --bind-to-*) binding_said=yes ;;
    --rank-by | -rank-by) words=2 ;;
    --oversubscribe | -oversubscribe | --nooversubscribe) slots_said=yes ;;
    --host=* | --hostfile=* | --machinefile=* | --default-hostfile=*) several_hosts=yes ;;
    -wdir | --wdir | -wd | --wd | -path | --path | --prefix | --output-filename | --output | \
      --timeout | --tune | --stdin | --am | --personality | --display) words=2 ;;
    *)
      # Unknown here: the next word is its value, unless that is an option or can be started.
      if [ $# -ge 3 ] && [[ $2 != -* ]] && ! has_command "$2"; then words=2; fi
      ;;
  esac
  [ $# -ge "$words" ] || usage "mpirun's $1 needs a value"
}

while [ $# != 0 ]; do
  case $1 in
    -c) number -c "${2:-}" 1; c_value=$2; shift 2 ;;
    -c=* | -c[0-9]*) c_value=${1#-c}; c_value=${c_value#=}; number -c "$c_value" 1; shift ;;
    -np | -n | --np | --n) set_ranks "$1" "${2:-}"; shift 2 ;;
    -np=* | -n=* | --np=* | --n=*) set_ranks "${1%%=*}" "${1#*=}"; shift ;;
    -np[0-9]* | -n[0-9]*) set_ranks "${1%%[0-9]*}" "${1#"${1%%[0-9]*}"}"; shift ;;
    --gpus) gpus=${2:-}; shift $(($# > 1 ? 2 : 1)) ;;
    --max-restarts) number "$1" "${2:-}" 0; max_restarts=$2 is_kept=yes; shift 2 ;;
    --snapshot-every) seconds "$1" "${2:-}"; snapshot_every=$2; shift 2 ;;
    --spares) number "$1" "${2:-}" 1; spares=$2; shift 2 ;;
    --min-ranks) number "$1" "${2:-}" 1; min_ranks=$2; shift 2 ;;
    --requeue-exit) number "$1" "${2:-}" 1; requeue_exit=$2; shift 2 ;;
    --dry-run) dry_run=yes; shift ;;
    --mpi-program) mpi_program=yes; shift ;;
    --help | -h) help; exit 0 ;;
    --) shift; break ;;
    -*) pass_on "$@"; passed+=("${@:1:words}"); words_of+=("$words"); shift "$words" ;;
    *) break ;;
  esac
done
[ $# != 0 ] || usage "no program is named"
[[ $gpus =~ ^(auto|yes|no)$ ]] || usage "--gpus takes auto, yes or no, not '$gpus'"
case $1 in
  -*) usage "'$1' is no program" ;;
  *) has_command "$1" || usage "cannot start '$1': no such program, or not executable" ;;
esac

# Said once, and not by the loader of every rank.
require_libraries() {
  local file missing
  file=$(type -P -- "$1") || return 0
  missing=$({ LC_ALL=C ldd "$file" 2>/dev/null || true; } |
    awk '/=> not found/ {print $1}' | sort -u | xargs)
  [ -z "$missing" ] || fail "$1 needs $missing, not found on this host: install the package or" \
    "load the module that has it, or put its folder into LD_LIBRARY_PATH"
}
require_libraries "$1"
choose_launcher "$@"

# Open MPI's -c is a number of ranks; Slurm's is one of CPUs for each of them.
if [ -n "$c_value" ] && [ "$dialect" = openmpi ]; then
  ranks=$c_value
elif [ -n "$c_value" ]; then
  passed+=(-c "$c_value")
  words_of+=(2)
fi

# --- the command ---------------------------------------------------------------------------------

options=()
# What the launcher is told, in no launcher's words yet.
allow_root=no hostfile='' hosts='' per_node='' bind='' oversubscribe=no exports=() rest=()
choose_root
choose_hosts
choose_ranks
choose_placement
if [ -n "$snapshot_every" ]; then
  [ "$max_restarts" != 0 ] || usage "--snapshot-every needs --max-restarts: it is for new starts"
  name_snapshots
fi
choose_forwarding
program=("$@")
if [ "$max_restarts" != 0 ]; then
  choose_spares
elif [ -n "$spares$min_ranks" ]; then
  usage "--spares and --min-ranks need --max-restarts: they are for new starts"
fi
spell_options
choose_gpus
if [ "$mpi_program" = yes ]; then choose_preload; fi
reports=()  # what mpirun says of itself
if [ -n "$snapshot_every" ]; then choose_reports; fi
command=("$mpirun" "${reports[@]}" "${options[@]}" "${passed[@]}" "${program[@]}")

if [ "$dry_run" = yes ]; then
  quoted "${command[@]}"
  exit 0
fi
# Open MPI's launcher is watched. On one host, where nothing is started again, the launcher takes
# this process; the watch is its child, and ends with the pipe that the launcher holds.
is_watched=no
if [ "$dialect" = openmpi ]; then is_watched=yes; fi
if [ "$is_kept" = no ] && [ "$requeue_exit" = 75 ] &&
  { [ "$is_watched" = no ] || ! has_allocation; }; then
  end_if_told
  if [ "$is_watched" = yes ]; then
    exec {launcher_lives}> >(
      trap "" INT TERM USR1 USR2
      exec {launcher_lives}<&0 >/dev/null
      watch_launcher $$ "${TUTTI_GRACE:-30}"
    )
  fi
  exec "${command[@]}"
fi

# --- starting again ------------------------------------------------------------------------------

trap 'forward INT' INT
if [ -n "$snapshot_every" ]; then
  remove_left_snapshots
  make_snapshots
  trap remove_snapshots EXIT
fi

# Runs the command; its exit code is in `status`. `wait` also returns when a signal was forwarded.
run_once() {
  exec 3<&0
  if [ -n "$snapshot_every" ]; then
    rm -f -- "$TUTTI_SNAPSHOTS/errors"
    "${command[@]}" <&3 3<&- 2> >(keep_errors) &
  else
    "${command[@]}" <&3 3<&- &
  fi
  job=$!
  watch=''
  if [ "$is_watched" = yes ]; then
    watch_launcher "$job" "${TUTTI_GRACE:-30}" <&- &
    watch=$!
  fi
  if [ -n "$early" ]; then forward "$early" && early=''; fi  # in between
  wait "$job" || true
  while kill -0 "$job" 2>/dev/null; do wait "$job" || true; done  # a signal ended the wait
  status=0
  wait "$job" || status=$?  # known to the shell also after the process has gone
  job=''
  if [ -z "$watch" ]; then return; fi
  kill "$watch" 2>/dev/null || true
  local watched=0
  wait "$watch" || watched=$?
  if [ "$watched" = "$lost_host" ]; then status=$lost_host; fi
}

only_1=yes starts_for_1=0
if [ "$dialect" = openmpi ] && has_allocation; then starts_for_1=1; fi
for ((restart = 0;; ++restart)); do
  end_if_told
  run_once
  case $status in
    75)
      say "launch.sh: 75 says that the job has saved itself and can go on; it is no failure," \
        "whatever the launcher says of it."
      exit "$requeue_exit"
      ;;
    0) exit 0 ;;
    1)  # Open MPI's code, too, where a host is lost while ranks start; usage is wrong every time
      if [ "$only_1" = yes ] && [ "$restart" = "$starts_for_1" ]; then exit 1; fi
      ;;
    *) only_1=no ;;
  esac
  if [ "$stopped" = yes ]; then exit "$status"; fi
  if [ "$warned" = yes ]; then  # a new run would not know of it, and be ended without a save
    say "launch.sh: the job ended with $status after SIGUSR1, so it is not started again here."
    if [ "$status" = 138 ]; then exit "$requeue_exit"; fi  # it could not take the signal yet
    exit "$status"
  fi
  if [ "$max_restarts" = 0 ]; then exit "$status"; fi
  if [ -n "$snapshot_every" ] && ends_at_one_push; then exit "$status"; fi
  if [ -n "$snapshot_every" ] && [ "$status" = 3 ]; then  # replicas differ: save() compares them
    remove_snapshots
    make_snapshots
  fi
  if [ "$restart" -ge "$max_restarts" ]; then
    say "launch.sh: the job ended with $status; no restart is left of $max_restarts."
    exit "$status"
  fi
  say "launch.sh: the job ended with $status; restart $((restart + 1)) of $max_restarts."
  if ! leave_out_lost_hosts; then
    if [ -z "${SLURM_JOB_ID:-}${PBS_JOBID:-}" ]; then exit "$status"; fi
    say "launch.sh: it ends with $requeue_exit, so that the batch system gives it other hosts."
    exit "$requeue_exit"
  fi
  if [ -n "$hosts" ] && [ "$dialect" = openmpi ]; then
    options=()
    spell_options
    command=("$mpirun" "${reports[@]}" "${options[@]}" "${passed[@]}" "${program[@]}")
    if [ -n "$snapshot_every" ]; then write_removal; fi
  fi
done
