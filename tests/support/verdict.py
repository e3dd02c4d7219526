# SPDX-License-Identifier: Apache-2.0
"""The end of a test program in Python: 77 where nothing could be tested; ctest says skipped.

A test that lacks something raises unittest.SkipTest with the reason: unittest takes a SystemExit in
a test for a failure of it. A test whose other parts ran is not skipped, if a part of it is.
"""

import sys
import unittest


def main():
    result = unittest.main(module="__main__", exit=False).result
    for _, reason in result.skipped:
        print(f"skipped: {reason}", file=sys.stderr)
    if not result.wasSuccessful():
        sys.exit(1)
    whole = [test for test, _ in result.skipped if not hasattr(test, "test_case")]
    sys.exit(77 if whole and result.testsRun <= len(whole) else 0)
