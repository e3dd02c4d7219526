#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several hosts on one machine: network namespaces, each with a hostname and a /dev/shm of its own,
# joined by a switch with links of a given speed. Runs a command on the first host, then takes all
# down.
#
#   scripts/mpirun/hosts.sh HOSTS [--rate 1gbit] [--slots RANKS] [--pin] [--] COMMAND [ARGUMENTS...]
#   scripts/mpirun/hosts.sh 2 --slots 2 -- mpirun -np 4 build/bin/kvstore-tour
#
#     host h0          host h1          host h2
#       eth0             eth0             eth0        198.18.N.1, .2, .3
#        |  --rate        |                |          shaped in both directions
#     ===+================+================+===       a bridge, in a namespace of its own
#
# mpirun in COMMAND finds the hosts without options: the environment names the list of hosts, the
# way to start processes there, and the network interface. With --pin each host has one of this
# machine's cores, in turn; else all hosts share all cores. Outside of the hosts, the /dev/shm of h1
# is /dev/shm/hosts-$HOSTS_PREFIX/h1. Needs root, and a kernel that lets this user make namespaces;
# where it does not, the exit code is 77, and the reason is printed.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage="usage: hosts.sh HOSTS [--rate 1gbit] [--slots RANKS] [--pin] [--] COMMAND [ARGUMENTS...]"
not_here=77

skip() {
  say "hosts.sh: cannot make hosts on this machine: $*"
  exit "$not_here"
}

memory_of() { echo "/dev/shm/hosts-$HOSTS_PREFIX/h$1"; }

# --- as the remote shell of mpirun: HOST COMMAND... ----------------------------------------------

# on_host NAME COMMAND...: replaces this shell. "ip netns exec" makes a mount namespace as well;
# on a host, its /dev/shm lies above the machine's.
on_host() {
  local name=$1 on_core=() enter
  shift
  if [ -n "${HOSTS_CORES:-}" ]; then
    local cores
    read -ra cores <<<"$HOSTS_CORES"
    on_core=(taskset --cpu-list "${cores[${name##*-h} % ${#cores[@]}]}")
  fi
  # shellcheck disable=SC2016
  enter='[ -d "$2" ] || umount /dev/shm; mount --bind "$2" /dev/shm; hostname "$1"; shift 2
    exec "$@"'
  exec "${on_core[@]}" ip netns exec "$name" unshare --uts sh -ec "$enter" \
    sh "h${name##*-h}" "$(memory_of "${name##*-h}")" "$@"
}

if [ "${1:-}" = --remote-shell ]; then
  index=$((${2##*.} - 1))
  if [ -z "$(ip -n "$HOSTS_PREFIX-switch" link show "port$index" up)" ]; then
    say "hosts.sh: no route to host $2"
    exit 255
  fi
  shift 2
  on_host "$HOSTS_PREFIX-h$index" sh -c "$*"
fi

# --- the arguments -------------------------------------------------------------------------------

hosts=${1:-}
[[ $hosts =~ ^[1-9][0-9]?$ ]] || fail "$usage"
shift
rate=1gbit
slots=1
pin=no
while [ $# != 0 ]; do
  case $1 in
    --rate) rate=${2:?"$usage"}; shift 2 ;;
    --slots) slots=${2:?"$usage"}; shift 2 ;;
    --pin) pin=yes; shift ;;
    --) shift; break ;;
    *) break ;;
  esac
