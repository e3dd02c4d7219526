# SPDX-License-Identifier: Apache-2.0
"""Kernels as the compiler leaves them: nothing in them rounds otherwise than a CPU does, or spills.

    ptx_test.py PTXAS FOLDER NAME...    what nvcc has kept of each NAME.cu in the folder
"""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PTXAS, FOLDER, *NAMES = sys.argv[1:]
# nvcc keeps a file for each kind of GPU that it compiles for: NAME.compute_80.ptx.
FILES = [file for name in NAMES for file in sorted(Path(FOLDER).glob(f"{name}.*ptx"))]
ARCHITECTURE = re.compile(r"^\.target (sm_\w+)", re.M)
# A fused multiplication and addition rounds once, where a CPU here rounds twice; .ftz makes zero of
# small numbers; .approx is within some units in the last place. Memory that is .local is a thread's
# own array, which has no place in registers.
FORBIDDEN = re.compile(
    r"\b(fma\.\w[\w.]*|[a-z]+\.[\w.]*(?:ftz|approx)[\w.]*|[a-z]+\.local[\w.]*)\b")
KERNEL = re.compile(r"^\s*(?:\.visible |\.weak )?\.entry (\w+)", re.M)
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def forbidden_in(text):
    return sorted({found.group(0) for found in FORBIDDEN.finditer(text)})


def spills_of(file):
    """What each kernel of a PTX file has on its stack, in bytes: frame, stores, loads."""
    architecture = ARCHITECTURE.search(file.read_text()).group(1)
    done = subprocess.run([PTXAS, "-v", f"--gpu-name={architecture}", file, "-o", "/dev/null"],
                          capture_output=True, text=True, check=True)
    return [tuple(map(int, found)) for found in SPILLS.findall(done.stderr)]


class Kernels(unittest.TestCase):
    def test_what_is_forbidden_is_found(self):
        for line, expected in (
                ("fma.rn.f32 %f1, %f2, %f3, %f4;", ["fma.rn.f32"]),
                ("add.ftz.f32 %f1, %f2, %f3;", ["add.ftz.f32"]),
                ("sqrt.approx.f32 %f1, %f2;", ["sqrt.approx.f32"]),
                ("st.local.u32 [%rd1], %r1;", ["st.local.u32"]),
                ("mul.rn.f32 %f1, %f2, %f3; div.rn.f32 %f1, %f2, %f3; ld.global.v4.u32", [])):
            self.assertEqual(forbidden_in(line), expected, line)

    def test_a_spill_is_found(self):
        body = "\n".join(f"ld.global.u32 %r{i}, [%rd1+{4 * i}];" for i in range(200))
        body += "\nbar.sync 0;\n"
        body += "\n".join(f"st.global.u32 [%rd1+{4 * i}], %r{199 - i};" for i in range(200))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "spills.ptx"
            file.write_text(f"""
                .version 7.8\n.target sm_80\n.address_size 64
                .visible .entry spills(.param .u64 memory) .maxntid 1024, 1, 1 {{
                .reg .b32 %r<200>; .reg .b64 %rd<2>;
                ld.param.u64 %rd1, [memory];\n{body}\nret;\n}}""")
            self.assertGreater(spills_of(file)[0][1], 0)

    def test_the_text_of_each_source_is_there(self):
        self.assertEqual({file.name.partition(".")[0] for file in FILES}, set(NAMES))

    def test_kernels_compute_what_a_cpu_computes(self):
        for file in FILES:
            with self.subTest(file=file.name):
                self.assertEqual(forbidden_in(file.read_text()), [])

    def test_kernels_keep_what_they_need_in_registers(self):
        for file in FILES:
            with self.subTest(file=file.name):
                spills = spills_of(file)
                self.assertGreaterEqual(len(spills), len(KERNEL.findall(file.read_text())))
                self.assertGreater(len(spills), 0)
                self.assertEqual(set(spills), {(0, 0, 0)})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
