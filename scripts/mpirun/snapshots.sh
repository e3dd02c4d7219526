# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The memory that keeps snapshots between the starts of a job. To be sourced by launch.sh, whose
# variables it reads.
# shellcheck disable=SC2034,SC2154
#
#   /dev/shm/tutti-RANDOM/       on each host, of this user alone; TUTTI_SNAPSHOTS names it. On this
#                                host RANDOM.new while it is made, RANDOM.old while it is removed
#     HOST.0/DIRECTORY/          what a node has: runtime/checkpoint/snapshots.hpp
#     lock                       on this host: locked while launch.sh or its mpirun lives
#     remove                     on this host: the command that removes the folder everywhere
#     errors                     on this host: what the last start wrote to standard error at last
#     uri                        on this host: the name of Open MPI's job, and where mpirun listens

name_snapshots() {
  TUTTI_SNAPSHOTS=/dev/shm/tutti-$(od -An -N16 -tx8 /dev/urandom | tr -d ' \n')
  TUTTI_SNAPSHOT_EVERY=$snapshot_every
  export TUTTI_SNAPSHOTS TUTTI_SNAPSHOT_EVERY
  # Open MPI would leave the other ranks a second, twice, before it kills them.
  export OMPI_MCA_odls_base_sigkill_timeout=${OMPI_MCA_odls_base_sigkill_timeout:-0}
  export PRTE_MCA_odls_base_sigkill_timeout=${PRTE_MCA_odls_base_sigkill_timeout:-0}
}

# choose_reports: has Open MPI's mpirun write `uri`.
choose_reports() {
  if [[ $dialect == openmpi && $version -le 4 && " ${passed[*]}" != *-report-uri* ]]; then
    reports=(--report-uri "$TUTTI_SNAPSHOTS/uri")
  fi
}

# segments_of FOLDER: the pattern of the files in /dev/shm that the ranks of the last start have
# made for Open MPI. Its mpirun removes them, unless it is killed.
segments_of() {
  local job
  job=$(head -c 99 -- "$1/uri" 2>/dev/null) || true
  if [[ ${job%%.*} =~ ^[0-9]+$ ]]; then
    printf '/dev/shm/vader_segment.*.%d.%x.*' "$EUID" $((${job%%.*} + 1))
  fi
}

# take_away FOLDER: removes a folder on all hosts. It has another name first, by which the next
# start knows what is left if this one is killed meanwhile.
take_away() {
  local old=${1%.old}.old
  # shellcheck disable=SC2046
  rm -f -- $(segments_of "$1")
  if [ "$1" != "$old" ]; then mv -T -- "$1" "$old" 2>/dev/null || return 0; fi
  if [ -O "$old/remove" ]; then
    timeout 30 bash "$old/remove" </dev/null >/dev/null 2>&1 || true
  fi
  rm -rf -- "$old" || say "launch.sh: $old is left, which the next start removes."
}

is_unlocked() { [ -e "$1" ] && flock -n "$1" true 2>/dev/null; }

# Removes the folders of a launch.sh that was killed: nobody holds their lock, or they have none yet
# or no more. Stores make folders with such names, too, and remove them in the same way.
remove_left_snapshots() {
  local left
  for left in /dev/shm/tutti-*; do
    if [ ! -O "$left" ]; then continue; fi
    case $left in
      *.old) ;;
      *.new) [ ! -e "$left/lock" ] || is_unlocked "$left/lock" || continue ;;
      *) is_unlocked "$left/lock" || continue ;;
    esac
    take_away "$left"
  done
}

# The folder has its name once its lock is held. A start of another job may take it away before.
make_snapshots() {
  local new=$TUTTI_SNAPSHOTS.new reason=''
  for _ in {1..20}; do
    rm -rf -- "$new"
    reason=$( (umask 077 && mkdir -- "$new") 2>&1) || continue
    if { exec 7>"$new/lock"; } 2>/dev/null && flock 7 &&
      mv -T -- "$new" "$TUTTI_SNAPSHOTS" 2>/dev/null; then
      write_removal
      return
    fi
  done
  fail "cannot make $TUTTI_SNAPSHOTS: $reason"
}

# Asks each host of the list, also those that only an earlier start was on. One that is lost would
# keep the launcher from reaching the others, which is for hosts that cannot be asked.
write_removal() {
  local command="rm -rf -- $TUTTI_SNAPSHOTS"
  has_allocation || return 0
  {
    if can_ask_hosts; then
      quoted source "$folder/lost_hosts.sh"
      echo "all_hosts=($(quoted "${all_hosts[@]}"))"
      echo "all_answer $(quoted "$command") \"\${all_hosts[@]}\" ||"
    fi
    # shellcheck disable=SC2086
    quoted "$mpirun" "${options[@]}" "${passed[@]}" $command
  } >"$TUTTI_SNAPSHOTS/remove"
}

remove_snapshots() { take_away "$TUTTI_SNAPSHOTS"; }

# Passes standard error on, and keeps its end.
keep_errors() {
  local file=$TUTTI_SNAPSHOTS/errors
  trap '' INT TERM USR1 USR2
  tee >(tail -n 5 >"$file.new" && mv -- "$file.new" "$file" 2>/dev/null) >&2 || true
}

# Prints the last lines that the job wrote to standard error; they are there a moment after its end.
last_errors() {
  local file=$TUTTI_SNAPSHOTS/errors pause
  exec {pause}<> <(:)  # a read that nothing answers
  for _ in {1..20}; do
    if [ -e "$file" ]; then break; fi
    read -r -t 0.05 -u "$pause" _ || true
  done
  cat "$file" 2>/dev/null || true
}

# The last push that a node of this host has begun; empty if none has.
last_push() {
  local file number last=''
  for file in "$TUTTI_SNAPSHOTS"/*/*/progress; do
    [ -e "$file" ] || continue
    number=$(od -An -N8 -tu8 "$file" | tr -d ' ')
    if [ -z "$last" ] || [ "$number" -gt "$last" ]; then last=$number; fi
  done
  printf '%s\n' "$last"
}

# A job that ends three times at one push ends there again.
push_before='' times_there=0 texts=''
ends_at_one_push() {
  local push
  push=$(last_push)
  if [ -z "$push" ] || [ "$push" = 0 ]; then return 1; fi
  if [ "$push" != "$push_before" ]; then times_there=0 texts=''; fi
  push_before=$push
  times_there=$((times_there + 1))
  texts+="--- end $times_there, with $status:"$'\n'"$(last_errors)"$'\n'
  [ "$times_there" -ge 3 ] || return 1
  say "launch.sh: the job ended three times at push $push, so it is not started again. It said:"
  say "$texts"
}
