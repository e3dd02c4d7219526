#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command that launch.sh would run: every option in it is there for a reason."""

import json
import os
import subprocess
import shutil
import unittest

import launcher
import verdict
from launcher import launch

HELPFUL = ("launch.sh", "test.sh", "quickstart.sh", "gpu-check.sh", "calibrate.sh", "compare.py")


class DryRun(launcher.Folder):
    def setUp(self):
        super().setUp()
        self.mpirun = self.fake_mpirun()

    def command(self, *arguments, mpirun=None, **options):
        """What is printed after the name of the launcher."""
        mpirun = mpirun or self.mpirun
        result = launch("--dry-run", *arguments, MPIRUN=mpirun, **options)
        self.assertEqual(result.code, 0, result.err)
        name, command = result.out.rstrip("\n").split(" ", 1)
        self.assertEqual(name, mpirun)
        return command

    def domains(self, count):
        for index in range(count):
            (self.folder / f"node{index}").touch()
        return {"LAUNCH_NUMA": str(self.folder / "node")}

    def test_ranks_that_fill_a_machine_of_several_numa_domains_get_a_core_each(self):
        self.assertEqual(self.command("-np", 1, "true", one_core=True, **self.domains(2)),
                         "-np 1 --bind-to core true")

    def test_on_a_machine_of_one_numa_domain_ranks_are_not_bound(self):
        self.assertEqual(self.command("-np", 1, "true", one_core=True, **self.domains(1)),
                         "-np 1 --bind-to none true")

    def test_without_a_number_there_is_a_rank_per_core(self):
        self.assertEqual(self.command("true", one_core=True), "-np 1 --bind-to none true")

    def test_more_ranks_than_cores_take_turns_in_the_words_of_either_version(self):
        self.assertEqual(self.command("-np", 2, "true", one_core=True),
                         "-np 2 --oversubscribe --bind-to none true")
        self.mpirun = self.fake_mpirun("5.0.3")
        self.assertEqual(self.command("-n", 2, "true", one_core=True),
                         "-np 2 --map-by :OVERSUBSCRIBE --bind-to none true")
        result = launch("-np", 2, "--dry-run", "true", one_core=True)
        self.assertIn("2 ranks on 1 usable cores: they take turns (oversubscribed).", result.err)

    def test_ranks_with_threads_are_not_bound_to_one_core(self):
        self.assertEqual(self.command("-np", 1, "true", one_core=True, OMP_NUM_THREADS="4",
                                      **self.domains(2)), "-np 1 --bind-to none true")
        for threads, is_bound in (("4", True), ("0", False), ("1", False)):
            command = self.command("-np", 2, "true", SLURM_JOB_ID="1", TUTTI_THREADS=threads)
            self.assertEqual("--bind-to numa" in command, is_bound)

    def test_a_job_that_leaves_most_cores_free_is_not_bound_to_the_first(self):
        domains = self.domains(2)
        if "--oversubscribe" in self.command("-np", 2, "true", **domains):
            self.skipTest("one usable core")
        self.assertEqual(self.command("-np", 1, "true", **domains), "-np 1 --bind-to none true")

    def test_what_the_user_says_about_places_stands_alone(self):
        for option in ("--map-by ppr:2:node", "--map-by=node", "--rankfile f", "-npernode 2"):
            self.assertEqual(self.command("-np", 2, *option.split(), "true", one_core=True),
                             f"-np 2 {option} true")

    def test_a_user_who_says_the_binding_leaves_it_open_whether_ranks_take_turns(self):
        for option in ("--bind-to socket", "-bind-to none", "--bind-to=none", "--cpu-set 0"):
            self.assertEqual(self.command("-np", 2, *option.split(), "true", one_core=True),
                             f"-np 2 --oversubscribe {option} true")
            self.assertEqual(self.command("-np", 1, *option.split(), "true", one_core=True),
                             f"-np 1 {option} true")
        self.assertEqual(self.command("-np", 2, "true", one_core=True,
                                      OMPI_MCA_hwloc_base_binding_policy="none"),
                         "-np 2 --oversubscribe true")

    def test_a_user_who_says_that_ranks_take_turns_leaves_the_binding_open(self):
        for option in ("--oversubscribe", "--nooversubscribe"):
            self.assertEqual(self.command("-np", 2, option, "true", one_core=True),
                             f"-np 2 --bind-to none {option} true")
        self.assertEqual(self.command("-np", 2, "--rank-by", "slot", "true", one_core=True),
                         "-np 2 --oversubscribe --bind-to none --rank-by slot true")

    def test_the_number_of_ranks_is_read_in_every_spelling(self):
        for option in ("-np 2", "-np2", "-np=2", "--np 2", "--np=2", "-n 2", "-n2", "--n=2", "-c 2",
                       "-c2"):
            self.assertEqual(self.command(*option.split(), "--map-by", "slot", "true"),
                             "-np 2 --map-by slot true", option)

    def test_a_number_per_node_or_socket_is_the_number_of_ranks(self):
        for option in ("-N 2", "-N2", "-npernode 2", "--npernode=2", "--nproc-per-node 2",
                       "--nproc-per-node=2", "--npersocket 2", "-pernode", "--ppr 2:node",
                       "--map-by ppr:2:node", "--map-by=ppr:2:node"):
            self.assertEqual(self.command(*option.split(), "true", one_core=True),
                             f"{option} true")
        self.assertEqual(self.command("--map-by", "node", "true", one_core=True),
                         "-np 1 --map-by node true")

    def test_in_a_batch_job_mpirun_knows_ranks_and_places(self):
        for name in ("SLURM_JOB_ID", "LSB_JOBID", "PE_HOSTFILE"):
            self.assertEqual(self.command("true", **{name: "1"}), "true")
            self.assertEqual(self.command("-np", 64, "true", **{name: "1"}), "-np 64 true")
        self.assertEqual(self.command("true", SLURM_JOB_ID="1", SLURM_CPUS_PER_TASK="4"),
                         "--bind-to numa true")

    def test_in_a_pbs_job_the_hosts_are_those_of_its_list_unless_others_are_named(self):
        self.assertEqual(self.command("true", PBS_NODEFILE="/p"), "--hostfile /p true")
        self.assertEqual(self.command("-np", 4, "true", PBS_NODEFILE="/p"),
                         "--hostfile /p -np 4 true")
        self.assertEqual(self.command("--host", "a:2", "true", PBS_NODEFILE="/p"),
                         "--host a:2 true")

    def test_several_hosts_get_the_settings(self):
        settings = {"TUTTI_TIMEOUT": "5", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "1",
                    "LD_LIBRARY_PATH": "/l"}
        forwarded = "-x LD_LIBRARY_PATH -x NCCL_DEBUG -x OMP_NUM_THREADS -x TUTTI_TIMEOUT"
        for hosts in ("--hostfile h", "--host a:2,b:2", "-machinefile h"):
            self.assertEqual(self.command("-np", 4, *hosts.split(), "true", **settings),
                             f"-np 4 {forwarded} {hosts} true")
        self.assertEqual(self.command("true", SLURM_JOB_ID="1", **settings), f"{forwarded} true")
        self.assertNotIn("-x", self.command("-np", 1, "true", **settings))

    def test_a_variable_that_the_user_forwards_is_not_forwarded_twice(self):
        self.assertEqual(self.command("-x", "TUTTI_TIMEOUT=7", "--host", "a", "true",
                                      TUTTI_TIMEOUT="5", NCCL_DEBUG="INFO"),
                         "-x NCCL_DEBUG -x TUTTI_TIMEOUT=7 --host a true")

    def test_other_options_are_passed_on_with_their_values(self):
        options = "--mca btl tcp,self --tag-output --timeout 5 --new-option value --flag"
        self.assertEqual(self.command("-np", 1, *options.split(), "true", "--dry-run", "-np",
                                      one_core=True),
                         f"-np 1 --bind-to none {options} true --dry-run -np")
        self.assertEqual(self.command("-np", 1, "--flag", "--", "true", "-x", one_core=True),
                         "-np 1 --bind-to none --flag true -x")

    def test_the_line_can_be_pasted_into_a_shell(self):
        words = ["a b", "it's", "$HOME", "", "*", "x;y", "line\nbreak"]
        self.mpirun = self.fake_mpirun(body='while [ "$1" != printf ]; do shift; done; "$@"')
        line = launch("--dry-run", "-np", 1, "printf", r"%s\n", *words, MPIRUN=self.mpirun).out
        pasted = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
        self.assertEqual(pasted.stdout, "\n".join(words) + "\n")

    def test_root_is_allowed_where_nobody_has_said_so_yet(self):
        command = self.command("-np", 1, "true", one_core=True, OMPI_ALLOW_RUN_AS_ROOT="")
        self.assertEqual("--allow-run-as-root" in command, os.geteuid() == 0)

    def test_wrong_arguments_are_one_sentence_and_the_usage(self):
        for arguments, text in (
                (["-np", "two", "true"], "error: -np takes a number from 1 on, not 'two'"),
                (["-np2x", "true"], "error: -np takes a number from 1 on, not '2x'"),
                (["--np=", "true"], "error: --np takes a number from 1 on, not ''"),
                (["-np"], "error: -np takes a number from 1 on, not ''"),
                (["-c", "x", "true"], "error: -c takes a number from 1 on, not 'x'"),
                (["--max-restarts", "-1", "true"],
                 "error: --max-restarts takes a number from 0 on, not '-1'"),
                (["--requeue-exit", "0", "true"],
                 "error: --requeue-exit takes a number from 1 on, not '0'"),
                (["--gpus", "two", "true"], "error: --gpus takes auto, yes or no, not 'two'"),
                (["-np", "2"], "error: no program is named"),
                (["-np", "2", "--mca", "btl"], "error: mpirun's --mca needs a value"),
                (["-np", "2", "no-such-program"],
                 "error: cannot start 'no-such-program': no such program, or not executable")):
            result = launch(*arguments)
            self.assertEqual((result.code, result.out), (1, ""))
            self.assertEqual(result.err.splitlines(), [text, "usage: launch.sh [-np N] [OPTIONS] "
                             "[OPTIONS OF mpirun...] [--] PROGRAM [ARGUMENTS...]"])

    def test_a_library_that_is_missing_is_named_once(self):
        self.script("ldd", "echo ' libmpi.so.40 => not found'; echo ' libc.so.6 => /lib/c (0x1)'\n")
        result = launch("-np", 2, "true", PATH=f"{self.folder}:{os.environ['PATH']}")
        self.assertEqual((result.code, result.out), (1, ""))
        self.assertEqual(result.err.splitlines(), [
            "error: true needs libmpi.so.40, not found on this host: install the package or load "
            "the module that has it, or put its folder into LD_LIBRARY_PATH"])

    def test_a_launcher_that_is_none_is_refused(self):
        mpirun = self.fake_mpirun("4.2", "Other")
        result = launch("true", MPIRUN=mpirun)
        self.assertEqual((result.code, result.err), (
            1, f"error: MPIRUN={mpirun} is no launcher that this script knows: mpirun of Open MPI, "
               "mpiexec of MPICH and Intel MPI, srun\n"))

    def test_help_goes_to_standard_output(self):
        result = launch("--help")
        self.assertEqual((result.code, result.err), (0, ""))
        self.assertIn("--max-restarts N", result.out)

    def test_help_that_cannot_be_written_is_no_success(self):
        packages = launcher.SCRIPTS.parent / "packages"
        for script in [*(launcher.SCRIPTS / name for name in HELPFUL), packages / "wheel.sh"]:
            for unbuffered in ("", "1"):
                with self.subTest(script=script.name, unbuffered=unbuffered):
                    with open("/dev/full", "wb") as full:
                        done = subprocess.run(
                            [script, "--help"], stdout=full, stderr=subprocess.PIPE,
                            timeout=launcher.TIMEOUT_S, stdin=subprocess.DEVNULL, check=False,
                            env=launcher.environment(PYTHONUNBUFFERED=unbuffered))
                    self.assertIn(done.returncode, (1, 2, 4), done.stderr)
                    self.assertIn(b"No space left on device", done.stderr)
                    self.assertNotIn(b"Traceback", done.stderr)

    def test_other_scripts_say_what_they_do_and_do_nothing(self):
        for name in ("test", "quickstart", "gpu-check", "calibrate"):
            for option in ("--help", "-h"):
                done = subprocess.run([launcher.SCRIPTS / f"{name}.sh", option], check=True,
                                      capture_output=True, text=True, timeout=launcher.TIMEOUT_S)
                self.assertIn(f"\n  scripts/mpirun/{name}.sh", done.stdout)
                self.assertNotIn("#", done.stdout)
                self.assertEqual(done.stderr, "")


