# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Which launcher starts a job, and its words for what launch.sh has decided. To be sourced: the
# functions read the variables that launch.sh sets from its arguments.
# shellcheck disable=SC2034,SC2154

# dialect_of LAUNCHER: openmpi, hydra (MPICH), intel, srun, or nothing where it is none of these;
# then the version as far as it matters.
dialect_of() {
  local text
  text=$("$1" --version 2>&1 </dev/null) || true
  case $text in
    *"(Open MPI) "* | *"(OpenRTE) "* | *"(PRTE) "*)
      [[ ! $text =~ \((Open MPI|OpenRTE|PRTE)\)\ ([0-9]+)\. ]] || echo "openmpi ${BASH_REMATCH[2]}"
      ;;
    *"Intel(R) MPI Library"*) echo intel ;;
    *"HYDRA build details"*) echo hydra ;;
    slurm\ [0-9]* | slurm-wlm\ [0-9]*) echo srun ;;  # Debian's and Ubuntu's say slurm-wlm
  esac
}

# family_of DIALECT: whose programs it starts; nothing for srun, which starts any.
family_of() {
  case $1 in
    openmpi) echo openmpi ;;
    hydra | intel) echo mpich ;;
  esac
}

name_of() {
  case $1 in
    openmpi) echo "Open MPI" ;;
    mpich) echo "MPICH, Intel MPI or another one of MPICH's family" ;;
    hydra) echo MPICH ;;
    intel) echo "Intel MPI" ;;
    srun) echo Slurm ;;
  esac
}

# abi_of_program WORD...: the kind of MPI that the first of these programs loads: openmpi, mpich or
# standard; or nothing, as for a script. Tutti's shared library loads the MPI of the launcher, which
# is free unless the library has one plug-in alone.
#
# runtime/preload/CMakeLists.txt has the same names of files; of Open MPI those of today's ABI.
abi_of_program() {
  local word file libraries plugins
  for word in "$@"; do
    file=$(type -P -- "$word") || continue
    libraries=$(LC_ALL=C ldd "$file" 2>/dev/null) || continue
    case $libraries in
      *libmpi.so.[2-9][0-9]*) echo openmpi; return ;;
      *libmpi_abi.so*) echo standard; return ;;
      *libmpi.so.12* | *libmpich.so* | *libmpi_*.so.12*) echo mpich; return ;;
      *libtutti.so.*\ =\>\ /*)
        file=$(sed -n 's/.*libtutti\.so[^ ]* => \(.*\) (0x.*/\1/p' <<<"$libraries")
        plugins=("${file%/*}/tutti-${file##*/libtutti.so.}/libtutti-mpi-"*.so)
        if [ ${#plugins[@]} = 1 ] && [ -e "${plugins[0]}" ]; then
          file=${plugins[0]##*/libtutti-mpi-}
          echo "${file%.so}"
        fi
        return
        ;;
    esac
  done
}

# mpi_of_program WORD...: the family that starts it; the standard ABI is of any MPI.
mpi_of_program() {
  local abi
  abi=$(abi_of_program "$@")
  if [ "$abi" != standard ]; then echo "$abi"; fi
}

# choose_launcher PROGRAM...: sets `mpirun`, `dialect` and `version`.
choose_launcher() {
  local family candidate first='' known
  family=$(mpi_of_program "$@")
  if [ -n "${MPIRUN:-}" ]; then
    has_command "$MPIRUN" || fail "MPIRUN=$MPIRUN: no such program, or not executable"
    read -r dialect version <<<"$(dialect_of "$MPIRUN")" || true
    [ -n "$dialect" ] || fail "MPIRUN=$MPIRUN is no launcher that this script knows: mpirun of" \
      "Open MPI, mpiexec of MPICH and Intel MPI, srun"
    mpirun=$MPIRUN
    known=$(family_of "$dialect")
    if [ -n "$family" ] && [ -n "$known" ] && [ "$known" != "$family" ]; then
      refuse_family "MPIRUN=$MPIRUN" "$dialect" "$1" "$family"
    fi
    return
  fi
  for candidate in mpirun mpiexec mpirun.openmpi mpiexec.hydra mpirun.mpich srun; do
    mpirun=$(type -P -- "$candidate") || continue
    read -r dialect version <<<"$(dialect_of "$mpirun")" || true
    [ -n "$dialect" ] || continue
    known=$(family_of "$dialect")
    if [ -z "$family" ] || [ -z "$known" ] || [ "$known" = "$family" ]; then
      [ -z "$first" ] || say "launch.sh: $first is $(name_of "$first_dialect")'s, and $1 was" \
        "built with $(name_of "$family"): $mpirun."
      return
    fi
    if [ -z "$first" ]; then first=$mpirun first_dialect=$dialect; fi
  done
  [ -z "$first" ] || refuse_family "$first" "$first_dialect" "$1" "$family"
  fail "no launcher of an MPI is in the PATH: sudo apt-get install openmpi-bin, or load your" \
    "cluster's module, or MPIRUN=/path/to/mpirun"
}

refuse_family() {  # LAUNCHER DIALECT PROGRAM FAMILY
  fail "$1 is $(name_of "$2")'s launcher, and $3 was built with $(name_of "$4"): each rank would" \
    "be a job of its own. Put that MPI's launcher first into the PATH, or name it:" \
    "MPIRUN=/path/to/$([ "$4" = openmpi ] && echo mpirun || echo mpiexec); or build with the" \
    "launcher's MPI: MPI_HOME=FOLDER cmake ..."
}

# --- options in Open MPI's words, for the others -------------------------------------------------

# hosts_in FILE: a list of hosts as "a:4,b:4", from Open MPI's "a slots=4" or MPICH's "a:4".
hosts_in() {
  [ -r "$1" ] || fail "--hostfile $1 cannot be read"
  awk '{ sub(/#.*/, "") } NF { slots = ""
         for (i = 2; i <= NF; ++i) if ($i ~ /^slots=/) { slots = ":" substr($i, 7) }
         printf "%s%s%s", (count++ ? "," : ""), $1, slots }' "$1"
}

# understand OPTION [VALUE]: takes what Open MPI's option means into variables. Fails for options
# that are Open MPI's alone, and passes on what is nobody's that is known.
understand() {
  local name=${1#-} value=${2:-}
  name=${name#-}
  if [[ $name == *=* ]] && [ "$name" != x ]; then value=${name#*=} name=${name%%=*}; fi
  if [[ $name =~ ^N([0-9]+)$ ]]; then name=N value=${BASH_REMATCH[1]}; fi
  case $name in
    H | host) hosts=$value ;;
    hostfile | machinefile | default-hostfile) hosts=$(hosts_in "$value") || exit 1 ;;
    N | npernode | nproc-per-node) per_node=$value ;;
    pernode) per_node=1 ;;
    ppr | map-by)
      [[ $value =~ ^(ppr:)?([0-9]+):node$ ]] || not_spelt "$*"
      per_node=${BASH_REMATCH[2]}
      ;;
    bind-to) bind=$value ;;
    oversubscribe) oversubscribe=yes ;;
    x) exports+=("$value") ;;
    mca | gmca | prtemca | pmixmca | rank-by | rf | rankfile | cpu-set | cpu-list | npersocket | \
      npernuma | nooversubscribe | prefix | tune | am | personality) not_spelt "$*" ;;
    *) rest+=("$@") ;;
  esac
}

