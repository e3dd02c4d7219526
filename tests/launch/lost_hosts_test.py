#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which hosts launch.sh starts a job on again, when some do not answer."""

import os
import re
import subprocess
import unittest

import launcher
import verdict
from launcher import launch

# The hosts of the next start, and then its exit code; a line per start. The hosts in `silent` do
# not answer after that start.
MPIRUN = """
echo "$@" >> {folder}/starts
start=$(wc -l < {folder}/starts)
sed -n "${{start}}p" {folder}/losses > {folder}/silent
[ "$start" -lt "$(wc -l < {folder}/losses)" ] || exit 0
exit 9
"""
AGENT = """
echo "$*" >> {folder}/asked
case "$*" in *"rm -rf"*) echo answer-42; exit ;; esac  # this host has the same memory
case " $(cat {folder}/silent) " in *" $1 "*) {dead} ;; esac
shift
exec bash -c "$*"
"""
PICKED = {  # ranks, least, hosts: what pick_hosts prints, and whether it is enough
    "4 4 a:4 b:4": ("4 a:4", True),
    "5 5 a:4 b:4": ("5 a:4 b:4", True),
    "8 8 a:4 b:4": ("8 a:4 b:4", True),
    "9 9 a:4 b:4": ("8 a:4 b:4", False),
    "9 8 a:4 b:4": ("8 a:4 b:4", True),
    "9 1 ::1:4": ("4 ::1:4", True),
    "1 1": ("0", False),
}
LISTS = {  # a file of hosts: its hosts and slots, as a hostfile and as PBS's
    "a slots=4\nb  slots=2 # the last\n\n": ("a:4 b:2", "a:4 b:2"),
    "a\na\nb\nb\nb\n": ("a:2 b:3", "a:2 b:3"),
    "a\na\nb\n": (None, "a:2 b:1"),
    "a slots=2\na slots=1\n": ("a:3", "a:3"),
    "a slots=4 max_slots=4\n": ("a:4", "a:4"),
}


