#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the library for 64-bit Arm on this machine, and runs its unit tests and the MPI tests of
# two and three ranks under qemu-user.
#
#   scripts/aarch64.sh [ARGUMENTS OF ctest...]
#   scripts/aarch64.sh -R reduce_test
#
# Debian 12. The packages of arm64 are unpacked into build-aarch64/sysroot, and nothing of them is
# installed. What it cannot show: qemu on x86-64 keeps this machine's order of memory accesses,
# which is stricter than Arm's.
# shellcheck source-path=SCRIPTDIR source=mpirun/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/mpirun/common.sh"
cd -- "$root" || exit

folder=$root/build-aarch64
sysroot=$folder/sysroot
packages=(libmpich-dev libstdc++-12-dev libc6-dev libxxhash-dev nlohmann-json3-dev doctest-dev)

# The package lists, cache and status of a system that has nothing installed yet.
apt_of_arm() {
  env LC_ALL=C apt-get -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
    -o Dir::State="$folder/apt/state" -o Dir::State::status="$folder/apt/status" \
    -o Dir::Cache="$folder/apt/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" \
    -o Acquire::Retries=3 "$@"
}

# FindMPI asks this what it would compile with.
write_mpicxx() {
  local flags="-I$sysroot/usr/include/aarch64-linux-gnu/mpich -L$sysroot/usr/lib/aarch64-linux-gnu"
  cat >"$sysroot/mpicxx" <<END
#!/bin/sh
case \$1 in
  -v) echo "mpicxx for MPICH version 4.0.2" ;;
  -show) echo "aarch64-linux-gnu-g++-12 $flags -lmpich" ;;
  -*) exit 1 ;;
  *) exec aarch64-linux-gnu-g++-12 --sysroot=$sysroot $flags "\$@" -lmpich ;;
esac
END
  chmod +x -- "$sysroot/mpicxx"
}

# It is part of a condition, where errors do not end it by themselves.
make_sysroot() {
  local package
  [ "$(cat -- "$sysroot/packages" 2>/dev/null)" != "${packages[*]}" ] || return 0
  rm -rf -- "$sysroot" "$folder/apt"
  mkdir -p -- "$sysroot" "$folder/apt/state/lists/partial" "$folder/apt/cache/archives/partial"
  : >"$folder/apt/status"
  apt_of_arm update || return 1
  apt_of_arm install -y --no-install-recommends --download-only "${packages[@]}" || return 1
  for package in "$folder"/apt/cache/archives/*.deb; do
    dpkg -x "$package" "$sysroot" || return 1
  done
  write_mpicxx || return 1
  echo "${packages[*]}" >"$sysroot/packages"
}

missing=()
for tool in aarch64-linux-gnu-g++-12:g++-12-aarch64-linux-gnu qemu-aarch64:qemu-user \
  mpiexec.mpich:mpich; do
  has_command "${tool%%:*}" || missing+=("${tool#*:}")
done
if [ "${#missing[@]}" != 0 ]; then apt_install "${missing[@]}"; fi
mkdir -p -- "$folder"
run_logged "Unpacking a system of arm64" "$folder/sysroot.log" make_sysroot ||
  fail "the packages of arm64 cannot be had: $(tail -n 1 -- "$folder/sysroot.log")"
cmake --preset aarch64
cmake --build --preset aarch64 --parallel "$(build_jobs)" --target unit_tests mpi_tests
cd -- "$folder" && ctest --output-on-failure --no-tests=error --exclude-regex '_np(4|8)$' \
  --timeout 600 --parallel "$(usable_cpus)" "$@"
