#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mpirun, with the options that the situation needs. All launcher options of the project are here.
#
#   scripts/mpirun/launch.sh -np N [OPTIONS OF mpirun...] PROGRAM [ARGUMENTS...]
#
# MPIRUN=/path/to/mpirun chooses another launcher than Open MPI's first one in the PATH.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage="usage: launch.sh -np N [OPTIONS OF mpirun...] PROGRAM [ARGUMENTS...]"

# In a batch job, and with a list of hosts, the launcher knows its slots and this script does not.
has_allocation() {
  local argument
  [ -z "${SLURM_JOB_ID:-}${PBS_NODEFILE:-}${LSB_JOBID:-}${PE_HOSTFILE:-}" ] || return 0
  for argument in "$@"; do
    case $argument in
      -H | -host | --host | -hostfile | --hostfile | -machinefile | --machinefile) return 0 ;;
    esac
    if has_command "$argument"; then return 1; fi  # the program: what follows is its own
  done
  return 1
}

if ! [[ $# -ge 3 && ($1 == -np || $1 == -n) && $2 =~ ^[1-9][0-9]*$ ]]; then
  say "$usage"
  exit 1
fi
ranks=$2
shift 2

mpirun=$(open_mpi_launcher)
[ -n "$mpirun" ] || fail "Open MPI's mpirun is not in the PATH: sudo apt-get install openmpi-bin"

options=()
if [ "$(id -u)" = 0 ] && [ -z "${OMPI_ALLOW_RUN_AS_ROOT:-}" ]; then
  say "launch.sh: running as root, which Open MPI allows because OMPI_ALLOW_RUN_AS_ROOT is set now."
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

cores=$(usable_cores)
if [ "$ranks" -gt "$cores" ] && ! has_allocation "$@"; then
  say "launch.sh: $ranks ranks on $cores usable cores: they take turns (oversubscribed)."
  if [[ $("$mpirun" --version 2>/dev/null) =~ \((Open MPI|OpenRTE)\)\ [1-4]\. ]]; then
    options+=(--oversubscribe)
  else
    options+=(--map-by :OVERSUBSCRIBE)
  fi
fi
exec "$mpirun" -np "$ranks" "${options[@]}" "$@"
