#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh Debian 12, Ubuntu 22.04 or 24.04 to a trained network: installs the packages that
# are missing, builds build/bin/train-fashion-mnist, and trains on two ranks.
#
#   scripts/mpirun/quickstart.sh [ARGUMENTS OF train-fashion-mnist...]
#   RANKS=4 scripts/mpirun/quickstart.sh --epochs 2
#
# Once it is built, build/bin/train-fashion-mnist --help lists the arguments.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

has_own_data() {
  local argument
  for argument in "$@"; do
    case $argument in --data | --data=*) return 0 ;; esac
  done
  return 1
}

show_help_if_asked "$@"
install_missing
has_own_data "$@" || install_dataset
build release train-fashion-mnist
say "Training on ${RANKS:-2} ranks"
exec "$root/scripts/mpirun/launch.sh" -np "${RANKS:-2}" "$root/build/bin/train-fashion-mnist" "$@"
