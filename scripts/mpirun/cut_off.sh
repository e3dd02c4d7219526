# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Ends a launcher that waits for hosts which cannot be reached any more. To be sourced by launch.sh.
# Open MPI's mpirun learns only from TCP that a host is cut off, after 8 to 15 minutes; its ranks
# have long ended by their deadline then, and the allocation is held for nothing.

lost_host=205  # as mpirun ends where it sees by itself that a host is lost

children_of() { cat "/proc/$1/task/"*/children 2>/dev/null || true; }

# has_ranks LAUNCHER: a rank that it has started on this host runs. Its other children are the ways
# to other hosts.
has_ranks() {
  local child
  for child in $(children_of "$1"); do
    if tr '\0' '\n' 2>/dev/null <"/proc/$child/environ" |
      grep -q '^\(OMPI_COMM_WORLD_RANK\|PMIX_RANK\)='; then
      return 0
    fi
  done
  return 1
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
  # shellcheck disable=SC2046
  kill -KILL "$launcher" $(children_of "$launcher") 2>/dev/null || true
  exit "$lost_host"
}

# end_if_cut_off LAUNCHER GRACE: waits until all ranks of this host have ended, and ends the
# launcher if one and the same connection has had no answer for GRACE seconds since: then it ends
# with lost_host, and else with 0. Where hosts can be asked, 2 s and a host that does not answer the
# question either are enough; and so are ranks of other hosts that are all stopped after GRACE.
# Where the first host is this one, a launcher is ended as well if no rank has been seen here, and
# none is on any host, 10 times GRACE after its start: Open MPI's waits for ever where what starts
# its ranks on another host was killed at the wrong moment. On a host without ranks it may be
# passing on the output of ranks that have ended.
end_if_cut_off() {
  local launcher=$1 grace first longest start=$SECONDS begun=no waits='' now since=$SECONDS ended=''
  local pause
  grace=$(awk -v s="$2" 'BEGIN { s = int(s + .999); print s < 1 ? 1 : s }')  # may be .5, or 1e3
  first=$grace longest=$((10 * grace))
  if can_ask_hosts && [ "$grace" -gt 2 ]; then first=2; fi
  exec {pause}<> <(:)  # a read that nothing answers: unlike `sleep`, no process is left
  while kill -0 "$launcher" 2>/dev/null; do
    read -r -t 1 -u "$pause" _ || true
    if has_ranks "$launcher"; then
      begun=yes waits='' ended=''
      continue
    fi
    if [ "$begun" = no ]; then
      if [ $((SECONDS - start)) -ge "$longest" ]; then
        if is_on_first_host && no_rank_is_there; then
          end_launcher "$launcher" "no rank has started on any host for $longest s"
        fi
        start=$SECONDS
      fi
      continue
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
        end_launcher "$launcher" "all ranks of this host have ended, and another host has not" \
          "answered it for $((SECONDS - since)) s"
      fi
    fi
    if can_ask_hosts && [ $((SECONDS - ended)) -ge "$grace" ]; then
      if only_stopped_ranks_are_left; then
        end_launcher "$launcher" "all ranks of this host have ended, and those of other hosts" \
          "have been stopped for $grace s"
      fi
      ended=$SECONDS
    fi
  done
  exit 0
}
