# SPDX-License-Identifier: Apache-2.0
"""The end of a test program in Python: 77 where nothing could be tested; ctest says skipped.

A test that lacks something raises unittest.SkipTest with the reason: unittest takes a SystemExit in
a test for a failure of it. A test of which some subtests were skipped and others ran has run.
"""

import sys
import unittest


class Result(unittest.TextTestResult):
    """Knows the tests of which a subtest has run; unittest calls this for none that was skipped."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.partly_run = set()

    def addSubTest(self, test, subtest, err):  # noqa: N802: unittest's name
        super().addSubTest(test, subtest, err)
        self.partly_run.add(test.id())


def main():
    runner = unittest.TextTestRunner(resultclass=Result)
    if "-v" in sys.argv:
        runner.verbosity = 2
    result = unittest.main(module="__main__", exit=False, testRunner=runner).result
    for _, reason in result.skipped:
        print(f"skipped: {reason}", file=sys.stderr)
    if not result.wasSuccessful():
        sys.exit(1)
    skipped = {getattr(test, "test_case", test).id() for test, _ in result.skipped}
    sys.exit(77 if skipped and result.testsRun <= len(skipped - result.partly_run) else 0)
