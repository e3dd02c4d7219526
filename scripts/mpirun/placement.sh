# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What launch.sh adds to the launcher's command, one function per question. To be sourced: they read
# the variables that launch.sh sets from its arguments, and set those that dialects.sh spells. Each
# choice that the user would wonder about is said on standard error.
# shellcheck disable=SC2034,SC2154

# The words as a shell would read them again.
quoted() {
  local word text=()
  for word in "$@"; do
    if [[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]]; then text+=("$word"); else text+=("${word@Q}"); fi
  done
  printf '%s\n' "${text[*]}"
}

# In a batch job, and with a list of hosts, the launcher knows its slots.
has_allocation() {
  [ "$dialect" = srun ] || [ "$several_hosts" = yes ] ||
    [ -n "${SLURM_JOB_ID:-}${PBS_NODEFILE:-}${LSB_JOBID:-}" ] ||
    [ -n "${PE_HOSTFILE:-}${OMPI_MCA_orte_default_hostfile:-}" ] ||
    [ -n "${PRTE_MCA_prte_default_hostfile:-}" ]
}

# Containers run as root, which Open MPI refuses unless it is told that it is meant.
choose_root() {
  if [ "$dialect" = openmpi ] && [ "$(id -u)" = 0 ] && [ -z "${OMPI_ALLOW_RUN_AS_ROOT:-}" ]; then
    say "launch.sh: running as root: --allow-run-as-root."
    allow_root=yes
  fi
}

# PBS lists a host once per rank. An mpirun that knows PBS takes the same from it.
choose_hosts() {
  if [ "$several_hosts" = no ] && [ -n "${PBS_NODEFILE:-}" ]; then
    hostfile=$PBS_NODEFILE
  fi
}

choose_ranks() {
  if [ -z "$ranks" ] && [ "$counted" = no ] && ! has_allocation; then
    ranks=$(usable_cpus)
    cores=$(usable_cores)
    if [ "$cores" -lt "$ranks" ]; then ranks=$cores; fi
    say "launch.sh: $ranks ranks, one per usable core."
  fi
}

# Threads that one rank is meant to run: OpenMP's setting, what the batch system was asked for, or
# TUTTI_THREADS. What the library chooses by itself follows from where ranks are bound.
threads_per_rank() {
  local threads=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-${TUTTI_THREADS:-1}}}
  threads=${threads%%,*}
  if [[ $threads =~ ^[1-9][0-9]*$ ]]; then printf '%s\n' "$threads"; else echo 1; fi
}

numa_domains() { compgen -G "${LAUNCH_NUMA:-/sys/devices/system/node/node}[0-9]*" | wc -l; }

# Where ranks go and what they are bound to:
#   a batch job, several hosts   mpirun's own rule: slots of the hosts, bound to cores or packages;
#                                ranks with threads to the NUMA domain, since one core is too little
#   more ranks than cores        bound to nothing; they take turns
#   most cores of this machine,  a core each: what a rank touches first stays near it
#   if it has NUMA domains
#   else                         bound to nothing. mpirun begins at the first core, which a second
#                                job beside this one would be given too. With one NUMA domain ranks
#                                gain nothing, and beside a compiler they lose half of their speed
# A user who says one of the two, whether ranks may take turns or what they are bound to, leaves the
# other to this.
choose_placement() {
  local cores threads
  if [ -n "${OMPI_MCA_hwloc_base_binding_policy:-}" ] ||
    [ -n "${PRTE_MCA_hwloc_default_binding_policy:-}" ]; then
    binding_said=yes
  fi
  if [ "$slots_said" = yes ] && [ "$binding_said" = yes ]; then return; fi
  threads=$(threads_per_rank)
  if has_allocation; then
    if [ "$threads" -gt 1 ]; then bind=numa; fi
  else
    cores=$(usable_cores)
    bind=none
    if [ "$ranks" -gt "$cores" ]; then
      choose_turns
    elif [ $((2 * ranks)) -gt "$cores" ] && [ "$threads" = 1 ] && [ "$(numa_domains)" -gt 1 ]; then
      bind=core
    fi
  fi
  if [ "$binding_said" = yes ]; then bind=; fi
}

choose_turns() {
  [ "$slots_said" = no ] || return 0
  say "launch.sh: $ranks ranks on $cores usable cores: they take turns (oversubscribed)."
  oversubscribe=yes
}

# One host's processes inherit the environment; those of other hosts get what is named.
choose_forwarding() {
  local name
  has_allocation || return 0
  while read -r name; do
    case $name in
      TUTTI_* | NCCL_* | OMP_* | LD_LIBRARY_PATH)
        [[ $forwarded == *" $name "* ]] || exports+=("$name")
        ;;
    esac
  done < <(compgen -e | sort)
}

# bind_gpu.sh gives each rank its GPU when it starts, on its own host.
choose_gpus() {
  local devices
  devices=$(compgen -G "${LAUNCH_DEVICES:-/dev/nvidia}[0-9]*" | wc -l) || true
  if [ "$gpus" = yes ] || { [ "$gpus" = auto ] && [ "$devices" != 0 ]; }; then
    program=("$folder/bind_gpu.sh" "${program[@]}")
  fi
}
