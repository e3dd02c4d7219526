#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PBS templates, with programs that answer as qsub, qstat and mpirun would.

No PBS takes part: what its versions do beyond these answers is not tested.
"""

import signal
import subprocess
import time
import unittest

import launcher
import verdict

MPIRUN = """
printf '%s ' "$@" >> {folder}/command; echo >> {folder}/command
trap 'exit 75' USR1
touch {folder}/ready
{work}
"""


class Pbs(launcher.Folder):
    def setUp(self):
        super().setUp()
        self.nodes = self.folder / "nodes"
        self.nodes.write_text("n1\nn1\nn2\nn2\n", encoding="utf-8")
        self.script("qsub", f'echo "$@" >> {self.folder}/submitted; echo 8.server')

    def start(self, template, work, walltime="04:00:00"):
        self.script("qstat", f'[ "$*" = "-f 7.server" ] || exit 1\n'
                             f'echo "    Resource_List.walltime = {walltime}"')
        mpirun = self.fake_mpirun(body=MPIRUN.format(folder=self.folder, work=work))
        source = launcher.SCRIPTS.parents[1]
        environment = launcher.environment(
            MPIRUN=mpirun, PBS_NODEFILE=str(self.nodes), PBS_JOBID="7.server",
            PBS_O_WORKDIR=str(source), SCRIPTS=str(launcher.SCRIPTS))
        environment["PATH"] = f"{self.folder}:{environment['PATH']}"
        program = self.script("my-program", "")
        text = (launcher.SCRIPTS / template).read_text(encoding="utf-8")
        for there in ("./my-program", "build/bin/train-fashion-mnist"):
            text = text.replace(there, program)
        return subprocess.Popen(["bash", "-c", text], env=environment, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def run_template(self, template, work, walltime="04:00:00"):
        process = self.start(template, work, walltime)
        out, err = process.communicate(timeout=launcher.TIMEOUT_S)
        return launcher.Result(process.returncode, out, err)

    def submitted(self):
        path = self.folder / "submitted"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def test_the_ranks_are_those_of_the_list_of_nodes(self):
        for template, binder in (("pbs_cpu.sh", ""), ("pbs_gpu.sh", "bind_gpu.sh ")):
            result = self.run_template(template, "exit 0")
            self.assertEqual(result.code, 0, result.err)
            self.assertRegex(result.out, "job 7.server on n1 n2 \n.* job 7.server ended with 0\n$")
            command = (self.folder / "command").read_text(encoding="utf-8").splitlines()[-1]
            self.assertRegex(command, f"^--hostfile {self.nodes} -x TUTTI_TIMEOUT "
                                      f"(/.*/)?{binder}/.*/my-program --checkpoint-dir run")
            self.assertEqual(self.submitted(), "")

    def test_the_warning_before_the_limit_saves_and_submits_again(self):
        for template in ("pbs_cpu.sh", "pbs_gpu.sh"):
            result = self.run_template(template, "while :; do sleep 0.05; done", "00:02:01")
            self.assertEqual(result.code, 75, result.err)
            self.assertRegex(result.out, "ended with 75\n.* submitted again as 8.server\n$")
            self.assertEqual(self.submitted().splitlines()[-1], f"scripts/mpirun/{template}")

    def test_a_job_that_its_user_ends_saves_and_is_not_submitted_again(self):
        process = self.start("pbs_cpu.sh", "while :; do sleep 0.05; done")
        deadline = time.monotonic() + launcher.TIMEOUT_S
        while not (self.folder / "ready").exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=launcher.TIMEOUT_S)
        self.assertEqual(process.returncode, 75, err)
        self.assertRegex(out, "ended with 75\n$")
        self.assertEqual(self.submitted(), "")

    def test_a_failure_is_started_again_here_and_then_passed_on(self):
        result = self.run_template("pbs_cpu.sh", "exit 2")
        self.assertEqual(result.code, 2)
        self.assertEqual(result.err.count("launch.sh: the job ended with 2; restart "), 2)
        self.assertEqual(self.submitted(), "")

    def test_without_a_walltime_the_log_says_that_there_is_no_warning(self):
        result = self.run_template("pbs_cpu.sh", "exit 0", walltime="")
        self.assertIn("no walltime found for 7.server: there will be no warning", result.out)


if __name__ == "__main__":
    verdict.main()
