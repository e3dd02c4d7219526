# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The memory that keeps snapshots between the starts of a job. To be sourced by launch.sh, whose
# variables it reads.
# shellcheck disable=SC2154
#
#   /dev/shm/tutti-RANDOM/       on each host, of this user alone; TUTTI_SNAPSHOTS names it
#     HOST.0/DIRECTORY/          what a node has: runtime/checkpoint/snapshots.hpp
#     lock                       on this host: locked while launch.sh or its mpirun lives
#     remove                     on this host: the command that removes the folder everywhere
#     errors                     on this host: what the last start wrote to standard error at last

name_snapshots() {
  TUTTI_SNAPSHOTS=/dev/shm/tutti-$(od -An -N16 -tx8 /dev/urandom | tr -d ' \n')
  TUTTI_SNAPSHOT_EVERY=$snapshot_every
  export TUTTI_SNAPSHOTS TUTTI_SNAPSHOT_EVERY
}

# Removes the folders of a launch.sh that was killed: nobody holds their lock. Stores make folders
# with such names, too, and remove them in the same way.
remove_left_snapshots() {
  local lock left
  for lock in /dev/shm/tutti-*/lock; do
    [ -O "$lock" ] || continue
    left=${lock%/lock}
    if flock -n "$lock" true 2>/dev/null; then
      if [ -O "$left/remove" ]; then
        timeout 30 bash "$left/remove" </dev/null >/dev/null 2>&1 || true
      fi
      rm -rf -- "$left"
    fi
  done
}

# The lock has its name once it is held, so that nobody takes it meanwhile.
make_snapshots() {
  (umask 077 && mkdir -- "$TUTTI_SNAPSHOTS") || fail "cannot make $TUTTI_SNAPSHOTS"
  exec 7>"$TUTTI_SNAPSHOTS/unlocked"
  flock 7
  write_removal
  mv -- "$TUTTI_SNAPSHOTS/unlocked" "$TUTTI_SNAPSHOTS/lock"
}

write_removal() {
  if has_allocation; then
    quoted "$mpirun" "${options[@]}" "${passed[@]}" rm -rf -- "$TUTTI_SNAPSHOTS" \
      >"$TUTTI_SNAPSHOTS/remove"
  fi
}

# keep_errors() may give its file a name while the folder is emptied.
remove_snapshots() {
  local command=$TUTTI_SNAPSHOTS/remove pause
  if [ -e "$command" ]; then timeout 30 bash "$command" </dev/null >/dev/null 2>&1 || true; fi
  exec {pause}<> <(:)  # a read that nothing answers
  for _ in {1..20}; do
    if rm -rf -- "$TUTTI_SNAPSHOTS" 2>/dev/null; then return 0; fi
    read -r -t 0.05 -u "$pause" _ || true
  done
  say "launch.sh: $TUTTI_SNAPSHOTS is left, which the next start removes."
}

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