class LostHosts(launcher.Folder):
    def in_bash(self, command, *arguments):
        done = subprocess.run(
            ["bash", "-c", f'source {launcher.SCRIPTS}/lost_hosts.sh; {command} "$@"', "bash",
             *arguments], capture_output=True, text=True, check=False, timeout=600,
            env=launcher.environment(PATH=f"{self.folder}:/usr/bin:/bin"))
        self.assertEqual(done.stderr, "")
        return done

    def test_the_first_hosts_that_have_slots_for_all_ranks_are_picked(self):
        for given, (printed, is_enough) in PICKED.items():
            with self.subTest(given):
                done = self.in_bash("pick_hosts", *given.split())
                self.assertEqual((done.stdout.strip(), done.returncode == 0), (printed, is_enough))

    def test_lists_of_hosts(self):
        for text, expected in LISTS.items():
            for one, hosts in zip(("", "one"), expected):
                with self.subTest(text=text, one=one):
                    path = self.folder / "list"
                    path.write_text(text, encoding="utf-8")
                    done = self.in_bash("slots_in", path, one)
                    self.assertEqual(done.returncode, 0 if hosts else 1)
                    if hosts:
                        self.assertEqual(done.stdout.split(), hosts.split())
        done = self.in_bash("slots_of_words", "a:4,b,c:2,b")
        self.assertEqual(done.stdout.split(), ["a:4", "b:2", "c:2"])
        self.script("scontrol", '[ "$*" = "show hostnames n[1-3]" ] && printf "n1\\nn2\\nn3\\n"')
        for tasks, hosts in (("8(x3)", "n1:8 n2:8 n3:8"), ("8(x2),4", "n1:8 n2:8 n3:4")):
            done = self.in_bash("slots_of_slurm", "n[1-3]", tasks)
            self.assertEqual(" ".join(done.stdout.split()), hosts)

    def start(self, *options, losses=(), dead="exit 255", **changed):
        """The result of launch.sh, and the words of each start about hosts and ranks."""
        (self.folder / "starts").unlink(missing_ok=True)
        (self.folder / "losses").write_text("".join(f"{names}\n" for names in [*losses, ""]),
                                            encoding="utf-8")
        agent = self.script("agent", AGENT.format(folder=self.folder, dead=dead))
        result = launch("--max-restarts", 5, *options, "true", OMPI_MCA_plm_rsh_agent=agent,
                        **changed, MPIRUN=self.fake_mpirun(body=MPIRUN.format(folder=self.folder)))
        path = self.folder / "starts"
        starts = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return result, [re.sub(" ?-x LAUNCH_JOB=[0-9a-f]{16}| true$", "", start).strip()
                        for start in starts]

    def test_the_next_start_is_on_hosts_that_answer(self):
        rows = [  # options, who does not answer after each start, the starts, what is said
            ("--host a:2,b:2,c:2 --spares 1", ["b"],
             ["--host a:2,b:2 -np 4", "--host a:2,c:2 -np 4"],
             "b did not answer: 4 of 4 ranks start on a:2,c:2."),
            ("--host a:2,b:2,c:2 --spares 1", ["b", "", "a"],
             ["--host a:2,b:2 -np 4", "--host a:2,c:2 -np 4", "--host a:2,b:2 -np 4",
              "--host b:2,c:2 -np 4"], "no host did not answer"),
            ("--host a:2,b:2,c:2 -np 4", ["", "b"],
             ["-np 4 --host a:2,b:2,c:2"] * 2 + ["--host a:2,c:2 -np 4"], "b did not answer"),
            ("--host a:2,b:2,c:2 --min-ranks 2", ["b", "b c"],
             ["--host a:2,b:2,c:2", "--host a:2,c:2 -np 4", "--host a:2 -np 2"],
             "b c did not answer: 2 of 6 ranks start on a:2."),
            ("--host a:2,b:2 -np 4", ["b"], ["-np 4 --host a:2,b:2"] * 2,
             "none is left out"),
        ]
        for options, losses, starts, said in rows:
            with self.subTest(options=options, losses=losses):
                result, seen = self.start(*options.split(), losses=losses)
                self.assertEqual((result.code, seen), (0, starts), result.err)
                self.assertIn(said, result.err)

    def test_the_memory_of_every_host_that_had_ranks_is_removed_at_the_end(self):
        for options, losses, code in (("-np 6", ["b"], 9), ("--spares 1", ["b", ""], 0)):
            with self.subTest(options=options):
                result, _ = self.start("--snapshot-every", 1, "--host", "a:2,b:2,c:2",
                                       *options.split(), losses=losses)
                self.assertEqual(result.code, code, result.err)
                asked = (self.folder / "asked").read_text(encoding="utf-8")
                self.assertRegex(asked, "(?m)^c bash -c 'rm -rf -- /dev/shm/tutti-[0-9a-f]{32};")
                (self.folder / "asked").unlink()

    def test_too_few_hosts_end_the_job_with_its_own_code(self):
        for options, lost in (("--spares 1", "b c"), ("-np 5", "b"), ("--min-ranks 3", "b c")):
            with self.subTest(options=options):
                result, starts = self.start("--host", "a:2,b:2,c:2", *options.split(),
                                            losses=[lost, ""])
                self.assertEqual((result.code, len(starts)), (9, 1), result.err)
                self.assertRegex(result.err, f"{lost} did not answer, and the other hosts have "
                                             "slots for [24] of [456] ranks, so the job is not")

    def test_a_host_is_asked_twice_before_the_job_ends_for_it(self):
        for options in ("--min-ranks 4", "--spares 1"):
            asked = self.folder / options
            asked.mkdir()
            first = f"[ -e '{asked}'/$1 ] || {{ touch '{asked}'/$1; exit 255; }}"
            result, starts = self.start("--host", "a:2,b:2,c:2", *options.split(),
                                        losses=["b c"], dead=first)
            self.assertEqual((result.code, len(starts)), (0, 2), result.err)

    def test_a_slurm_job_asks_by_srun_and_is_queued_again_when_too_few_are_left(self):
        self.script("scontrol", 'printf "n1\\nn2\\nn3\\n"')
        self.script("srun", 'until [ "$1" = bash ]; do host=${1#--nodelist=}; shift; done\n'
                            f'touch {self.folder}/was_asked\n'
                            f'case " $(cat {self.folder}/silent) " in *" $host "*) exit 1 ;; esac\n'
                            'exec "$@"\n')
        for losses, starts, code in (
                (["n2"], ["--host n1:2,n2:2 -np 4", "--host n1:2,n3:2 -np 4"], 0),
                (["n2 n3"], ["--host n1:2,n2:2 -np 4"], 75)):
            with self.subTest(losses=losses):
                result, seen = self.start(
                    "--spares", 1, losses=losses, SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n[1-3]",
                    SLURM_TASKS_PER_NODE="2(x3)", PATH=f"{self.folder}:{os.environ['PATH']}")
                self.assertEqual((result.code, seen), (code, starts), result.err)
                self.assertTrue((self.folder / "was_asked").exists())

    def test_a_host_whose_shell_hangs_is_not_waited_for(self):
        result, starts = self.start("--host", "a:2,b:2", "--spares", 1, losses=["a"],
                                    dead="sleep 600", LAUNCH_ANSWER_S="2")
        self.assertEqual((result.code, starts[1]), (0, "--host b:2 -np 2"), result.err)

    def test_a_launcher_that_starts_no_rank_is_ended(self):
        body = f"[ -e {self.folder}/again ] && exit 0\ntouch {self.folder}/again\nexec sleep 600\n"
        agent = self.script("agent", 'shift\nexec bash -c "$*"\n')
        result = launch("--max-restarts", 1, "--host", "localhost:2,b:2", "true", TUTTI_GRACE=".7",
                        OMPI_MCA_plm_rsh_agent=agent, MPIRUN=self.fake_mpirun(body=body))
        self.assertEqual(result.code, 0, result.err)
        self.assertIn("no rank has started on any host for 10 s: the launcher is ended, too",
                      result.err)

    def test_a_host_that_was_left_out_does_not_keep_such_a_launcher(self):
        hang = self.script("hang", f"""
            start=$(cat {self.folder}/start); echo $((start + 1)) >{self.folder}/start
            case $start in 1) exit 9 ;; 2) exec sleep 600 ;; esac
            """)
        (self.folder / "start").write_text("1", encoding="utf-8")
        agent = self.script("agent", '[ "$1" != b ] || exit 255\nshift\nexec bash -c "$*"\n')
        result = launch("--max-restarts", 2, "--spares", 1, "--host", "localhost:2,b:2,c:2",
                        "true", TUTTI_GRACE=".7", OMPI_MCA_plm_rsh_agent=agent,
                        MPIRUN=self.fake_mpirun(body=f"exec {hang}"))
        self.assertEqual(result.code, 0, result.err)
        self.assertIn("ranks start on localhost:2,c:2", result.err)
        self.assertIn("no rank has started on any host for 10 s", result.err)

    def test_a_launcher_on_a_host_without_ranks_may_take_its_time(self):
        agent = self.script("agent", 'shift\nexec bash -c "$*"\n')
        result = launch("--max-restarts", 1, "--host", "a:2,b:2", "true", TUTTI_GRACE=".7",
                        OMPI_MCA_plm_rsh_agent=agent, MPIRUN=self.fake_mpirun(body="sleep 13\n"))
        self.assertEqual((result.code, result.err), (0, ""))

    def test_values_that_mean_nothing_are_refused(self):
        for options, said in [
                ("--host a:2,b:2 --spares 2", "--spares 2 leaves none of 2 hosts to start on"),
                ("--host a:2,b:2 --spares 1 -np 3", "leaves slots for 2 ranks, not for 3"),
                ("--host a:2,b:2 --min-ranks 5", "more than the 4 ranks of the job"),
                ("--host a:2,b:2 --spares 0", "--spares takes a number from 1 on, not '0'"),
                ("--host a:2,b:2 --spares 1 -N 2", "--spares needs Open MPI's launcher, and hosts"),
                ("--min-ranks 2 -np 2", "--min-ranks needs Open MPI's launcher, and hosts"),
                ("--max-restarts 0 --spares 1 --host a,b", "need --max-restarts")]:
            with self.subTest(options=options):
                result, starts = self.start(*options.split())
                self.assertEqual((result.code, starts), (1, []), result.err)
                self.assertIn(said, result.err)


if __name__ == "__main__":
    verdict.main()
