#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Slurm templates under a real Slurm: warned, saved, requeued, resumed, done."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import launcher
import programs
import verdict
from launcher import weights
from slurm_cluster import Cluster

os.environ["SCRIPTS"] = str(launcher.SCRIPTS)

# A rank that stops in the middle of its first two runs until it is warned, so that no machine is
# too fast to be interrupted. Arguments: the folder of the checkpoints, the program.
PAUSING = """
newest() {
  ls "$folder" 2>/dev/null | sed -n 's/^generation-\\([0-9]*\\)$/\\1/p' | sort -n | tail -n 1
}
folder=$1; shift
attempt=${SLURM_RESTART_COUNT:-0}
least=$(newest); least=$((${least:-0} + 4))
"$@" & program=$!
trap 'kill -CONT $program; kill -USR1 $program' USR1
if [ "$attempt" -lt 2 ]; then
  until [ "$(newest)" -ge "$least" ] 2>/dev/null; do sleep 0.01; done
  kill -STOP $program
  touch "$folder.paused.$attempt.$OMPI_COMM_WORLD_RANK"
fi
wait $program
while kill -0 $program 2>/dev/null; do wait $program; done
wait $program
"""
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")


class Slurm(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="slurm_test.", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.cluster = Cluster(self.folder)
        self.addCleanup(self.cluster.stop)

    def wait_for_state(self, job, *states):
        self.cluster.wait(lambda: self.cluster.job(job)["JobState"] in states)
        return self.cluster.job(job)

    def wait_for_log(self, text):
        self.cluster.wait(lambda: text in self.cluster.log())

    def script(self, text):
        path = self.folder / "program"
        path.write_text("#!/bin/bash\n" + text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def train(self, directory):
        return [programs.program("train-fashion-mnist"), "--data", self.folder / "data", "--epochs",
                "30", "--batch-size", "64", "--hidden", "32,16", "--checkpoint-every", "2",
                "--resume", "auto", "--checkpoint-dir", directory]

    def test_training_that_is_warned_twice_ends_with_the_weights_of_one_that_is_not(self):
        (self.folder / "data").mkdir()
        programs.write_data(self.folder / "data")
        whole, warned = self.folder / "whole", self.folder / "warned"
        result = launcher.launch("-np", 2, *self.train(whole))
        self.assertEqual(result.code, 0, result.err)

        job = self.cluster.submit("slurm_cpu.sh", self.script(PAUSING), warned,
                                  *self.train(warned))
        for attempt in range(2):
            paused = [Path(f"{warned}.paused.{attempt}.{rank}") for rank in range(2)]
            self.cluster.wait(lambda: all(path.exists() for path in paused))
            self.cluster.run("scancel", "--batch", "--signal=USR1", job)
            self.wait_for_log(f"attempt {attempt}, ended with")
        self.wait_for_log("attempt 2, ended with")
        ended = self.wait_for_state(job, *ENDED)
        log = self.cluster.log()
        self.assertEqual((ended["JobState"], ended["Restarts"]), ("COMPLETED", "2"), log)
        for attempt in range(2):
            self.assertIn(f"job {job}, attempt {attempt}, ended with 75\n", log)
        self.assertIn(f"job {job}, attempt 2, ended with 0\n", log)
        self.assertRegex(log, "going on from generation [0-9]+ in ")
        self.assertEqual(weights(warned), weights(whole))

    def test_a_script_that_is_told_to_end_saves_and_does_not_requeue(self):
        program = self.script(f'trap "touch {self.folder}/saved; exit 75" USR1\n'
                              f'touch {self.folder}/ready\nwhile :; do sleep 0.05; done\n')
        job = self.cluster.submit("slurm_cpu.sh", program)
        self.cluster.wait(lambda: (self.folder / "ready").exists())
        self.cluster.run("scancel", "--batch", "--signal=TERM", job)
        ended = self.wait_for_state(job, *ENDED)
        self.assertEqual((ended["JobState"], ended["Restarts"]), ("FAILED", "0"))
        self.assertTrue((self.folder / "saved").exists())
        self.assertIn("attempt 0, ended with 75\n", self.cluster.log())

    def test_a_cancelled_job_ends_and_is_not_requeued(self):
        job = self.cluster.submit("slurm_cpu.sh", self.script(
            f"touch {self.folder}/ready\nwhile :; do sleep 0.05; done\n"))
        self.cluster.wait(lambda: (self.folder / "ready").exists())
        self.cluster.run("scancel", job)
        self.wait_for_log("attempt 0, ended with")
        ended = self.wait_for_state(job, *ENDED)
        self.assertEqual((ended["JobState"], ended["Restarts"]), ("CANCELLED", "0"))

    def test_a_task_of_an_array_that_is_requeued_leaves_the_others_alone(self):
        """The task that starts last has the number of the whole array as its SLURM_JOB_ID."""
        program = self.script(
            f'mine={self.folder}/$1\necho start >> $mine.starts\ntrap "exit 75" USR1\n'
            f'until [ -e {self.folder}/go ]; do sleep 0.05; done\n')
        array = self.cluster.submit("slurm_cpu.sh", program, "task%a", options=(
            "--nodes=1", "--array=0-2"))
        starts = [self.folder / f"task{index}.starts" for index in range(3)]
        self.cluster.wait(lambda: all(path.exists() for path in starts))
        jobs = self.cluster.run("squeue", "-h", "-r", "-o", "%A %F_%K").splitlines()
        named = dict(job.split() for job in jobs)  # the number of the task alone -> array_task
        last = named[array]
        self.cluster.run("scancel", "--batch", "--signal=USR1", last)
        self.wait_for_log(f"job {last}, attempt 0, ended with 75\n")
        again = starts[int(last.partition("_")[2])]
        self.cluster.wait(lambda: len(again.read_text().split()) == 2)
        (self.folder / "go").touch()
        for name in named.values():
            self.wait_for_log(f"job {name}, attempt {int(name == last)}, ended with 0\n")
        counts = [len(path.read_text().split()) for path in starts]
        self.assertEqual(counts, [2 if path == again else 1 for path in starts],
                         self.cluster.log())

    def test_a_failure_is_the_jobs_after_the_restarts(self):
        job = self.cluster.submit("slurm_cpu.sh", self.script("exit 2\n"))
        ended = self.wait_for_state(job, *ENDED)
        self.assertEqual((ended["JobState"], ended["ExitCode"]), ("FAILED", "2:0"))
        self.assertIn("restart 2 of 2.", self.cluster.log())

    def test_srun_starts_a_program_where_it_is_told_to(self):
        self.cluster.environment["MPIRUN"] = "srun"
        job = self.cluster.submit("slurm_cpu.sh", programs.program("kvstore-tour"))
        ended = self.wait_for_state(job, *ENDED)
        self.assertEqual(ended["JobState"], "COMPLETED", self.cluster.log())
        self.assertIn("checks right on 2 ranks\n", self.cluster.log())

    def test_srun_without_pmi_is_refused_in_one_line(self):
        tour = programs.program("kvstore-tour")
        done = subprocess.run(["srun", "--mpi=none", "-N", "2", "-n", "2", tour], text=True,
                              env=self.cluster.environment, stdin=subprocess.DEVNULL, check=False,
                              capture_output=True, timeout=launcher.TIMEOUT_S)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stderr.count("kvstore-tour: error: "), 1, done.stderr)
        self.assertIn("srun --mpi=pmix", done.stderr)
        self.assertNotIn("PMI support", done.stderr)

    def test_each_rank_of_the_gpu_template_sees_one_gpu_of_its_node(self):
        program = self.script('echo "rank $OMPI_COMM_WORLD_RANK gpu $CUDA_VISIBLE_DEVICES"\n')
        job = self.cluster.submit("slurm_gpu.sh", program, options=(
            "--ntasks-per-node=2", "--gpus-per-node=2", "--cpus-per-task=1"))
        ended = self.wait_for_state(job, *ENDED)
        log = self.cluster.log()
        self.assertEqual(ended["JobState"], "COMPLETED", log)
        self.assertEqual(sorted(line for line in log.splitlines() if line.startswith("rank")),
                         ["rank 0 gpu 0", "rank 1 gpu 1", "rank 2 gpu 0", "rank 3 gpu 1"])


if __name__ == "__main__":
    verdict.main()
