#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes the reference of the public API into build/reference/: cpp/index.html for C++ and C, by
# doxygen, which is installed if it is missing; python/tutti.html, by pydoc, where the package for
# Python can be imported (test.sh --python builds it into build/python/).
#
#   scripts/reference.sh
# shellcheck source-path=SCRIPTDIR source=mpirun/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/mpirun/common.sh"

show_help_if_asked "$@"
cd -- "$root" || exit
has_command doxygen || apt_install doxygen
folder=$root/build/reference
rm -rf -- "$folder"
mkdir -p -- "$folder/python"
doxygen scripts/Doxyfile
say "C++ and C: $folder/cpp/index.html"

export PYTHONPATH=$root/build/python${PYTHONPATH:+:$PYTHONPATH}
python=python3
if [ -x "$root/build/venv/bin/python" ]; then python=$root/build/venv/bin/python; fi
if (cd -- "$folder/python" && "$python" -B -m pydoc -w tutti tutti.mxnet) \
  >"$folder/pydoc.log" 2>&1 && [ -e "$folder/python/tutti.html" ]; then
  say "Python: $folder/python/tutti.html"
else
  say "No reference for Python, because the package cannot be imported here (log:" \
    "$folder/pydoc.log). scripts/mpirun/test.sh --python builds it."
fi
