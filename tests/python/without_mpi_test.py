# SPDX-License-Identifier: Apache-2.0
"""Jobs of one host that no MPI has started: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as
torchrun sets them, bring the ranks together."""

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest

from job_test import clean_environment

SUM = """
    import numpy as np, os, signal, tutti
    ranks = tutti.Communicator.world()
    kv = tutti.create(ranks)
    kv.init("w", np.zeros(5000, np.float32))
    for step in range(3):
        kv.push("w", np.full(5000, ranks.rank + 1, np.float32))
    parts = ranks.create_group([rank for rank in range(ranks.size) if rank % 2 == ranks.rank % 2])
    own = np.ones(3)
    parts.allreduce(own)
    words = ranks.allgather_object(f"I am {ranks.rank}")
    maps = open("/proc/self/maps").read()
    print(ranks.rank, ranks.size, ranks.num_nodes, kv.view("w").numpy().max(), own[0], words[-1],
          "libmpi" in maps, flush=True)
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Job:
    """Ranks of one program."""

    def __init__(self, program, size, ranks=None, **variables):
        self.environment = clean_environment(
            WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
            **variables)
        self.program = textwrap.dedent(program)
        self.ranks = [self.start(rank) for rank in (range(size) if ranks is None else ranks)]

    def start(self, rank):
        environment = self.environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        return subprocess.Popen([sys.executable, "-c", self.program], env=environment, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def ends(self):
        """The exit code, the output and the errors of each rank."""
        said = [rank.communicate(timeout=600) for rank in self.ranks]
        return [(rank.returncode, *texts) for rank, texts in zip(self.ranks, said)]


@pytest.mark.parametrize("size, variables, nodes", [
    (2, {}, 1), (4, {"TUTTI_STATISTICS": "1"}, 1), (4, {"TUTTI_RANKS_PER_NODE": "2"}, 2),
    (3, {"TUTTI_RANKS_PER_NODE": "1", "TUTTI_STATISTICS": "1"}, 3)])
def test_ranks_meet_without_an_mpi(size, variables, nodes):
    job = Job(SUM, size, TUTTI_TIMEOUT="60", **variables)
    ends = job.ends()
    for rank, (code, output, errors) in enumerate(ends):
        assert code == 0, errors
        of_parts = (size + 1 - rank % 2) // 2
        total = size * (size + 1) / 2
        expected = f"{rank} {size} {nodes} {total:.1f} {of_parts:.1f} I am {size - 1} False"
        assert output.strip() == expected, errors
    assert ("push" in ends[0][2]) == ("TUTTI_STATISTICS" in variables), ends


@pytest.mark.parametrize("per_node", ["3", "1"])
def test_a_rank_that_is_killed_is_named_at_once(per_node):
    job = Job("""
        import numpy as np, os, signal, tutti
        ranks = tutti.Communicator.world()
        ranks.barrier()
        if ranks.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        ranks.allreduce(np.ones(3))
    """, 3, TUTTI_TIMEOUT="90", TUTTI_RANKS_PER_NODE=per_node)
    begin = time.monotonic()
    ends = job.ends()
    assert time.monotonic() - begin < 60
    assert ends[2][0] == -signal.SIGKILL
    for code, _, errors in ends[:2]:
        assert code == 2, errors
    assert re.search(r"rank 2 \((host \S+, )?pid \d+\)", ends[0][2] + ends[1][2]), ends


def test_ranks_that_do_not_come_are_named_at_the_deadline():
    job = Job("import tutti; tutti.create('dist')", 4, ranks=[0, 2], TUTTI_TIMEOUT="2")
    ends = job.ends()
    assert [code for code, _, _ in ends] == [4, 4], ends
    assert re.search(r"rank 0 \(host \S+, pid \d+\) waited 2(\.\d+)? s for rank 1, rank 3 to come "
                     r"\(WORLD_SIZE=4, MASTER_ADDR=127.0.0.1, MASTER_PORT=\d+\)", ends[0][2]), ends


def test_a_rank_that_ends_before_all_have_come_ends_the_others():
    job = Job("""
        import os, socket, sys, threading, time, tutti
        threading.Timer(3, lambda: os._exit(9) if os.environ["RANK"] == "1" else None).start()
        tutti.create("dist")
    """, 3, ranks=[0, 1], TUTTI_TIMEOUT="90")
    ends = job.ends()
    assert [code for code, _, _ in ends] == [2, 9], ends
    assert re.search(r"rank 1 \(pid \d+\) has ended before all ranks had come", ends[0][2]), ends


@pytest.mark.parametrize("variables, evidence", [
    ({"LOCAL_WORLD_SIZE": "1"}, "WORLD_SIZE=2, LOCAL_WORLD_SIZE=1"),
    ({"SLURM_STEP_NUM_NODES": "2"}, "SLURM_STEP_NUM_NODES=2")])
def test_several_hosts_are_mpiruns(variables, evidence):
    ends = Job("import tutti; tutti.create('dist')", 2, **variables).ends()
    assert [code for code, _, _ in ends] == [1, 1], ends
    said = (f"the ranks of this job are on several hosts ({evidence}), and without an MPI they "
            "must be on one; start the job with mpirun -np 2")
    assert [errors.count(said) > 0 for _, _, errors in ends] == [True, False], ends


def names_in_use(kind):
    with open("/proc/net/unix") as sockets:
        return set(re.findall(rf"@(tutti-{kind})\n", sockets.read()))


def test_strangers_are_not_met():
    """What another user sends to a rank is not read; another program of this user is an error."""
    job = Job(SUM, 2, ranks=[0], TUTTI_TIMEOUT="60")
    before = time.monotonic()
    while not names_in_use(r"meeting-\d+") and time.monotonic() < before + 50:
        time.sleep(0.02)
    (meeting,) = names_in_use(r"meeting-\d+")
    (mailbox,) = names_in_use("[0-9a-f]{32}")
    disturb = textwrap.dedent("""
        import socket, struct, sys
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        while connection.connect_ex("\\0" + sys.argv[1]) != 0:
            pass  # it has a name, and does not listen yet
        try:
            connection.send(bytes(128))
        except OSError:
            pass  # it is shut
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        if connection.connect_ex("\\0" + sys.argv[2]) == 0:
            # In rank 1's name, in the first step of all: that rank 0 has thrown an error.
            connection.send(struct.pack("<QQiiQ", 1 << 63 | 1, 8, 1, 0, 0))
    """)
    if os.geteuid() == 0:
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3"]
        subprocess.run([*nobody, "-c", disturb, meeting, mailbox], check=True, timeout=600)
        job.ranks.append(job.start(1))
        assert [code for code, _, _ in job.ends()] == [0, 0]
        job = Job(SUM, 2, ranks=[0], TUTTI_TIMEOUT="60")
        while not names_in_use(r"meeting-\d+"):
            time.sleep(0.02)
        (meeting,) = names_in_use(r"meeting-\d+")
    subprocess.run([sys.executable, "-c", disturb, meeting, mailbox], check=True, timeout=600)
    ((code, _, errors),) = job.ends()
    assert code == 1 and "got another program" in errors, errors


def test_two_processes_cannot_be_one_rank():
    ends = Job(SUM, 3, ranks=[0, 1, 1], TUTTI_TIMEOUT="60").ends()
    assert ends[0][0] == 1 and "say that they are rank 1 (pid " in ends[0][2], ends