not_spelt() {
  fail "$1 is an option of Open MPI's mpirun, and $mpirun is $(name_of "$dialect")'s, which has" \
    "no such option: leave it out, or use that launcher's own"
}

# --- the words of each launcher: from ranks, hosts, per_node, bind, oversubscribe, exports --------

spell_openmpi() {
  if [ "$allow_root" = yes ]; then options+=(--allow-run-as-root); fi
  if [ -n "$hostfile" ]; then options+=(--hostfile "$hostfile"); fi
  if [ -n "$hosts" ]; then options+=(--host "$hosts"); fi
  if [ -n "$ranks" ]; then options+=(-np "$ranks"); fi
  if [ "$oversubscribe" = yes ]; then
    if [ "$version" -le 4 ]; then
      options+=(--oversubscribe)
    else
      options+=(--map-by :OVERSUBSCRIBE)
    fi
  fi
  if [ -n "$bind" ]; then options+=(--bind-to "$bind"); fi
  local name
  for name in "${exports[@]}"; do options+=(-x "$name"); done
}

# MPICH's launcher and Intel's give all hosts the whole environment, and oversubscribe unasked.
spell_hydra() {
  if [ -n "$hostfile" ]; then options+=(-f "$hostfile"); fi
  if [ -n "$hosts" ]; then options+=(-hosts "$hosts"); fi
  if [ -n "$ranks" ]; then options+=(-n "$ranks"); fi
  if [ -n "$per_node" ]; then options+=(-ppn "$per_node"); fi
  if [ -n "$bind" ] && [ "$dialect" = hydra ]; then options+=(-bind-to "$bind"); fi
  if [ -n "$bind" ] && [ "$dialect" = intel ]; then
    if [ "$bind" = none ]; then
      options+=(-genv I_MPI_PIN 0)
    else
      options+=(-genv I_MPI_PIN_DOMAIN "$bind")
    fi
  fi
  local name  # what has a value is set; the rest of the environment goes with the job by itself
  for name in "${exports[@]}"; do
    if [[ $name == *=* ]]; then options+=(-genv "${name%%=*}" "${name#*=}"); fi
  done
}

# Slurm's plug-in for the program's MPI, unless the user or the site has chosen one.
spell_srun() {
  local family name pairs=''
  family=$(mpi_of_program "${program[@]}")
  # shellcheck disable=SC2001
  if [ -n "$hosts" ]; then options+=(--nodelist "$(sed 's/:[0-9]*//g' <<<"$hosts")"); fi
  if [ -n "$ranks" ]; then options+=(-n "$ranks"); fi
  if [ -n "$per_node" ]; then options+=(--ntasks-per-node "$per_node"); fi
  if [ -z "${SLURM_MPI_TYPE:-}" ] && [[ " ${rest[*]} " != *" --mpi"* ]]; then
    case $family in
      openmpi) options+=(--mpi=pmix) ;;
      mpich) options+=(--mpi=pmi2) ;;
    esac
  fi
  if [ "$oversubscribe" = yes ]; then options+=(--overcommit); fi
  case $bind in
    '') ;;
    none) options+=(--cpu-bind=none) ;;
    core) options+=(--cpu-bind=cores) ;;
    numa) options+=(--cpu-bind=ldoms) ;;
    socket) options+=(--cpu-bind=sockets) ;;
    *) not_spelt "--bind-to $bind" ;;
  esac
  for name in "${exports[@]}"; do if [[ $name == *=* ]]; then pairs+=",$name"; fi; done
  if [ -n "$pairs" ]; then options+=("--export=ALL$pairs"); fi
}

spell_options() {
  local first=0 count
  if [ "$dialect" = openmpi ]; then
    spell_openmpi
    return
  fi
  for count in "${words_of[@]}"; do
    understand "${passed[@]:first:count}"
    first=$((first + count))
  done
  passed=("${rest[@]}")
  case $dialect in
    hydra | intel) spell_hydra ;;
    srun) spell_srun ;;
  esac
}
