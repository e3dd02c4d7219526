# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Ends Open MPI's launcher where it waits for what will not come. To be sourced by launch.sh.
# - A host is cut off: mpirun learns that only from TCP, after 8 to 15 minutes; its ranks have long
#   ended by their deadline then, and the allocation is held for nothing.
# - What starts the ranks of another host was killed at the wrong moment.
# - A rank was killed while it connected to mpirun: PMIx 4.2.2 then waits for its own lock in
#   PMIx_server_finalize(). One of about 40 ranks killed in the first half second showed it.

lost_host=205  # as mpirun ends where it sees by itself that a host is lost

# children_of LAUNCHER: sets `children`. This and has_ranks start no process: they run each second
# beside programs that measure.
children_of() {
  local file pids
  children=()
  for file in "/proc/$1/task/"*/children; do
    { read -ra pids <"$file"; } 2>/dev/null || true  # there is no newline at its end
    children+=("${pids[@]}") pids=()
  done
}

# has_ranks LAUNCHER: a rank that it has started on this host runs. Its other children are the ways
# to other hosts. One that has ended has no variables.
has_ranks() {
  local child variables variable
  children_of "$1"
  for child in "${children[@]}"; do
    { mapfile -d '' -t variables <"/proc/$child/environ"; } 2>/dev/null || continue
    for variable in "${variables[@]}"; do
      case $variable in OMPI_COMM_WORLD_RANK=* | PMIX_RANK=*) return 0 ;; esac
    done
  done
  return 1
}

# waits_for_lock LAUNCHER: its main thread, which else waits for messages, output and the ends of
# processes. Not known where the system does not say it.
waits_for_lock() {
  local where=''
  { read -r where <"/proc/$1/wchan"; } 2>/dev/null || true
  [[ $where == *futex* ]]
}

# unanswered LAUNCHER: the connections of its that wait for an answer of the other host: bytes that
# it has not acknowledged, or questions whether it is still there.
unanswered() {
  local sockets
  sockets=$(for file in "/proc/$1/fd/"*; do readlink "$file" || true; done 2>/dev/null |
    sed -n 's/^socket:\[\(.*\)\]$/\1/p' | tr '\n' ' ')
  # Columns: local and remote address, state (01: established), queues, timer, repetitions, user,
  # probes, inode. A connection to this host itself always answers.
  awk -v sockets=" $sockets" '
    index(sockets, " " $10 " ") && $3 !~ /^0100007F|:0000$/ {
      split($5, queues, ":")
      if (queues[1] != "00000000" || $9 > 0) print $10
    }' "/proc/$1/net/tcp" "/proc/$1/net/tcp6" 2>/dev/null || true
}

# end_launcher LAUNCHER WHY...: ends this watch, too.
end_launcher() {
  local launcher=$1
  shift
  say "launch.sh: $*: the launcher is ended, too."
  trap '' TERM  # launch.sh ends this watch as soon as the launcher has ended
  # After SIGTERM it would ask the lost host first; Open MPI 4.1.4 was seen to crash then.
  children_of "$launcher"
  kill -KILL "$launcher" "${children[@]}" 2>/dev/null || true
  exit "$lost_host"
}

# watch_launcher LAUNCHER GRACE: exits with 0 when the launcher has ended, or ends it and then this
# process with lost_host. `launcher_lives`, if it is set, is a pipe that only the launcher holds
# open. Nothing is done while a rank runs on this host. Afterwards the launcher is ended
# - if it has waited for a lock for GRACE seconds,
# - if one and the same connection has had no answer for GRACE seconds since the ranks here have
#   ended; where hosts can be asked, 2 s and a host that does not answer the question either are
#   enough; also before a rank has been seen, where the first host is this one,
# - if ranks of other hosts are left and all of them are stopped, after GRACE seconds,
# - where the first host is this one, if no rank has been seen here, and none is on any host of this
#   start, 10 times GRACE after its beginning. On a host without ranks it may be passing on the
#   output of ranks that have ended.
watch_launcher() {
  local launcher=$1 grace first longest start=$SECONDS begun=no waits='' now since=$SECONDS ended=''
  local pause locked='' ended_read
  grace=$(awk -v s="$2" 'BEGIN { s = int(s + .999); print s < 1 ? 1 : s }')  # may be .5, or 1e3
  first=$grace longest=$((10 * grace))
  if can_ask_hosts && [ "$grace" -gt 2 ]; then first=2; fi
  # A read that nothing answers: unlike `sleep`, no process is left.
  if [ -n "${launcher_lives:-}" ]; then pause=$launcher_lives; else exec {pause}<> <(:); fi
  while kill -0 "$launcher" 2>/dev/null; do
    ended_read=0
    read -r -t 1 -u "$pause" _ || ended_read=$?
    if [ "$ended_read" = 1 ]; then break; fi  # the pipe's end; when the time is up it is above 128
    if has_ranks "$launcher"; then
      begun=yes waits='' ended='' locked=''
      continue
    fi
    if ! waits_for_lock "$launcher"; then
      locked=''
    elif [ $((SECONDS - ${locked:=$SECONDS})) -ge "$grace" ]; then
      end_launcher "$launcher" "no rank is left on this host, and the launcher has waited for a" \
        "lock of its own for $((SECONDS - locked)) s"
    fi
    if [ "$begun" = no ]; then
      if [ $((SECONDS - start)) -ge "$longest" ]; then
        if is_on_first_host && no_rank_is_there; then
          end_launcher "$launcher" "no rank has started on any host for $longest s"
        fi
        start=$SECONDS
      fi
      is_on_first_host || continue
    fi
    ended=${ended:-$SECONDS}
    now=$(unanswered "$launcher")
    if [ -z "$waits" ]; then
      waits=$now since=$SECONDS
    else
      waits=$(comm -12 <(sort <<<"$waits") <(sort <<<"$now"))
    fi
    if [ -n "$waits" ] && [ $((SECONDS - since)) -ge "$first" ]; then
      if [ "$first" != "$grace" ] && all_hosts_answer; then first=$grace; fi
      if [ $((SECONDS - since)) -ge "$first" ]; then
        end_launcher "$launcher" "no rank is left on this host, and another host has not" \
          "answered it for $((SECONDS - since)) s"
      fi
    fi
    if can_ask_hosts && [ $((SECONDS - ended)) -ge "$grace" ]; then
      if only_stopped_ranks_are_left; then
        end_launcher "$launcher" "no rank is left on this host, and those of other hosts" \
          "have been stopped for $grace s"
      fi
      ended=$SECONDS
    fi
  done
  exit 0
}
