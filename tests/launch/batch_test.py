#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PBS templates, with programs that answer as qsub, qstat and mpirun would.

No PBS takes part: what its versions do beyond these answers is not tested.
"""

import re
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
        self.template = ""  # the text of an edited copy
        self.nodes = self.folder / "nodes"
        self.nodes.write_text("n1\nn1\nn2\nn2\n", encoding="utf-8")
        self.script("qsub", f'echo "$1 $2" > {self.folder}/submitted; '
                            f'cat "${{3:-/dev/stdin}}" >> {self.folder}/submitted; '
                            "echo 8.server")

    def start(self, template, work, walltime="04:00:00", named=True, job="7.server", **variables):
        """As PBS does: by its name, the copy that it has made of the script when it got it."""
        self.script("qstat", f'[ "$*" = "-f {job}" ] || exit 1\n'
                             f'echo "    Resource_List.walltime = {walltime}"')
        mpirun = self.fake_mpirun(body=MPIRUN.format(folder=self.folder, work=work))
        source = launcher.SCRIPTS.parents[1]
        environment = launcher.environment(
            MPIRUN=mpirun, PBS_NODEFILE=str(self.nodes), PBS_JOBID=job,
            PBS_O_WORKDIR=str(source), SCRIPTS=str(launcher.SCRIPTS), **variables)
        environment["PATH"] = f"{self.folder}:{environment['PATH']}"
        program = self.script("my-program", "")
        text = self.template or (launcher.SCRIPTS / template).read_text(encoding="utf-8")
        for there in ("./my-program", "build/bin/train-fashion-mnist"):
            text = text.replace(there, program)
        self.copy = self.folder / "7.server.SC"
        self.copy.write_text(text, encoding="utf-8")
        return subprocess.Popen(["bash", self.copy] if named else ["bash", "-c", text], text=True,
                                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def run_template(self, *arguments, **options):
        process = self.start(*arguments, **options)
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
                                      "-x LAUNCH_JOB=[0-9a-f]+ "
                                      f"(/.*/)?{binder}/.*/my-program --checkpoint-dir run")
            self.assertEqual(self.submitted(), "")

    def test_the_warning_before_the_limit_saves_and_submits_the_edited_script_again(self):
        for template in ("pbs_cpu.sh", "pbs_gpu.sh"):
            # 5 s, in which launch.sh has come to listen to signals, and mpirun too.
            result = self.run_template(template, "while :; do sleep 0.05; done", "00:02:05")
            self.assertEqual(result.code, 75, result.err)
            self.assertRegex(result.out, "ended with 75\n.* submitted again as 8.server\n$")
            self.assertEqual(self.submitted().partition("\n")[2],
                             self.copy.read_text(encoding="utf-8"))

    def test_the_next_job_gets_the_settings_of_this_one(self):
        result = self.run_template("pbs_cpu.sh", "exit 75", MAX_RESTARTS="1", TUTTI_LOG="quiet",
                                   TUTTI_ALGORITHMS="exchange=direct,handshakes=direct")
        self.assertEqual(result.code, 75, result.err)
        option, names = self.submitted().splitlines()[0].split()
        self.assertEqual((option, set(names.split(","))), ("-v", {
            "MAX_RESTARTS", "MPIRUN", "SCRIPTS", "TUTTI_ALGORITHMS", "TUTTI_LOG", "TUTTI_TIMEOUT"}))

    def test_a_task_of_an_array_submits_itself_alone_and_keeps_its_number(self):
        text = (launcher.SCRIPTS / "pbs_cpu.sh").read_text(encoding="utf-8")
        text = text.replace("--checkpoint-dir run", '--checkpoint-dir "run-$TASK"')
        for line, name in (("#PBS -J 0-9\n", "PBS_ARRAY_INDEX"), ("#PBS -t 0-9\n", "PBS_ARRAYID")):
            self.template = text.replace("#PBS -j oe\n", "#PBS -j oe\n" + line)
            result = self.run_template("pbs_cpu.sh", "exit 75", job="7[3].server", **{name: "3"})
            self.assertEqual(result.code, 75, result.err)
            options, _, script = self.submitted().partition("\n")
            self.assertIn("TASK", options.split()[1].split(","))
            self.assertEqual(script, self.copy.read_text(encoding="utf-8").replace(line, ""))
            self.assertIn("--checkpoint-dir run-3 ",
                          (self.folder / "command").read_text(encoding="utf-8"))
        # The job that follows is none of an array.
        result = self.run_template("pbs_cpu.sh", "exit 0", job="8.server", TASK="4")
        self.assertIn("--checkpoint-dir run-4 ",
                      (self.folder / "command").read_text(encoding="utf-8").splitlines()[-1])

    def test_a_submission_that_fails_is_said_and_is_exit_code_2(self):
        self.script("qsub", "echo no queue >&2; exit 1")
        result = self.run_template("pbs_cpu.sh", "exit 75")
        self.assertEqual(result.code, 2)
        self.assertRegex(result.err, "^launch.sh: 75 says that the job has saved itself and can go "
                                     "on; it is no failure, .*\nno queue\n$")
        self.assertRegex(result.out, "qsub failed: this job is not submitted again\n$")

    def test_a_job_that_does_not_know_its_script_ends_at_once_unless_it_is_told(self):
        result = self.run_template("pbs_cpu.sh", "exit 75", named=False)
        self.assertEqual(result.code, 1)
        self.assertRegex(result.out, "^[^\n]* PBS does not say which file this script is.*"
                                     "qsub -v THIS_SCRIPT=/path/to/it\n$")
        self.assertFalse((self.folder / "ready").exists())
        mine = self.script("my.sh", "mine\n")
        result = self.run_template("pbs_cpu.sh", "exit 75", named=False, THIS_SCRIPT=mine)
        self.assertEqual(result.code, 75, result.err)
        self.assertRegex(self.submitted(), "(?s)^-v .*THIS_SCRIPT.*\nmine\n$")

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

    def test_a_lost_node_is_replaced_by_a_spare_one_or_the_job_is_submitted_again(self):
        self.nodes.write_text("n1\nn1\nn2\nn2\nn3\nn3\n", encoding="utf-8")
        text = (launcher.SCRIPTS / "pbs_cpu.sh").read_text(encoding="utf-8")
        self.template = text.replace("program=(", "program=(--spares 1 ")
        silent, command = self.folder / "silent", self.folder / "command"
        self.script("ssh", f'shift 4; case " $(cat {silent}) " in *" $1 "*) exit 255 ;; esac\n'
                           'shift; exec bash -c "$*"\n')
        for lost, hosts, code in (("n2", ["n1:2,n2:2", "n1:2,n3:2"], 0),
                                  ("n2 n3", ["n1:2,n2:2"], 75)):
            with self.subTest(lost=lost):
                command.unlink(missing_ok=True)
                silent.write_text("", encoding="utf-8")
                work = f'[ "$(wc -l <{command})" = 1 ] || exit 0; echo "{lost}" >{silent}; exit 9'
                result = self.run_template("pbs_cpu.sh", work)
                self.assertEqual(result.code, code, result.err)
                self.assertEqual(re.findall("--host ([^ ]*) -np 4 ",
                                            command.read_text(encoding="utf-8")), hosts)
                self.assertEqual("submitted again as 8.server" in result.out, code == 75)

    def test_without_a_walltime_the_log_says_that_there_is_no_warning(self):
        result = self.run_template("pbs_cpu.sh", "exit 0", walltime="")
        self.assertIn("no walltime found for 7.server: there will be no warning", result.out)


class Benchmarks(launcher.Folder):
    """The templates of the benchmark, with a program that notes how it was started."""

    COLLECTIVES = ["allreduce", "reduce_scatter", "allgather", "broadcast", "reduce", "pushpull"]

    def run_template(self, template, *arguments, work="exit 0", **variables):
        noted = self.folder / "commands"
        noted.unlink(missing_ok=True)
        mpirun = self.fake_mpirun(body=f'printf "%s " "$@" >> {noted}; echo >> {noted}\n{work}')
        benchmark = self.script("collective-benchmark", "")
        nodes = self.folder / "nodes"
        nodes.write_text("n1\nn2\n", encoding="utf-8")
        system = ({"PBS_JOBID": "7.server", "PBS_NODEFILE": str(nodes),
                   "PBS_O_WORKDIR": str(self.folder)} if template.startswith("pbs") else
                  {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"})
        done = subprocess.run(
            ["bash", launcher.SCRIPTS / template, *arguments], capture_output=True, text=True,
            timeout=launcher.TIMEOUT_S, stdin=subprocess.DEVNULL, check=False, cwd=self.folder,
            env=launcher.environment(MPIRUN=mpirun, BENCHMARK=benchmark,
                                     SCRIPTS=str(launcher.SCRIPTS), **system, **variables))
        commands = noted.read_text(encoding="utf-8").splitlines() if noted.exists() else []
        return done, [command.split(f"{benchmark} ")[1].split() for command in commands]

    def test_each_collective_is_launched_once_with_files_of_its_own(self):
        for template, job, options in (("slurm_benchmark.sh", "7", ["-b", "8", "-e", "1M"]),
                                       ("pbs_benchmark.sh", "7.server", ["-b", "8", "-e", "128M"])):
            arguments = options if template.startswith("slurm") else []
            done, commands = self.run_template(template, *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            folder = f"tutti-benchmark-{job}"
            self.assertTrue((self.folder / folder).is_dir())
            self.assertEqual(commands, [
                ["--collective", name, "--json", f"{folder}/{name}.json", "--csv",
                 f"{folder}/{name}.csv", *options] for name in self.COLLECTIVES])
            self.assertRegex(done.stdout, f"job {job} on n.*\n.*results in {folder}\n"
                                          f".*job {job} ended with 0\n$")

    def test_the_collectives_are_those_that_are_named(self):
        _, commands = self.run_template("slurm_benchmark.sh", COLLECTIVES="reduce pushpull")
        self.assertEqual([command[1] for command in commands], ["reduce", "pushpull"])

    def test_one_that_fails_is_named_and_the_others_are_measured(self):
        work = 'case "$*" in *allgather*) exit 3 ;; *pushpull*) exit 4 ;; esac'
        done, commands = self.run_template("pbs_benchmark.sh", work=work)
        self.assertEqual((done.returncode, len(commands)), (3, 6), done.stderr)
        self.assertIn("allgather ended with 3\n", done.stdout)
        self.assertIn("pushpull ended with 4\n", done.stdout)

    def test_where_no_folder_can_be_made_nothing_is_measured(self):
        (self.folder / "tutti-benchmark-7").write_text("a file", encoding="utf-8")
        done, commands = self.run_template("slurm_benchmark.sh")
        self.assertEqual((done.returncode, commands), (1, []))
        self.assertIn("tutti-benchmark-7", done.stderr)


if __name__ == "__main__":
    verdict.main()
