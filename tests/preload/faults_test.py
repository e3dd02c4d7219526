#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that know MPI alone and in which a rank goes wrong: with the preloaded library it is
named.

    faults_test.py [-v] [TestCase.test]

Environment: see jobs.py.
"""

import re
import unittest

from jobs import HAS_FORTRAN, IS_OPEN_MPI, PROGRAMS, run

# The last rank's fault; the variables; what is said of it.
FAULTS = (
    ("absent", {"TUTTI_TIMEOUT": "2"}, (r"MPI_Allreduce of 1 MPI_INT\w* with MPI_SUM on grid rows",
                                        r"waited 2\S* s for rank 2 .*, which did not arrive")),
    ("stopped", {"TUTTI_TIMEOUT": "2"}, (r"waited 2\S* s for rank 2 .*stopped",)),
    ("finalizes", {}, (r"rank 2 .* left before this call",)),
    ("killed", {}, (r"rank 2 ",)),
    ("counts", {}, (r"MPI_Allreduce of 2 MPI_INT", r"MPI_Allreduce of 1 MPI_INT")),
    ("roots", {}, (r"of 1 MPI_INT\w* with root 0 on", r"of 1 MPI_INT\w* with root 1 on")),
    ("calls", {}, (r"MPI_Bcast of 1 MPI_INT", r"MPI_Barrier on grid rows")),
)
# Those of the program in C alone.
MORE_FAULTS = (
    ("types", {}, (r"of 1 MPI_INT with MPI_SUM", r"of 1 MPI_FLOAT with MPI_SUM")),
    ("operations", {}, (r"of 1 MPI_INT with MPI_SUM", r"of 1 MPI_INT with MPI_MAX")),
    ("empty", {"TUTTI_TIMEOUT": "20"}, (r"MPI_Bcast with root 0 on", r"MPI_Barrier on grid rows")),
    ("empty roots", {"TUTTI_TIMEOUT": "20"}, (r"MPI_Bcast with root 0 on grid rows",
                                              r"MPI_Bcast with root 1 on grid rows")),
    ("logical", {"TUTTI_TIMEOUT": "20"}, (r"of 1 MPI_INT with MPI_LOR", r"with MPI_LAND")),
    ("gathered", {"TUTTI_TIMEOUT": "20"}, (r"MPI_Gatherv on grid rows", r"MPI_Scan on grid rows")),
    ("exits", {}, (r"rank 2 ",)),
)


# Calls of blocked.c and blocked.F90 that wait, as they are shown.
WITH_BUFFERS = (
    "MPI_Send (dest 0, tag 7) on grid rows", "MPI_Ssend (dest 0, tag 7) on grid rows",
    "MPI_Recv (source 0, tag 7) on grid rows",
    "MPI_Sendrecv (dest none, tag 7, source 0, tag 8) on grid rows",
    "MPI_Sendrecv_replace (dest 0, tag 7, source 0, tag 8) on grid rows",
)
BLOCKED = WITH_BUFFERS + (
    "MPI_Probe (source any, tag any) on MPI_COMM_WORLD",
    "MPI_Mprobe (source 0, tag 7) on grid rows", "MPI_Wait", "MPI_Waitall (requests 2)",
    "MPI_Waitany (requests 2)", "MPI_Waitsome (requests 2)", "MPI_Win_fence",
    "MPI_Comm_dup on grid rows", "MPI_Comm_dup_with_info on grid rows",
    "MPI_Comm_create on grid rows", "MPI_Comm_split on grid rows",
    "MPI_Comm_split_type on grid rows", "MPI_Cart_create on grid rows",
    "MPI_Cart_sub on grid rows",
)
# MPI's own functions, in which a rank answers no other node.
WITHOUT_ANSWERS = ("MPI_Sendrecv_replace", "MPI_Win_fence")


class Faults(unittest.TestCase):
    def fault(self, name, *words, program="preload_fault", **variables):
        return run([PROGRAMS / program, name, *words], 3, **variables)

    def check(self, program, faults):
        for name, variables, expected in faults:
            if name in ("killed", "exits") and not IS_OPEN_MPI:
                continue  # MPICH's launcher kills the others at once, and says what it says
            with self.subTest(program=program, fault=name):
                status, _, errors = self.fault(name, program=program, **variables)
                for pattern in expected:
                    self.assertRegex(errors, pattern)
                self.assertNotEqual(status, 0)

    def test_a_rank_that_goes_wrong_is_named(self):
        self.check("preload_fault", FAULTS + MORE_FAULTS)

    @unittest.skipUnless(HAS_FORTRAN, "there is no compiler of Fortran for this MPI")
    def test_also_in_fortran(self):
        self.check("preload_fault_fortran", FAULTS)

    def test_what_a_rank_does_on_another_communicator_is_said(self):
        two = {"TUTTI_RANKS_PER_NODE": "2"}
        for nodes, words, variables in ((1, (), {}), (2, (), two), (2, ("threads",), two)):
            with self.subTest(nodes=nodes, words=words):
                status, _, errors = self.fault("elsewhere", *words, TUTTI_TIMEOUT="2", **variables)
                self.assertRegex(errors, r"MPI_Allreduce of 1 MPI_INT with MPI_SUM on grid rows .*"
                                 r" waited \S+ s for rank 2 .*, which did not arrive; rank 2 "
                                 r".*waits in MPI_Barrier on grid columns \(call 2 .*\) for \S+ s")
                self.assertNotEqual(status, 0)

    def test_the_first_call_on_a_communicator_has_a_deadline(self):
        for nodes, variables, missing in (
                (1, {}, r"for rank 0 \(rank 2 of the job, .*\), which did not arrive; rank 0 waits "
                        r"in MPI_Recv \(source 0, tag 7\) on grid rows for \S+ s; see"),
                (2, {"TUTTI_RANKS_PER_NODE": "2"},
                 r"for rank 0 \(rank 2 of the job, .*\), which did not arrive; see"),
                (3, {"TUTTI_RANKS_PER_NODE": "1"},
                 r"for some of ranks 0 and [12] \(.*\), which did not arrive; see")):
            with self.subTest(nodes=nodes):
                status, _, errors = self.fault("first", TUTTI_TIMEOUT="1", **variables)
                said = re.findall(r"error: the first call on fresh rows: rank [12] \(rank [01] of "
                                  r"the job, .*\) waited 1 s (for .*)", errors)
                self.assertTrue(said, errors)
                for text in said:
                    self.assertRegex(text, missing)
                self.assertNotEqual(status, 0)

    def check_blocked(self, program, blocked=BLOCKED, **variables):
        for first in range(0, len(blocked), 3):
            calls = blocked[first:first + 3]
            names = [call.split()[0] for call in calls]
            with self.subTest(program=program, calls=names):
                status, _, errors = run([PROGRAMS / program, *names], 1 + len(calls),
                                        TUTTI_TIMEOUT="1", **variables)
                self.assertRegex(errors, "MPI_Barrier on MPI_COMM_WORLD .* did not arrive")
                for rank, call in enumerate(calls, 1):
                    said = rf"(?i); rank {rank} [^;]*waits in {re.escape(call)}[^;]* for \S+ s[; ]"
                    self.assertRegex(errors, said)
                self.assertNotEqual(status, 0)

    def test_a_rank_that_waits_in_another_call_of_mpi_is_named_with_it(self):
        self.check_blocked("preload_blocked")

    def test_also_one_of_another_node(self):
        answering = [call for call in BLOCKED if call.split()[0] not in WITHOUT_ANSWERS]
        self.check_blocked("preload_blocked", answering, TUTTI_RANKS_PER_NODE="1")
        if HAS_FORTRAN and IS_OPEN_MPI:
            self.check_blocked("preload_blocked_fortran", answering, TUTTI_RANKS_PER_NODE="1")

    @unittest.skipUnless(HAS_FORTRAN, "there is no compiler of Fortran for this MPI")
    def test_also_in_one_of_fortran(self):
        self.check_blocked("preload_blocked_fortran")
        # Functions of MPICH's module mpi_f08 that have no buffer are not taken.
        self.check_blocked("preload_blocked_f08", BLOCKED if IS_OPEN_MPI else WITH_BUFFERS)

    def test_errors_are_returned_on_all_ranks_to_who_asks_for_that(self):
        for name, variables, ranks in (("counts", {}, 3), ("roots", {}, 3), ("types", {}, 3),
                                       ("late", {"TUTTI_TIMEOUT": "1"}, 2)):
            with self.subTest(fault=name):
                status, output, errors = self.fault(name, "return", **variables)
                told = re.findall(r"^rank (\d): .*rank 2", output, re.MULTILINE)
                self.assertEqual(sorted(told)[:ranks], ["0", "1", "2"][:ranks], output + errors)
                self.assertEqual(status, 0, errors)

    def test_after_many_of_them_all_ranks_still_go_the_same_way(self):
        status, output, errors = self.fault("calls", "return")
        self.assertRegex(output, r"rank 0: .*MPI_Bcast of 1 MPI_INT with root 0 on")
        self.assertIn("then 3, 0 wrong", output, errors)
        self.assertEqual(status, 0, errors)

    def test_an_error_of_one_rank_alone_is_its_own(self):
        for name in ("refused", "uncommitted"):
            for variables in ({}, {"TUTTI_TIMEOUT": "20"}):
                with self.subTest(fault=name, **variables):
                    if name == "refused" and not IS_OPEN_MPI:
                        self.skipTest("MPICH 4.0 and 5.0 crash in MPI_Allreduce of -1 elements, "
                                      "also without the library")
                    status, output, errors = self.fault(name, "return", **variables)
                    self.assertEqual((status, output), (0, "then 3, 0 wrong\n"), errors)

    def test_a_program_that_goes_on_after_a_failure_sees_it_once(self):
        status, _, errors = self.fault("late", "return", TUTTI_TIMEOUT="1")
        self.assertEqual(errors.count("error: "), 1, errors)
        self.assertEqual(status, 0, errors)

    def test_a_program_may_abort(self):
        status, _, errors = self.fault("aborts")
        self.assertEqual(status, 7, errors)

    def test_a_setting_that_is_wrong_ends_the_job(self):
        status, _, errors = self.fault("", TUTTI_TIMEOUT="soon")
        self.assertIn("TUTTI_TIMEOUT", errors)
        self.assertNotEqual(status, 0)


if __name__ == "__main__":
    unittest.main()
