# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the scripts of this folder share: finding the tools, installing what is missing, building.
# To be sourced. Messages go to standard error; standard output belongs to the programs.
# shellcheck source-path=SCRIPTDIR source=machine.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/machine.sh"

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." >/dev/null && pwd)

# Where Debian's and Ubuntu's package puts the images, and the names of its four files.
dataset_folder=/usr/share/datasets/fashion-mnist
dataset_files=(train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz
               t10k-images-idx3-ubyte.gz t10k-labels-idx1-ubyte.gz)

read -ra compiler <<<"${CXX:-c++}"  # what CMake will use; may be two words, as in "ccache g++"

# show_help_if_asked ARGUMENTS...: after --help or -h as the first of them, ends with the comment
# that the script begins with.
show_help_if_asked() {
  case ${1:-} in --help | -h) ;; *) return 0 ;; esac
  sed -n '3,/^[^#]/ { /^# shellcheck/d; s/^# \{0,1\}//p; }' "$0"
  exit 0
}

# --- what the machine has ------------------------------------------------------------------------

# Compilers to run at once: one per CPU, and one GiB of memory for each.
build_jobs() {
  local jobs gib limit
  jobs=$(usable_cpus)
  gib=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
  if read -r limit 2>/dev/null </sys/fs/cgroup/memory.max && [ "$limit" != max ] &&
    [ $((limit >> 30)) -lt "$gib" ]; then
    gib=$((limit >> 30))
  fi
  if [ "$gib" -lt "$jobs" ]; then jobs=$gib; fi
  printf '%s\n' "${CMAKE_BUILD_PARALLEL_LEVEL:-$((jobs > 0 ? jobs : 1))}"
}

# has_mpi COMMAND...: one of them is in MPI_HOME or in the PATH. CMake says which MPI it takes.
has_mpi() {
  local command
  for command in "$@"; do
    if has_command "$command" || has_command "${MPI_HOME:-}/bin/$command"; then return 0; fi
  done
  return 1
}

# --- what is missing -----------------------------------------------------------------------------

# Headers and the packages that have them.
library_headers() {
  cat <<'END'
boost/program_options.hpp libboost-program-options-dev
doctest/doctest.h doctest-dev
Eigen/Core libeigen3-dev
zlib.h zlib1g-dev
nlohmann/json.hpp nlohmann-json3-dev
xxhash.h libxxhash-dev
END
}

missing_libraries() {
  local header package
  if ! has_command "${compiler[0]}"; then
    library_headers | cut -d' ' -f2
    return
  fi
  while read -r header package; do
    printf '#if !__has_include(<%s>)\nmissing "%s"\n#endif\n' "$header" "$package"
  done < <(library_headers) |
    "${compiler[@]}" -E -P -x c++ -I/usr/include/eigen3 - | sed -n 's/^missing "\(.*\)"/\1/p'
}

# The packages to install, one per line. Looks for what a package is needed for, not for the
# package, so that a library from a module or from source counts.
missing_packages() {
  has_command "${compiler[0]}" || echo g++
  has_command cmake || echo cmake
  has_command make || echo make
  has_mpi mpicxx mpicxx.openmpi mpicxx.mpich || echo libopenmpi-dev
  has_mpi mpirun mpiexec mpirun.openmpi mpiexec.hydra srun || echo openmpi-bin
  has_command python3 || echo python3
  missing_libraries
}

# --- apt -----------------------------------------------------------------------------------------

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# require_apt PACKAGE...: ends with one sentence if this user cannot install packages here.
require_apt() {
  local by_hand="sudo apt-get install $*"
  has_command apt-get || fail "missing here: $*. This is not Debian or Ubuntu, so please install" \
    "their equivalents by this system's own means. If they are installed where a compiler does" \
    "not look by itself, build by hand: cmake --preset release && cmake --build --preset release"
  [ "$(id -u)" != 0 ] || return 0
  has_command sudo || fail "packages are missing and this user is neither root nor has sudo:" \
    "ask an administrator to run: $by_hand"
  if [ -t 0 ]; then
    sudo -v || fail "packages are missing and sudo refused: ask an administrator to run: $by_hand"
  else
    sudo -n true 2>/dev/null || fail "packages are missing, sudo asks for a password and there is" \
      "no terminal to type it on: run this first: $by_hand"
  fi
}

