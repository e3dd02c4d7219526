# SPDX-License-Identifier: Apache-2.0
"""The end of a test program in Python: 77 where nothing could be tested; ctest says skipped.

A test that lacks something raises unittest.SkipTest with the reason: unittest takes a SystemExit in
a test for a failure of it.
"""

import sys
import unittest


def main():
    result = unittest.main(module="__main__", exit=False).result
    for _, reason in result.skipped:
        print(f"skipped: {reason}", file=sys.stderr)
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.skipped and result.testsRun <= len(result.skipped) else 0)
