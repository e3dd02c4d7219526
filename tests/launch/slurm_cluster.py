# SPDX-License-Identifier: Apache-2.0
"""A real Slurm on this machine: a controller and two nodes of two GPUs, in a folder of its own.

Nothing outside the folder changes. The daemons listen on the loopback alone and run as this user,
so they need no authentication; the GPUs are names of /dev/null.
"""

import contextlib
import getpass
import os
import random
import shutil
import socket
import subprocess
import time
import unittest
from pathlib import Path

import launcher

COMMANDS = ("slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "sinfo", "squeue")
STOP_S = 60  # for daemons that were told to end

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
KillWait=5
PropagateResourceLimits=NONE
GresTypes=gpu
NodeName=v0 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} {node}
NodeName=v1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} {node}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP DefMemPerCPU=50
"""
NODE = "CPUs=2 CoresPerSocket=2 RealMemory=200 Gres=gpu:2 State=UNKNOWN"

# Virtual nodes of one host: Open MPI would name their shared memory alike, so ranks use sockets.
ONE_HOST = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "lo",
            "OMPI_MCA_oob_tcp_if_include": "lo"}


def free_ports(count):
    """Below those that Linux hands out by itself: nobody takes one before the daemons do."""
    ports = []
    for port in random.sample(range(20000, 32768), 1000):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise unittest.SkipTest("no free ports below 32768")


class Cluster:
    def __init__(self, folder):
        """Starts it, or skips the test, with the reason."""
        self.folder = folder
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        missing = [name for name in COMMANDS if not shutil.which(name)]
        if missing:
            raise unittest.SkipTest(f"no {', '.join(missing)} here: apt-get install slurm-wlm")
        for name in ("state", "tmp-v0", "tmp-v1", "dev"):
            (folder / name).mkdir()
        for index in range(2):
            (folder / "dev" / f"nvidia{index}").symlink_to("/dev/null")  # a device, as it must be
        (folder / "gres.conf").write_text(
            f"Name=gpu File={folder}/dev/nvidia[0-1] Flags=nvidia_gpu_env\n", encoding="utf-8")
        configuration = folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(
            host=socket.gethostname().split(".")[0], user=getpass.getuser(), node=NODE,
            ports=free_ports(3), folder=folder), encoding="utf-8")
        self.environment = launcher.environment(SLURM_CONF=str(configuration), **ONE_HOST)
        try:
            for daemon in (["slurmctld"], ["slurmd", "-N", "v0"], ["slurmd", "-N", "v1"]):
                self.run(*daemon)
            self.wait(lambda: self.run("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * 2)
        except (AssertionError, subprocess.CalledProcessError) as error:
            logs = "".join(path.read_text(encoding="utf-8", errors="replace")[-1000:]
                           for path in sorted(folder.glob("*.log")))
            self.stop()
            raise unittest.SkipTest(f"Slurm does not start here: {error}\n{logs}")

    def end_jobs(self):
        """What a failed test left running would outlive the daemons."""
        if self.run("squeue", "-h", "-t", "all", "-o", "%i"):
            self.run("scancel", "--user", getpass.getuser())
            self.wait(lambda: not self.run("squeue", "-h"))

    def stop(self):
        try:
            self.end_jobs()
        except AssertionError:
            pass  # the daemons do not answer: they may never have started
        for path in self.folder.glob("*.pid"):
            try:
                os.kill(int(path.read_text(encoding="ascii")), 15)
            except (OSError, ValueError):
                pass
        deadline = time.monotonic() + STOP_S
        while list(self.folder.glob("*.pid")) and time.monotonic() < deadline:
            time.sleep(0.05)

    def run(self, *command):
        done = subprocess.run([str(word) for word in command], env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=launcher.TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def wait(self, condition, seconds=launcher.TIMEOUT_S):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"a wait took longer than {seconds} s; the job's log:\n"
                                     + self.log())
            time.sleep(0.02)

    def submit(self, template, *arguments, options=()):
        return self.run("sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=1", "--time=10",
                        f"--output={self.folder / 'job.log'}", f"--chdir={self.folder}", *options,
                        launcher.SCRIPTS / template, *arguments).strip()

    def job(self, number):
        """{"JobState": "RUNNING", ...}"""
        words = self.run("scontrol", "-o", "show", "job", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def log(self):
        path = self.folder / "job.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