class Gpus(launcher.Folder):
    """With files that stand for the devices, and the variables of a rank."""

    def setUp(self):
        super().setUp()
        for index in range(2):
            (self.folder / f"nvidia{index}").touch()
        (self.folder / "nvidiactl").touch()
        self.devices = {"LAUNCH_DEVICES": str(self.folder / "nvidia")}

    def visible(self, local_rank, **changed):
        done = subprocess.run([launcher.SCRIPTS / "bind_gpu.sh", "sh", "-c",
                               'echo "${CUDA_VISIBLE_DEVICES-unset}"'],
                              capture_output=True, text=True, check=True, env=launcher.environment(
                                  OMPI_COMM_WORLD_LOCAL_RANK=str(local_rank), SLURM_LOCALID="7",
                                  **{**self.devices, **changed}))
        return done.stdout.strip()

    def test_each_local_rank_sees_its_gpu_and_they_go_round(self):
        self.assertEqual([self.visible(rank) for rank in range(4)], ["0", "1", "0", "1"])

    def test_a_list_is_chosen_from(self):
        self.assertEqual([self.visible(rank, CUDA_VISIBLE_DEVICES="5,GPU-8,3")
                          for rank in range(3)], ["5", "GPU-8", "3"])

    def test_one_gpu_that_is_visible_already_stays_and_so_does_none(self):
        self.assertEqual(self.visible(1, CUDA_VISIBLE_DEVICES="3"), "3")
        self.assertEqual(self.visible(1, CUDA_VISIBLE_DEVICES=""), "")

    def test_a_host_without_gpus_changes_nothing(self):
        self.assertEqual(self.visible(1, LAUNCH_DEVICES="/no/device"), "unset")

    def test_under_srun_the_local_rank_is_slurms(self):
        done = subprocess.run([launcher.SCRIPTS / "bind_gpu.sh", "sh", "-c",
                               'echo "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"'],
                              capture_output=True, text=True, check=True,
                              env=launcher.environment(SLURM_LOCALID="1", **self.devices))
        self.assertEqual(done.stdout, "1 PCI_BUS_ID\n")

    def test_launch_sh_binds_where_there_are_gpus_or_when_asked(self):
        binder = str(launcher.SCRIPTS / "bind_gpu.sh")
        for option, devices, bound in (("auto", self.devices, True), ("auto", {}, False),
                                       ("yes", {}, True), ("no", self.devices, False)):
            out = launch("--dry-run", "--gpus", option, "-np", 1, "true", **devices).out
            self.assertEqual(binder in out, bound, (option, out))


