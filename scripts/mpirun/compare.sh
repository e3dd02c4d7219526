#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures Tutti beside the best of Open MPI's configurations. Open MPI reads its configuration when
# it starts, so that each needs a launch; the launches take turns, in rounds.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=placement.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/placement.sh"

help() {
  cat <<'END'
usage: compare.sh [-np N] [OPTIONS] [-- OPTIONS OF collective-benchmark...]

  -np N               ranks; without it, as launch.sh chooses
  --rounds N          launches of each configuration (default 3)
  --configurations A,B,...
                      some of: default, ob1 (--mca pml ob1), sm and han (coll_sm_priority and
                      coll_han_priority 100), tuned3 to tuned6 (that algorithm of coll/tuned's
                      MPI_Allreduce). Without it all; tuned for allreduce and pushpull alone
  --output DIR        folder for table.md, results.json, compare.svg and, in launches/, what each
                      launch measured and said (default build/compare)
  --limit SECONDS     the longest that a launch may take (default 900)
  --bin DIR           folder of the programs (default build/bin; what is missing there is built)
  -b, -e, -f, --cache, --collective
                      those of collective-benchmark; -f is 4 without them. alltoall, gather,
                      scatter, sendrecv and the others are compared in the same way
  --help              this text

The table is printed, in Markdown. Exit codes: 0 done; 1 usage; 2 a launch failed: the table names
it, and has the others; 3 a launch had wrong elements.
END
}

usage() {
  say "error: $*"
  help | head -n 1 >&2
  exit 1
}

# --- the arguments -------------------------------------------------------------------------------

np='' rounds=3 limit=900 collective=allreduce bin='' output=$root/build/compare chosen=''
benchmark=()
step=(-f 4)

number() {  # OPTION TEXT
  [[ $2 =~ ^[1-9][0-9]{0,5}$ ]] || usage "$1 takes a number from 1 on, not '$2'"
}

while [ $# != 0 ]; do
  case $1 in
    --help | -h) help; exit 0 ;;
    --) shift; break ;;
    -np | --np | --rounds | --configurations | --output | --limit | --bin | -b | -e | -f | \
      --cache | --collective) [ $# -ge 2 ] || usage "$1 needs a value" ;;
    *) usage "unknown option '$1'; what follows -- goes to collective-benchmark" ;;
  esac
  case $1 in
    -np | --np) number "$1" "$2"; np=$2 ;;
    --rounds) number "$1" "$2"; rounds=$2 ;;
    --limit) number "$1" "$2"; limit=$2 ;;
    --configurations) chosen=$2 ;;
    --output) output=$2 ;;
    --bin) bin=$2 ;;
    -f) step=(-f "$2") ;;
    --collective) collective=$2; benchmark+=("$1" "$2") ;;
    *) benchmark+=("$1" "$2") ;;
  esac
  shift 2
done
benchmark+=("${step[@]}" "$@")
[ "$collective" != barrier ] ||
  usage "--collective barrier moves no data: there is nothing to compare"

# --- the configurations --------------------------------------------------------------------------

# options_of NAME: sets `options`, the words for mpirun, and `component`, which Open MPI must have
# for them to mean anything. Fails if there is no such configuration.
options_of() {
  case $1 in
    default) options=() component='' ;;
    ob1) options=(--mca pml ob1) component=pml:ob1 ;;
    sm) options=(--mca coll_sm_priority 100) component=coll:sm ;;
    han) options=(--mca coll_han_priority 100) component=coll:han ;;
    tuned[3-6])
      component=coll:tuned
      options=(--mca coll_tuned_use_dynamic_rules 1
               --mca coll_tuned_allreduce_algorithm "${1#tuned}")
      ;;
    *) return 1 ;;
  esac
}

# Open MPI takes options of a component that it does not have, and runs without it.
has_component() {
  local info
  info=$(open_mpi ompi_info --version)
  if [ -z "$1" ] || [ -z "$info" ]; then return 0; fi
  components=${components:-$("$info" --parsable 2>/dev/null || true)}
  [ -z "$components" ] || grep -q "^mca:$1:" <<<"$components"
}

configurations=() missing=() notes=()
choose_configurations() {
  local names=(default ob1 sm han) name
  if [[ $collective =~ ^(allreduce|pushpull)$ ]]; then names+=(tuned3 tuned4 tuned5 tuned6); fi
  if [ -n "$chosen" ]; then IFS=, read -ra names <<<"$chosen"; fi
  for name in "${names[@]}"; do
    options_of "$name" || usage "--configurations: expected default, ob1, sm, han or tuned3 to" \
      "tuned6, or several between commas; found '$name' in '$chosen'"
    [[ " ${configurations[*]} " != *" $name "* ]] || usage "--configurations: $name is there twice"
    if has_component "$component"; then
      configurations+=("$name")
      [ "${#options[@]}" = 0 ] || notes+=("$name: $(quoted "${options[@]}")")
    elif [ -n "$chosen" ]; then
      missing+=("$name: this Open MPI has no component $component")
    else
      notes+=("$name: left out, as this Open MPI has no component $component")
    fi
  done
  [ "${#configurations[@]}" != 0 ] || fail "no configuration is left: ${missing[*]}"
}

