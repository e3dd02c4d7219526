#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Code compiled for one instruction set stays in its own objects.

Environment: APPS_NM, the nm program; APPS_KERNEL_OBJECTS, the objects of the variants.
"""

import os
import re
import subprocess
import unittest

# The C++ run-time's own; the same in every object, and data.
SHARED = {"DW.ref.__gxx_personality_v0"}


def linkable_symbols(path):
    """Symbols that the object defines and that the linker may use for others: not lower case."""
    text = subprocess.run([os.environ["APPS_NM"], path], capture_output=True, text=True,
                          check=True).stdout
    for line in text.splitlines():
        found = re.match(r"[0-9a-f]+ ([A-Zu]) (\S+)$", line)
        if found:
            yield found.group(2)


class Kernels(unittest.TestCase):
    def test_no_object_offers_a_symbol_that_another_variant_could_be_given(self):
        objects = os.environ["APPS_KERNEL_OBJECTS"].split()
        self.assertGreater(len(objects), 0)
        for path in objects:
            variant = re.search(r"apps_(kernels_\w+)\.dir", path).group(1)
            foreign = [name for name in linkable_symbols(path)
                       if variant not in name and name not in SHARED]
            self.assertEqual(foreign, [], path)
            self.assertTrue(any("kTable" in name for name in linkable_symbols(path)), path)


if __name__ == "__main__":
    unittest.main()