class GpuCheck(launcher.Folder):
    """gpu-check.sh in a tree of its own, with stand-ins for the GPU and for what is built."""

    def setUp(self):
        super().setUp()
        scripts = self.folder / "scripts" / "mpirun"
        scripts.mkdir(parents=True)
        for name in ("gpu-check.sh", "common.sh", "machine.sh"):
            shutil.copy(launcher.SCRIPTS / name, scripts)
        self.build = self.folder / "build-gpu"
        (self.build / "tests").mkdir(parents=True)
        for name in ("kernels", "torch", "pushes", "peers", "mps", "ranks"):
            (self.build / f"{name}.json").write_text('"of an older run"', encoding="utf-8")
        self.script("build-gpu/tests/kernel-benchmark", 'echo "\\"new\\""; exit "${CODE:-0}"\n')
        for name in ("nvcc", "cmake", "xxhash.h"):
            self.script(name, "exit 0\n")

    def check(self, *arguments, gpus="GPU 0", **variables):
        self.script("nvidia-smi", f"echo '{gpus}'\n")
        done = subprocess.run(
            [self.folder / "scripts/mpirun/gpu-check.sh", *arguments], capture_output=True,
            text=True, timeout=launcher.TIMEOUT_S, check=False, env=launcher.environment(
                PATH=f"{self.folder}:{os.environ['PATH']}", XXHASH_ROOT=str(self.folder),
                **variables))
        report = json.loads((self.build / "gpu-check.json").read_text(encoding="utf-8"))
        steps = {step["step"]: step["verdict"] for step in report.pop("steps")}
        return done, steps, report

    def test_its_results_have_the_speeds_of_this_run_alone(self):
        done, steps, speeds = self.check("--only", "kernels")
        self.assertEqual((done.returncode, steps["kernels"], steps["pushes"]),
                         (0, "passed", "SKIPPED"), done.stderr)
        self.assertEqual(speeds, {"kernels": "new"})
        done, steps, speeds = self.check("--only", "kernels", CODE="1")
        self.assertEqual((done.returncode, steps["kernels"], speeds), (1, "FAILED", {}))
        done, steps, speeds = self.check(gpus="none")
        self.assertEqual((done.returncode, set(steps.values()), speeds), (77, {"SKIPPED"}, {}))

    def test_mps_runs_for_its_step_alone_and_is_told_to_end(self):
        way = "$TUTTI_GPU_PATH ${CUDA_MPS_PIPE_DIRECTORY:+by mps}"
        mpirun = self.script("mpirun", f'echo "\\"{way}\\""\n')
        self.script("build-gpu/tests/ranks-benchmark", "exit 0\n")
        self.script("nvidia-cuda-mps-control",
                    f'[ "$1" = -d ] || cat >{self.folder}/told; exit "${{CODE:-0}}"\n')
        done, steps, speeds = self.check("--only", "peers", "--only", "mps", MPIRUN=mpirun)
        self.assertEqual((steps["peers"], steps["mps"], speeds),
                         ("passed", "passed", {"peers": "peers ", "mps": "peers by mps"}),
                         done.stderr)
        self.assertEqual((self.folder / "told").read_text(encoding="utf-8"), "quit\n")
        done, steps, speeds = self.check("--only", "mps", MPIRUN=mpirun, CODE="1")
        self.assertEqual((steps["mps"], speeds), ("FAILED", {}), done.stderr)