apt() {
  as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 \
    -o Acquire::Retries=3 "$@"
}

# A source that fails does not matter as long as apt knows the packages in the end.
apt_update() {
  [ -z "${apt_updated:-}" ] || return 0
  apt_updated=yes
  run_logged "Reading the package lists" "$root/build/apt-update.log" apt update || true
}

apt_knows() {
  local policy
  policy=$(LC_ALL=C apt-cache policy "$1")
  [[ $policy == *"Candidate: "* && $policy != *"Candidate: (none)"* ]]
}

# The reason that apt's log gives, as a sentence. Prints nothing if there is none that is known.
apt_reason() {
  if grep -Eq 'No space left on device|enough free space' "$1"; then
    echo "the disk is full."
  elif grep -Eq 'Could not resolve|Temporary failure|Failed to fetch|[Cc]onnect' "$1"; then
    echo "the package archive could not be reached: is there a network, and does it need a proxy?"
  fi
}

apt_install() {
  local log=$root/build/apt-install.log package reason
  require_apt "$@"
  apt_update
  for package in "$@"; do
    apt_knows "$package" && continue
    reason=$(apt_reason "$root/build/apt-update.log")
    fail "${reason:-apt knows no package $package (Ubuntu: add-apt-repository universe).}" \
      "Not installed: $*"
  done
  run_logged "Installing $*" "$log" apt install -y --no-install-recommends "$@" ||
    fail "apt-get install failed: $(apt_reason "$log")"
}

# --- checks that end with one sentence -----------------------------------------------------------

# require_space FOLDER MIB PURPOSE
require_space() {
  local free
  free=$(df -Pm -- "$1" 2>/dev/null | awk 'NR == 2 { print $4 }') || return 0
  [ "${free:-$2}" -ge "$2" ] ||
    fail "too little disk space: $3 need $2 MiB in $1, and $free MiB are free."
}

at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

require_versions() {
  local version
  version=$("${compiler[@]}" -dumpfullversion -dumpversion)
  if [[ $("${compiler[@]}" --version) != *clang* ]]; then
    at_least "$version" 11 || fail "g++ 11 or later is needed; ${compiler[*]} is $version." \
      "Where a later one is installed beside it: CXX=g++-11 $0"
  fi
  version=$(cmake --version | awk 'NR == 1 { print $3 }')
  at_least "$version" 3.22 || fail "CMake 3.22 or later is needed; this is version $version."
}

# tool_14 TOOL: the command of version 14 of a tool of LLVM's, whatever it is called here. Fails if
# there is none.
tool_14() {
  local command
  for command in "$1-14" "$1"; do
    if [[ $("$command" --version 2>/dev/null) == *"version 14."* ]]; then
      printf '%s\n' "$command"
      return 0
    fi
  done
  return 1
}

# --- steps ---------------------------------------------------------------------------------------

# run_logged LABEL LOG COMMAND...: a line for the step; the command's output goes to LOG. On a
# terminal its latest line is shown in place; after a failure, its first errors and its end.
run_logged() {
  local label=$1 log=$2 started=$SECONDS status=0
  shift 2
  mkdir -p -- "$(dirname -- "$log")"
  say "$label"
  if [ -t 2 ]; then
    "$@" 2>&1 </dev/null | tee -- "$log" | show_latest_line || status=$?
  else
    ("$@") >"$log" 2>&1 </dev/null || status=$?  # fail() in it ends it, and not the script
  fi
  if [ "$status" != 0 ]; then
    grep -m 3 -E ' (fatal )?error: ' -- "$log" >&2 || true
    tail -n 30 -- "$log" >&2
    say "failed after $((SECONDS - started)) s; the whole log: $log"
  fi
  return "$status"
}

show_latest_line() {
  local line width
  width=$(tput cols 2>/dev/null) || width=80
  while IFS= read -r line; do printf '\r\033[K%.*s' $((width - 1)) "$line" >&2; done
  printf '\r\033[K' >&2
}

install_missing() {
  local missing
  [ -w "$root" ] || fail "cannot write in $root, where the build folder goes."
  [ -z "${CXX:-}" ] || has_command "${compiler[0]}" || fail "CXX=$CXX: there is no such command."
  mapfile -t missing < <(missing_packages)
  if [ "${#missing[@]}" != 0 ]; then apt_install "${missing[@]}"; fi
  require_versions
}

