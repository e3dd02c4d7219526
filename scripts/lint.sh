#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What tools find in the sources. Exit codes: 0 clean, 1 findings, 77 the tool is not here.
#
#   scripts/lint.sh format     the layout: clang-format 14
#   scripts/lint.sh --fix      lays the sources out
#   scripts/lint.sh tidy       .clang-tidy's checks over every source in C++: clang-tidy 14; minutes
#   scripts/lint.sh subjects   lengths of the subjects of commits that can still be changed
#
# Other versions of the tools lay out some lines otherwise, or find other things. LINT_JOBS: how
# many clang-tidy at once.
# shellcheck source-path=SCRIPTDIR source=mpirun/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/mpirun/common.sh"

not_here=77
longest_subject=72

# require_14 TOOL: prints the command.
require_14() {
  tool_14 "$1" || {
    say "$1 14 is not here: apt-get install $1-14"
    exit "$not_here"
  }
}

sources() {
  find include collectives runtime apps tests -name '*.[ch]pp' -o -name '*.[ch]' \
    -o -name '*.cu' -o -name '*.cuh'
}

# lay_out OPTION OF clang-format...
lay_out() {
  local command files
  command=$(require_14 clang-format)
  mapfile -t files < <(sources)
  "$command" "$@" "${files[@]}"
}

lint_format() { lay_out --dry-run -Werror; }

# In tests doctest's macros nest, sizes are small numbers, and lists hold texts of several lines.
tests_without=-readability-function-size,-bugprone-suspicious-missing-comma
tests_without+=,-bugprone-integer-division,-bugprone-implicit-widening-of-multiplication-result
export tests_without

# tidy_one COMMAND FILE: of build-tidy/joined, where each folder is the one of what a file joins.
tidy_one() {
  local found checks=()
  if [[ $2 == *tests/* ]]; then checks=(--checks="$tests_without"); fi
  found=$("$1" -p build-tidy/joined --quiet --extra-arg=-Wno-unknown-warning-option \
    "${checks[@]}" "$2" 2>&1) || {
    grep -Ev '^[0-9]+ warnings? |^Suppressed |^Use -header-filter' <<<"$found"
    return 1
  }
}
export -f tidy_one

lint_tidy() {
  local command files
  command=$(require_14 clang-tidy)
  configure tidy
  rm -rf build-tidy/joined
  mapfile -t files < <(scripts/tidy_units.py build-tidy)
  [ "${#files[@]}" -gt 1 ] || fail "CMake names no sources in build-tidy/compile_commands.json."
  printf '%s\n' "${files[@]}" |
    xargs -P "${LINT_JOBS:-$(build_jobs)}" -I{} bash -c "tidy_one $command {}" || return 1
}

# The newest commit, and those that the main branch does not have: what is published stays.
lint_subjects() {
  local subject too_long=0
  git rev-parse --quiet --verify HEAD >/dev/null 2>&1 || return 0  # not a clone
  while IFS= read -r subject; do
    if [ "${#subject}" -le "$longest_subject" ]; then continue; fi
    say "a subject of ${#subject} characters, and at most $longest_subject are wanted: $subject"
    too_long=1
  done < <(git log -1 --format=%s
           git log --format=%s origin/main..HEAD 2>/dev/null || true)
  return "$too_long"
}

cd -- "$root" || exit
case ${1:-} in
  format | tidy | subjects) "lint_$1" ;;
  --fix) lay_out -i ;;
  *) fail "usage: scripts/lint.sh format | tidy | subjects | --fix" ;;
esac