class Lint(launcher.Folder):
    """lint.sh in a tree of its own, with a stand-in for clang-tidy."""

    def tidy(self, code):
        (self.folder / "scripts" / "mpirun").mkdir(parents=True, exist_ok=True)
        for name in ("lint.sh", "mpirun/common.sh", "mpirun/machine.sh"):
            shutil.copy(launcher.SCRIPTS.parent / name, self.folder / "scripts" / name)
        self.script("scripts/tidy_units.py", "echo a.cpp; echo b.cpp\n")
        self.script("cmake", "exit 0\n")
        self.script("clang-tidy-14", f'[ "$1" != --version ] || {{ echo "version 14.0"; exit; }}\n'
                                     f'echo "a finding"; exit {code}\n')
        return subprocess.run([self.folder / "scripts" / "lint.sh", "tidy"], capture_output=True,
                              text=True, timeout=launcher.TIMEOUT_S, check=False,
                              env=launcher.environment(
                                  PATH=f"{self.folder}:{os.environ['PATH']}"))

    def test_findings_of_clang_tidy_are_printed_and_end_with_1(self):
        done = self.tidy(1)
        self.assertEqual((done.returncode, done.stdout), (1, "a finding\n" * 2), done.stderr)
        done = self.tidy(0)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)


class Aarch64(launcher.Folder):
    """aarch64.sh in a tree of its own, where apt-get fails."""

    def test_a_sysroot_that_cannot_be_had_ends_it_and_is_not_taken_for_one_later(self):
        (self.folder / "scripts" / "mpirun").mkdir(parents=True)
        for name in ("aarch64.sh", "mpirun/common.sh", "mpirun/machine.sh"):
            shutil.copy(launcher.SCRIPTS.parent / name, self.folder / "scripts" / name)
        for name in ("aarch64-linux-gnu-g++-12", "qemu-aarch64", "mpiexec.mpich"):
            self.script(name, "exit 0\n")
        self.script("cmake", "echo built; exit 1\n")
        self.script("apt-get", 'for word in "$@"; do [ "$word" != "$FAILS" ] || exit 100; done\n')
        for step in ("update", "install", "install"):  # the second and third meet a marker, if any
            done = subprocess.run(
                [self.folder / "scripts" / "aarch64.sh"], capture_output=True, text=True,
                timeout=launcher.TIMEOUT_S, check=False, env=launcher.environment(
                    PATH=f"{self.folder}:{os.environ['PATH']}", FAILS=step))
            self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
            self.assertIn("error: the packages of arm64 cannot be had", done.stderr)


