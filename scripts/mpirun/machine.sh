# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the machine has: processors, and Open MPI. To be sourced; also by an installed launch.sh.
# Messages go to standard error; standard output belongs to the programs.
set -euo pipefail

# A closed stream is the null device: its number would go to the next file that is opened. Bash has
# opened the script itself, with the first number that is free.
: 3>&2 || exec 2>/dev/null
[ ! /dev/fd/2 -ef "$0" ] || exec 2>/dev/null
{ : 3<&0; } 2>/dev/null || exec </dev/null
{ : 3>&1; } 2>/dev/null || exec >/dev/null

# Output that nobody can read (a full disk, a pipe whose reader has ended) does not end the script.
say() { (printf '%s\n' "$*" >&2) || true; }

fail() {
  say "error: $*"
  exit 1
}

has_command() { command -v "$1" >/dev/null 2>&1; }

# CPUs that this process may use: the affinity mask, and a container's share where that is less.
# (nproc would count OMP_NUM_THREADS, which is about something else.)
usable_cpus() {
  local cpus quota period
  cpus=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
  while read -r quota period; do
    quota=$(((quota + period - 1) / period))
    if [ "$quota" -lt "$cpus" ]; then cpus=$quota; fi
  done < <(processor_quotas)
  printf '%s\n' "$cpus"
}

# The quotas and periods, in microseconds, of this process's control groups (version 1 or 2) and of
# those above them, as far as there are any: a line each.
processor_quotas() {
  local controllers group folder quota period mounted=/sys/fs/cgroup
  while IFS=: read -r _ controllers group; do
    case ",$controllers," in
      ,,) folder=$mounted ;;
      *,cpu,*) folder=$mounted/cpu ;;
      *) continue ;;
    esac
    while :; do
      group=${group%/}
      if read -r quota period 2>/dev/null <"$folder$group/cpu.max" ||
        { read -r quota <"$folder$group/cpu.cfs_quota_us" &&
          read -r period <"$folder$group/cpu.cfs_period_us"; } 2>/dev/null; then
        if [[ $quota =~ ^[1-9][0-9]*$ ]]; then printf '%s %s\n' "$quota" "$period"; fi
      fi
      [ -n "$group" ] || break
      group=${group%/*}
    done
  done </proc/self/cgroup
}

# Physical cores that this process may use: what Open MPI counts as the slots of a host.
usable_cores() {
  local range cpu siblings
  local -A seen=()
  for range in $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status | tr ',' ' '); do
    for ((cpu = ${range%-*}; cpu <= ${range#*-}; ++cpu)); do
      siblings=$(cat "/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list" 2>/dev/null) ||
        siblings=$cpu
      seen[$siblings]=1
    done
  done
  printf '%s\n' "${#seen[@]}"
}

# open_mpi COMMAND OPTION: the path of Open MPI's COMMAND, or nothing. Where several MPI libraries
# are installed, Debian gives each one's commands a suffix and the plain name to one of them.
# OPTION makes COMMAND print its version.
open_mpi() {
  if has_command "$1" && [[ $("$1" "$2" 2>&1) == *"Open MPI"* ]]; then
    command -v "$1"
  else
    command -v "$1.openmpi" || true
  fi
}
open_mpi_launcher() { printf '%s\n' "${MPIRUN:-$(open_mpi mpirun --version)}"; }