# What single tests and checks need besides. A tool that this system does not offer is left out: its
# tests are skipped, and say so.
install_test_tools() {
  local tool package found=() missing=()
  for tool in pkg-config shellcheck; do
    has_command "$tool" || missing+=("$tool")
  done
  has_command ip || missing+=(iproute2)
  for tool in clang-format clang-tidy; do
    tool_14 "$tool" >/dev/null || missing+=("$tool-14")
  done
  if [ "${#missing[@]}" = 0 ] || ! has_command apt-get; then return 0; fi
  if [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; then return 0; fi
  apt_update
  for package in "${missing[@]}"; do
    if apt_knows "$package"; then
      found+=("$package")
    else
      say "apt knows no package $package: what needs it is left out."
    fi
  done
  [ "${#found[@]}" = 0 ] || (apt_install "${found[@]}") || say "not installed: ${found[*]}"
}

install_dataset() {
  local by_hand="Get its four files (${dataset_files[*]}) from the Fashion-MNIST project \
(zalandoresearch/fashion-mnist, folder data/fashion) and give their folder: --data DIR"
  [ ! -e "$dataset_folder/${dataset_files[0]}" ] || return 0
  has_command apt-get || fail "the images are not in $dataset_folder. $by_hand"
  require_apt dataset-fashion-mnist
  apt_update
  apt_knows dataset-fashion-mnist || fail "apt knows no package dataset-fashion-mnist." \
    "$(apt_reason "$root/build/apt-update.log")" "$by_hand"
  apt_install dataset-fashion-mnist
}

build_folder() {
  if [ "$1" = release ]; then echo "$root/build"; else echo "$root/build-$1"; fi
}

# configure PRESET [OPTION OF cmake...]
configure() {
  local preset=$1 folder configured_for
  shift
  folder=$(build_folder "$preset")
  if [ -e "$folder/CMakeCache.txt" ]; then
    configured_for=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$folder/CMakeCache.txt")
    [ "$configured_for" = "$root" ] ||
      fail "$folder was configured for a source tree in $configured_for: remove the folder first."
  fi
  (cd -- "$root" && run_logged "Configuring ${folder##*/}/" "$folder/configure.log" \
    cmake --preset "$preset" "$@")
}

build_reason() {
  if grep -q 'Killed signal' "$1"; then
    echo "A compiler was killed: too little memory for so many. CMAKE_BUILD_PARALLEL_LEVEL=1 $0"
  elif grep -q 'No space left on device' "$1"; then
    echo "The disk is full."
  fi
}

release_options=() asan_options=()  # of cmake, when these builds are configured

# Without a GPU here, kernels are compiled to PTX alone, which a GPU's driver translates when a
# program first starts: 13 s for the longest source, and 33 s for three GPUs' machine code.
has_gpu() { compgen -G '/dev/nvidia[0-9]*' >/dev/null; }
[ -n "${CUDAARCHS:-}" ] || has_gpu || export CUDAARCHS=75-virtual

# mib_of_build PRESET NUMBER_OF_TARGETS: all there is takes gigabytes. A folder in which a build has
# begun needs little more.
mib_of_build() {
  if [ -e "$(build_folder "$1")/build.log" ] || { [ "$1" = release ] && [ "$2" != 0 ]; }; then
    printf 200
  else
    printf 2700
  fi
}

# build PRESET [TARGET...]: configures and builds; everything if no target is named.
build() {
  local preset=$1 folder jobs options=() target=()
  shift
  case $preset in
    release) options=("${release_options[@]}") ;;
    asan) options=("${asan_options[@]}") ;;
  esac
  folder=$(build_folder "$preset")
  [ ! -e "$folder" ] || [ -w "$folder" ] ||
    fail "$folder belongs to another user (was a script run with sudo?): remove it first."
  mkdir -p -- "$folder"
  require_space "$folder" "$(mib_of_build "$preset" $#)" "the built files"
  configure "$preset" "${options[@]}" || fail "CMake could not configure the build."
  jobs=$(build_jobs)
  if [ $# != 0 ]; then target=(--target "$@"); fi
  run_logged "Building ${folder##*/}/ with $jobs compilers at once (log: $folder/build.log)" \
    "$folder/build.log" cmake --build "$folder" --parallel "$jobs" "${target[@]}" ||
    fail "the build failed. $(build_reason "$folder/build.log")"
}