class Calibrate(launcher.Folder):
    """calibrate.sh in a tree of its own, with stand-ins for the hosts and what they run."""

    def setUp(self):
        super().setUp()
        for folder in ("scripts/mpirun", "build/bin"):
            (self.folder / folder).mkdir(parents=True)
        for name in ("calibrate.sh", "common.sh", "machine.sh"):
            shutil.copy(launcher.SCRIPTS / name, self.folder / "scripts/mpirun")
        until = 'until [ "$1" = {} ]; do shift; done; shift\n'
        self.script("chrt", 'shift 2; exec "$@"\n')
        self.script("scripts/mpirun/hosts.sh", until.format("--") + 'exec "$@"\n')
        self.script("mpirun", until.format("-np") + 'shift; exec "$@"\n')
        self.script("build/bin/network-probe", until.format("--output") + 'echo {} > "$1"\n')
        self.script("build/bin/collective-benchmark", f'echo >> {self.folder}/measured\n' +
                    until.format("--json") + 'echo {} > "$1"; exit "${CODE:-0}"\n')
        self.script("build/bin/collective-simulator", until.format("--measured") + 'echo "$1"\n')

    def calibrate(self, *arguments, **variables):
        (self.folder / "measured").write_text("", encoding="utf-8")
        done = subprocess.run(
            [self.folder / "scripts/mpirun/calibrate.sh", "--hosts", "2", *arguments],
            capture_output=True, text=True, timeout=launcher.TIMEOUT_S, check=False,
            env=launcher.environment(PATH=f"{self.folder}:{os.environ['PATH']}", **variables))
        return done, (self.folder / "measured").read_text(encoding="utf-8").count("\n")

    def test_wrong_results_are_measured_again_and_right_ones_are_not(self):
        done, measured = self.calibrate(CODE="3")
        self.assertEqual((done.returncode, done.stdout, measured), (3, "", 1), done.stderr)
        for expected in (8, 0):
            done, measured = self.calibrate()
            self.assertEqual((done.returncode, measured), (0, expected), done.stderr)
            files = done.stdout.strip().split(",")
            self.assertEqual((len(files), all(map(os.path.exists, files))), (8, True))

    def test_each_rate_has_times_of_its_own(self):
        folders = []
        for rate in ("100mbit", "1gbit"):
            done, measured = self.calibrate("--rate", rate)
            self.assertEqual((done.returncode, measured), (0, 8), done.stderr)
            folders.append(os.path.dirname(done.stdout.split(",")[0]))
        self.assertEqual(folders, [f"{self.folder}/build/calibration-{rate}"
                                   for rate in ("100mbit", "1gbit")])


class Shellcheck(unittest.TestCase):
    def setUp(self):
        if not shutil.which("shellcheck"):
            raise unittest.SkipTest("no shellcheck in the PATH")

    def test_shellcheck_finds_nothing(self):
        root = launcher.SCRIPTS.parents[1]
        scripts = [*sorted(root.glob("scripts/**/*.sh")), *root.glob("tests/**/*.sh"),
                   root / ".ci/run"]
        self.assertGreater(len(scripts), 5)
        done = subprocess.run(["shellcheck", "-x", *map(str, scripts)], capture_output=True,
                              text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""))


if __name__ == "__main__":
    verdict.main()