done
[ $# != 0 ] || fail "$usage"

[ "$(id -u)" = 0 ] || skip "network namespaces need root"
if ! has_command ip || ! has_command tc; then
  skip "ip and tc are missing: apt-get install iproute2"
fi

# --- the hosts -----------------------------------------------------------------------------------

# The cores that this process may use, one by one.
usable_cores() {
  local part
  for part in $(taskset --cpu-list --pid $$ | sed 's/.*: //; s/,/ /g'); do
    seq "${part%-*}" "${part#*-}"
  done | tr '\n' ' '
}

HOSTS_CORES=
if [ "$pin" = yes ]; then HOSTS_CORES=$(usable_cores); fi
export HOSTS_CORES
HOSTS_PREFIX=tutti-$$
export HOSTS_PREFIX
subnet=198.18.$(($$ % 250 + 1))  # a range that is set aside for benchmarks (RFC 2544)
switch=$HOSTS_PREFIX-switch
folder=$(mktemp -d)
hostfile=$folder/hosts

take_down() {
  local name pids
  for name in $(ip netns list 2>/dev/null | awk -v prefix="$HOSTS_PREFIX-" \
    'index($1, prefix) == 1 { print $1 }'); do
    pids=$(ip netns pids "$name" 2>/dev/null) || true
    # shellcheck disable=SC2086
    [ -z "$pids" ] || kill -KILL $pids 2>/dev/null || true
    ip netns del "$name" 2>/dev/null || true
  done
  rm -rf -- "$folder" "/dev/shm/hosts-$HOSTS_PREFIX"
}
trap take_down EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

make_switch() {
  ip netns add "$switch" &&
    ip -n "$switch" link add bridge0 type bridge &&
    ip -n "$switch" link set bridge0 up
}

# What a link lets through at once, in KiB: what it carries in 100 us, and at least 32. Where less
# than a segment of TCP's (64 KiB) goes through at once, the kernel cuts segments up, which takes
# longer than a link of 10 Gb/s does.
burst_of() {
  local -A kbit=([kbit]=1 [mbit]=1000 [gbit]=1000000)
  [[ $1 =~ ^([0-9]+)(kbit|mbit|gbit)$ ]] ||
    fail "hosts.sh: --rate $1: expected a whole number of kbit, mbit or gbit, such as 10gbit"
  local kib=$((BASH_REMATCH[1] * ${kbit[${BASH_REMATCH[2]}]} / 80 / 1024))
  echo "$((kib > 32 ? kib : 32))kb"
}

burst=$(burst_of "$rate") || exit

# Every queue of a host's link is shaped on the host's side for what it sends, and on the switch's
# side for what it receives.
make_host() {
  local index=$1 name=$HOSTS_PREFIX-h$1
  mkdir -p -- "$(memory_of "$index")" &&
    ip netns add "$name" &&
    ip -n "$name" link add eth0 type veth peer name "port$index" netns "$switch" &&
    ip -n "$switch" link set "port$index" master bridge0 up &&
    ip -n "$name" address add "$subnet.$((index + 1))/24" dev eth0 &&
    ip -n "$name" link set lo up &&
    ip -n "$name" link set eth0 up &&
    ip netns exec "$name" tc qdisc add dev eth0 root tbf rate "$rate" burst "$burst" \
      latency 50ms &&
    ip netns exec "$switch" tc qdisc add dev "port$index" root tbf rate "$rate" burst "$burst" \
      latency 50ms || return 1
  ip netns exec "$name" sysctl -qw net.ipv4.tcp_congestion_control=reno 2>/dev/null || true
  printf '%s slots=%s\n' "$subnet.$((index + 1))" "$slots" >>"$hostfile"
}

reason=$(make_switch 2>&1) || skip "${reason:-no network namespaces}"
for ((index = 0; index < hosts; ++index)); do
  reason=$(make_host "$index" 2>&1) || skip "${reason:-no shaped links}"
done

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_plm_rsh_agent="$root/scripts/mpirun/hosts.sh --remote-shell"
export OMPI_MCA_orte_default_hostfile=$hostfile
# Jobs at the same time have hosts of the same names, so the first to end would remove the folder
# that the others' launchers are about to write in.
export OMPI_MCA_orte_tmpdir_base=$folder
# The hosts share the machine's cores: mpirun would bind the first rank of every host to core 0.
export OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0
(on_host "$HOSTS_PREFIX-h0" "$@")