# Ranks that wait for a core must leave it to the others.
choose_yielding() {
  local cores several_hosts=no dialect=openmpi  # its options are what is compared
  yielding=()
  if [ -z "$np" ] || has_allocation; then return; fi
  cores=$(usable_cores)
  if [ "$np" -le "$cores" ]; then return; fi
  yielding=(--mca mpi_yield_when_idle 1)
  notes+=("$np ranks on $cores cores: mpi_yield_when_idle 1 in every configuration")
}

# --- the launches --------------------------------------------------------------------------------

job=''
last_job=''
is_starting=no
stop() {
  trap - INT TERM
  if [ "$is_starting" = yes ] && [ "${!:-}" != "$last_job" ]; then job=$!; fi
  if [ -n "$job" ]; then
    kill -TERM "$job" 2>/dev/null || true
    wait "$job" 2>/dev/null || true
  fi
  say "compare.sh: stopped; what was measured so far: $launches"
  exit "$1"
}

# announce TEXT: one line that is replaced on a terminal, and a line each in a log.
announce() {
  if [ -t 2 ]; then printf '\r\033[K%s' "$1" >&2; else say "$1"; fi
}
end_line() { if [ -t 2 ]; then printf '\r\033[K' >&2; fi; }

time_left() {  # LAUNCHES_DONE LAUNCHES
  local seconds
  [ "$1" != 0 ] || return 0
  seconds=$((SECONDS * ($2 - $1) / $1))
  printf ', %d:%02d left' $((seconds / 60)) $((seconds % 60))
}

# launch NAME FILE: FILE.json and FILE.log; its exit code is in `status`.
launch() {
  local ranks=()
  if [ -n "$np" ]; then ranks=(-np "$np"); fi
  options_of "$1"
  last_job=${!:-}
  is_starting=yes
  timeout --kill-after=10 "$limit" "$root/scripts/mpirun/launch.sh" "${ranks[@]}" \
    "${yielding[@]}" "${options[@]}" "$bin/collective-benchmark" --backend tutti,mpi \
    --buffers store,user "${benchmark[@]}" --label "$1" --json "$2.json" \
    >"$2.log" 2>&1 </dev/null &
  job=$!
  is_starting=no
  status=0
  wait "$job" || status=$?
  job=''
}

# judge NAME ROUND FILE: what `status` means for the table and for this script's exit code.
judge() {
  local error
  error=$(sed -n 's/.*collective-benchmark: error: //p' "$3.log" | head -n 1)
  if { [ "$status" = 0 ] || [ "$status" = 3 ]; } && [ -s "$3.json" ]; then
    files+=("$3.json")
    if [ "$status" = 0 ]; then return; fi
    end_line
    sed -n 's/^# FAILED: /compare.sh: '"$1, round $2"': /p' "$3.log" >&2
    wrong=yes
    return
  fi
  end_line
  if [ "$status" = 1 ] && [ -n "$error" ]; then fail "collective-benchmark: $error"; fi
  if [ "$status" = 124 ] || [ "$status" = 137 ]; then error="it did not end within $limit s"; fi
  error=${error:-$(sed '/^[-[:space:]]*$/d' "$3.log" | tail -n 1)}
  missing+=("$1, round $2: exit code $status: ${error:-it printed nothing}")
  say "compare.sh: ${missing[-1]} (log: $3.log)"
}

run_all() {
  local round name file done=0 all=$((rounds * ${#configurations[@]}))
  for ((round = 1; round <= rounds; ++round)); do
    for name in "${configurations[@]}"; do
      announce "launch $((done + 1)) of $all: $name, round $round$(time_left "$done" "$all")"
      file=$launches/$round-$name
      rm -f -- "$file.json"
      launch "$name" "$file"
      judge "$name" "$round" "$file"
      done=$((done + 1))
    done
  done
  end_line
}

# --- all of it -----------------------------------------------------------------------------------

choose_configurations
choose_yielding
if [ -z "$bin" ]; then
  bin=$root/build/bin
  if [ ! -x "$bin/collective-benchmark" ] || [ ! -x "$bin/collective-compare" ]; then
    build release collective-benchmark collective-compare
  fi
fi
for program in collective-benchmark collective-compare; do
  [ -x "$bin/$program" ] || fail "$bin has no $program: build it, or name another folder with --bin"
done
launches=$output/launches
if ! mkdir -p -- "$launches" 2>/dev/null || [ ! -w "$launches" ]; then
  fail "cannot write in $launches: name another folder with --output"
fi

files=() wrong=no
trap 'stop 130' INT
trap 'stop 143' TERM
SECONDS=0
run_all
[ "${#files[@]}" != 0 ] || { say "error: no launch has results; logs: $launches"; exit 2; }

words=()
for note in "${notes[@]}"; do words+=(--note "$note"); done
for text in "${missing[@]}"; do words+=(--missing "$text"); done
status=0
"$bin/collective-compare" "${words[@]}" --table "$output/table.md" --json "$output/results.json" \
  --plot "$output/compare.svg" --results "${files[@]}" || status=$?
say "compare.sh: table.md, results.json and compare.svg are in $output"
if [ "$status" != 0 ]; then exit "$status"; fi
if [ "$wrong" = yes ]; then exit 3; fi
[ "${#missing[@]}" = 0 ] || exit 2
