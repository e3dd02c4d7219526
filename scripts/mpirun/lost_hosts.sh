# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Which hosts a job is started again on. To be sourced by launch.sh, whose variables it reads and
# sets. After a failure every host of the job's list is asked, in the way that Open MPI starts
# processes there, and those that do not answer are left out.
# shellcheck disable=SC2034,SC2154

all_hosts=()   # NAME:SLOTS, in the order of the list; empty where it is not known
lost_hosts=()  # names of those that did not answer at last
used_hosts=()  # NAME:SLOTS, those of this start

# --- the list ------------------------------------------------------------------------------------

# slots_in FILE [one]: NAME:SLOTS for each host of the file. A name that stands there several times,
# or with `one` once, is a slot each time; else Open MPI takes the host's cores, and this fails.
slots_in() {
  awk -v one="${2:-}" '
    { sub(/#.*/, "") }
    NF {
      if (!($1 in lines)) order[++count] = $1
      ++lines[$1]
      for (i = 2; i <= NF; ++i)
        if ($i ~ /^slots=[0-9]+$/) { slots[$1] += substr($i, 7); is_said[$1] = 1 }
    }
    END {
      for (i = 1; i <= count; ++i) {
        name = order[i]
        if (!is_said[name] && lines[name] == 1 && one == "") exit 1
        print name ":" (is_said[name] ? slots[name] : lines[name])
      }
    }' "$1" 2>/dev/null
}

# slots_of_words A:4,B: the same for --host; a name alone is a slot.
slots_of_words() {
  local entry entries
  IFS=, read -ra entries <<<"$1"
  for entry in "${entries[@]}"; do
    [[ $entry == *:* ]] || entry+=:1
    echo "${entry%%:*} slots=${entry#*:}"
  done | slots_in /dev/stdin
}

# slots_of_slurm NODES "8(x2),4": the same for Slurm's names, and its tasks on each node.
slots_of_slurm() {
  paste -d: <(scontrol show hostnames "$1" 2>/dev/null) <(tr ',' '\n' <<<"$2" |
    awk -F'[(x)]+' '{ for (i = 0; i < (NF > 1 ? $2 : 1); ++i) print $1 }')
}

# read_hosts: fills `all_hosts` from the options, or else from the batch system or the environment,
# and `kept` with the options that are not about hosts. Fails where slots are not known.
read_hosts() {
  local first=0 count word value list=''
  kept=()
  for count in "${words_of[@]}"; do
    word=${passed[first]} value=${passed[first + count - 1]#--*=}
    case $word in
      -H | -host | --host | --host=*) list+=$(slots_of_words "$value")$'\n' || return 1 ;;
      -hostfile* | --hostfile* | -machinefile* | --machinefile* | --default-hostfile*)
        list+=$(slots_in "$value")$'\n' || return 1
        ;;
      *) kept+=("${passed[@]:first:count}") ;;
    esac
    first=$((first + count))
  done
  if [ -n "$list" ]; then
    :
  elif [ -n "$hostfile" ]; then  # PBS's
    list=$(slots_in "$hostfile" one) || return 1
  elif [ -n "${SLURM_JOB_NODELIST:-}" ]; then
    list=$(slots_of_slurm "$SLURM_JOB_NODELIST" "${SLURM_TASKS_PER_NODE:-}")
  elif [ -n "${OMPI_MCA_orte_default_hostfile:-}" ]; then
    list=$(slots_in "$OMPI_MCA_orte_default_hostfile") || return 1
  fi
  mapfile -t all_hosts < <(grep . <<<"$list")
  [ ${#all_hosts[@]} != 0 ] || return 1
  ! printf '%s\n' "${all_hosts[@]}" | grep -qvx '[^:].*:[0-9]\+'
}

sum_of_slots() {
  local host sum=0
  for host in "$@"; do sum=$((sum + ${host##*:})); done
  echo "$sum"
}

# pick_hosts RANKS LEAST NAME:SLOTS...: prints how many ranks can start, and on which hosts: the
# first ones that have slots for RANKS, or all of them. Fails if there are fewer ranks than LEAST.
pick_hosts() {
  local wanted=$1 least=$2 slots=0 host picked=()
  shift 2
  for host in "$@"; do
    [ "$slots" -lt "$wanted" ] || break
    picked+=("$host")
    slots=$((slots + ${host##*:}))
  done
  echo "$((slots < wanted ? slots : wanted))" "${picked[@]}"
  [ "$slots" -ge "$least" ]
}

# use_hosts NAME:SLOTS...: the next start is on these.
use_hosts() {
  used_hosts=("$@")
  hosts=$(IFS=, && echo "$*")
  hostfile='' several_hosts=yes passed=("${kept[@]}")
  unset OMPI_MCA_orte_default_hostfile
}

# choose_spares: the list of hosts, and those of the first start.
choose_spares() {
  local option=${spares:+--spares} first slots
  job_mark=LAUNCH_JOB=$(od -An -N8 -tx8 /dev/urandom | tr -d ' \n')
  exports+=("$job_mark")
  if [ "$dialect" != openmpi ] || [ "$counted" = yes ] || ! has_allocation || ! read_hosts; then
    all_hosts=()
    [ -z "$spares$min_ranks" ] || usage "${option:---min-ranks} needs Open MPI's launcher, and" \
      "hosts with their slots: a batch job's, --host a:4,b:4, or a --hostfile with lines as" \
      "\"name slots=4\", without ranks per node"
    return 0
  fi
  used_hosts=("${all_hosts[@]}")
  first=$((${#all_hosts[@]} - ${spares:-0}))
  [ "$first" -gt 0 ] || usage "--spares $spares leaves none of ${#all_hosts[@]} hosts to start on"
  slots=$(sum_of_slots "${all_hosts[@]:0:first}")
  wanted_ranks=${ranks:-$slots}
  [ "${min_ranks:-0}" -le "$wanted_ranks" ] ||
    usage "--min-ranks $min_ranks is more than the $wanted_ranks ranks of the job"
  [ -n "$spares" ] || return 0
  [ "$wanted_ranks" -le "$slots" ] ||
    usage "--spares $spares leaves slots for $slots ranks, not for $wanted_ranks"
  ranks=$wanted_ranks
  use_hosts "${all_hosts[@]:0:first}"
}

# --- asking --------------------------------------------------------------------------------------

connect_s=5                       # a host that has not taken a connection by then is lost,
answer_s=${LAUNCH_ANSWER_S:-10}  # and so is one that has not answered by then

is_this_host() {
  local name names
  read -ra names <<<"localhost $(uname -n) $(hostname -I 2>/dev/null)"
  for name in "${names[@]}"; do
    if [ "$1" = "$name" ] || [ "${1%%.*}" = "$name" ]; then return 0; fi
  done
  return 1
}

# is_on_first_host: it can be asked which hosts are there, and this is the first of them.
is_on_first_host() { can_ask_hosts && is_this_host "${all_hosts[0]%:*}"; }

# ask HOST COMMAND: has bash run it there; fails unless the host says in time that it has. The
# command is one line without single quotes.
ask() {
  local command="$2; echo answer-\$((40 + 2))" way
  way=${OMPI_MCA_plm_rsh_agent:-${PRTE_MCA_plm_ssh_agent:-ssh}}
  read -ra way <<<"${way%% : *}"
  if is_this_host "$1"; then
    way=(bash -c "$command")
  elif [ -n "${SLURM_JOB_ID:-}" ]; then
    way=(srun --overlap --nodes=1 --ntasks=1 --mpi=none --nodelist="$1" bash -c "$command")
  elif [ "${way[0]##*/}" = ssh ]; then
    way+=(-o BatchMode=yes -o ConnectTimeout="$connect_s" "$1" bash -c "'$command'")
  else
    way+=("$1" bash -c "'$command'")
  fi
  [[ $(timeout -k 1 "$answer_s" "${way[@]}" </dev/null 2>/dev/null) == *answer-42* ]]
}

# ask_hosts COMMAND NAME...: prints the names of those that answer. All are asked at once.
ask_hosts() {
  local command=$1 name
  shift
  for name in "$@"; do
    (if ask "$name" "$command"; then echo "$name"; fi) &
  done
  wait
}

can_ask_hosts() { [ ${#all_hosts[@]} != 0 ]; }

all_hosts_answer() { all_answer : "${used_hosts[@]}"; }

# ranks_here: prints a command that finds the processes of a job on a host: they have its mark.
ranks_here() { echo "files=\$(grep -slzxF $job_mark /proc/[0-9]*/environ)"; }

# all_answer COMMAND NAME:SLOTS...: it says on all these hosts that it has come to its end.
all_answer() {
  local command=$1
  shift
  [ "$(ask_hosts "$command" "${@%:*}" | wc -l)" = $# ]
}

# What these two say is about the hosts of this start: others may be lost.
# no_rank_is_there: all hosts answer, and none has a rank, stopped or not.
no_rank_is_there() {
  all_answer "$(ranks_here); if [ -n \"\$files\" ]; then exit; fi" "${used_hosts[@]}"
}

# only_stopped_ranks_are_left: all hosts answer, a rank is left, and each that is left is stopped.
only_stopped_ranks_are_left() {
  local is_running has_ranks
  is_running="$(ranks_here); for file in \$files; do
    read -r line 2>/dev/null <\${file%environ}stat || continue; set -- \${line##*) };
    if [ \$1 != T ]; then exit; fi; done"
  has_ranks="$(ranks_here); if [ -z \"\$files\" ]; then exit; fi"
  all_answer "${is_running//$'\n'/ }" "${used_hosts[@]}" &&
    [ "$(ask_hosts "$has_ranks" "${used_hosts[@]%:*}" | wc -l)" != 0 ]
}

# end_leftovers: prints a command that ends what a start has left running on a host, by process
# group. A rank that was stopped would else go on beside the next start.
end_leftovers() {
  tr '\n' ' ' <<END
for turn in 1 2 3 4 5 6 7 8 9 10; do
  $(ranks_here);
  [ -n "\$files" ] || break;
  for file in \$files; do
    read -r line 2>/dev/null <\${file%environ}stat || continue;
    set -- \${line##*) };
    if [ "\${3:-0}" -gt 1 ]; then kill -KILL -- -\$3 2>/dev/null; fi;
  done;
  sleep 0.1;
done
END
  if [ -n "$snapshot_every" ]; then echo "; rm -f -- $(segments_of "$TUTTI_SNAPSHOTS")"; fi
}

# sort_hosts COMMAND: has the hosts run it, and fills `answering` and `lost`.
sort_hosts() {
  local host answers
  answers=" $(ask_hosts "$1" "${all_hosts[@]%:*}" | tr '\n' ' ')"
  answering=() lost=()
  for host in "${all_hosts[@]}"; do
    if [[ $answers == *" ${host%:*} "* ]]; then answering+=("$host"); else lost+=("${host%:*}"); fi
  done
}

# has_enough_hosts: prints what pick_hosts picks of `answering`; fails if it is too little.
has_enough_hosts() {
  pick_hosts "$wanted_ranks" "${min_ranks:-$wanted_ranks}" "${answering[@]}"
}

# leave_out_lost_hosts: before another start, ends what the last one has left, leaves out hosts that
# do not answer, and takes spares, or fewer ranks. Fails, with a sentence, if they are too few, also
# when they are asked once more: what answers there may have been killed.
leave_out_lost_hosts() {
  local command answering=() lost=() picked
  command=$(end_leftovers)
  if ! can_ask_hosts; then
    ask localhost "$command" || true
    return 0
  fi
  sort_hosts "$command"
  if { [ -n "$spares$min_ranks" ] || [ ${#answering[@]} -gt 1 ]; } && ! has_enough_hosts >/dev/null
  then
    sort_hosts "$command"
  fi
  if [ -n "$early" ]; then return 0; fi  # a signal to end may have ended the questions
  if [ ${#lost[@]} = 0 ] && [ ${#lost_hosts[@]} = 0 ]; then return 0; fi
  if [ -z "$spares$min_ranks" ] && [ ${#answering[@]} -le 1 ]; then
    say "launch.sh: no other host lets this one ask whether it is there, so none is left out."
    return 0
  fi
  forget_snapshots "${lost_hosts[@]}"  # what a host has that is back is of before it was lost
  lost_hosts=("${lost[@]}")
  if ! picked=$(has_enough_hosts); then
    say "launch.sh: ${lost[*]} did not answer, and the other hosts have slots for" \
      "${picked%% *} of $wanted_ranks ranks, so the job is not started again: --spares K keeps" \
      "hosts free, --min-ranks M allows fewer ranks."
    return 1
  fi
  read -r ranks picked <<<"$picked"
  read -ra answering <<<"$picked"
  use_hosts "${answering[@]}"
  say "launch.sh: ${lost[*]:-no host} did not answer: $ranks of $wanted_ranks ranks start on" \
    "$hosts."
}

# forget_snapshots NAME...: removes the job's snapshots from these hosts' memory, if they answer.
forget_snapshots() {
  if [ -n "$snapshot_every" ] && [ $# != 0 ]; then
    ask_hosts "rm -rf -- $TUTTI_SNAPSHOTS" "$@" >/dev/null
  fi
}
