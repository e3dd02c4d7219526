#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How well collective-simulator predicts hosts: measures the numbers of a network between hosts of
# hosts.sh, then collectives among them, and prints beside each what the simulator makes of it.
#
#   scripts/mpirun/calibrate.sh [--hosts 2,3,4,8] [--rate 100mbit] [--folder DIR] [--fresh]
#
# DIR (build/calibration-RATE) then has network.json, a file for collective-simulator --network,
# with the machine and the date; a --json of collective-benchmark for each case; and
# prediction.json. What is there already is not measured again, unless --fresh is given. Needs root;
# see hosts.sh. Takes five minutes. Each host has one core, in turn, and its programs have real-time
# priority, so that what else runs on the machine is not measured; for these minutes it has little
# of the cores.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
show_help_if_asked "$@"

usage="usage: calibrate.sh [--hosts 2,3,4,8] [--rate 100mbit] [--folder DIR] [--fresh]"
hosts=2,3,4,8
rate=100mbit
folder=
fresh=no
while [ $# != 0 ]; do
  case $1 in
    --hosts) hosts=${2:?"$usage"}; shift 2 ;;
    --rate) rate=${2:?"$usage"}; shift 2 ;;
    --folder) folder=${2:?"$usage"}; shift 2 ;;
    --fresh) fresh=yes; shift ;;
    *) fail "$usage" ;;
  esac
done
[[ $hosts =~ ^[0-9]+(,[0-9]+)*$ ]] || fail "$usage"
: "${folder:=$root/build/calibration-$rate}"
bin=$root/build/bin
for program in network-probe collective-benchmark collective-simulator; do
  [ -x "$bin/$program" ] || fail "calibrate.sh: $bin/$program is missing: build it first"
done
chrt --rr 1 true || fail "calibrate.sh: real-time priority is refused here (chrt --rr 1)"
mkdir -p -- "$folder"

# What the library learns depends on the times that it sees, and would be learnt on both sides.
export TUTTI_TUNING=static

# on_hosts NUMBER PROGRAM ARGUMENTS...: a rank on each.
on_hosts() {
  local number=$1 program=$2
  shift 2
  chrt --rr 1 "$root/scripts/mpirun/hosts.sh" "$number" --rate "$rate" --pin -- \
    mpirun -x TUTTI_TUNING -np "$number" "$bin/$program" "$@"
}

# is_there FILE: and need not be measured again.
is_there() { [ "$fresh" = no ] && [ -s "$1" ]; }

# take_times FILE NUMBER ARGUMENTS...: what collective-benchmark measures. FILE is there only if all
# results were right.
take_times() {
  local file=$1 number=$2
  shift 2
  if ! is_there "$file"; then
    on_hosts "$number" collective-benchmark "$@" --json "$file.new" >/dev/null
    mv -- "$file.new" "$file"
  fi
  results+=("$file")
}

# measure NUMBER COLLECTIVE COMPRESSION: small sizes many times, large ones a few.
measure() {
  local number=$1 collective=$2 compression=$3
  local name=$folder/$collective-$compression-$number
  local common=(--backend tutti --buffers user --collective "$collective"
                --compression "$compression" -f 8)
  take_times "$name-small.json" "$number" "${common[@]}" -b 8 -e 32K
  take_times "$name-large.json" "$number" "${common[@]}" -b 256K -e 16M -n 3 -w 1
}

# What a message costs is measured between two hosts alone; what ranks cost each other that share
# the cores, among most.
IFS=, read -ra numbers <<<"$hosts"
most=$(printf '%s\n' "${numbers[@]}" | sort -n | tail -1)
network=$folder/network.json
if ! is_there "$network"; then
  probe=(network-probe --shared-cores "$(usable_cpus)" --output "$network.new")
  on_hosts 2 "${probe[@]}" --name "hosts of hosts.sh, $rate"
  if [ "$most" -gt 2 ]; then on_hosts "$most" "${probe[@]}" --base "$network.new"; fi
  mv -- "$network.new" "$network"
fi

results=()
for number in "${numbers[@]}"; do
  measure "$number" allreduce none
  measure "$number" pushpull none
  measure "$number" pushpull fp16
  measure "$number" pushpull 2bit
done
joined=$(IFS=,; printf '%s' "${results[*]}")
"$bin/collective-simulator" --network "$network" --tuning static \
  --measured "$joined" --json "$folder/prediction.json"
