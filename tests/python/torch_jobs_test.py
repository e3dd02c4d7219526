# SPDX-License-Identifier: Apache-2.0
"""Whole jobs with torch: the examples of apps/python for a few steps, bits, a lost rank."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "apps" / "python"
MPIRUN = shlex.split(os.environ["MPIRUN"])
DATA = Path("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")
needs_images = pytest.mark.skipif(not DATA.exists(), reason="no dataset-fashion-mnist here")


def job(ranks, *command, **environment):
    """The outcome of a job of this interpreter."""
    exported = [word for name in environment for word in ("-x", name)]
    program = [sys.executable, *map(str, command)]
    return subprocess.run([*MPIRUN, *exported, "-np", str(ranks), *program],
                          capture_output=True, text=True, timeout=600, check=False,
                          env={**os.environ, **environment}, stdin=subprocess.DEVNULL)


@pytest.fixture
def trained(tmp_path):
    def train(ranks, what="bits", **environment):
        """For each backend the weights' digest, which all ranks have, and the losses of 60 steps:
        over tutti, and with "gloo" over gloo as well."""
        file = tmp_path / "losses"
        done = job(ranks, HERE / "torch_worker.py", what, file, **environment)
        assert done.returncode == 0, done.stderr
        found = []
        for backend in ("tutti", "gloo") if what == "gloo" else ("tutti",):
            digests = re.findall(rf"digest (\w{{64}}) over {backend}", done.stdout)
            assert len(digests) == ranks and len(set(digests)) == 1, done.stdout
            losses = json.loads(Path(f"{file}.{backend}").read_text())
            assert len(losses) == 60
            found.append((digests[0], losses))
        return found
    return train


def test_losses_of_four_ranks_have_the_same_bits_in_every_layout_and_are_gloos(trained):
    alone, gloos = trained(4, "gloo", TUTTI_REPRODUCIBLE="1")
    for per_node in ("2", "1"):
        assert trained(4, TUTTI_REPRODUCIBLE="1", TUTTI_RANKS_PER_NODE=per_node) == [alone]
    losses = gloos[1]
    assert losses == pytest.approx(alone[1], rel=1e-4, abs=1e-6)  # another order of summation
    assert losses[0] > 2 and losses[-1] < 0.5  # it learns


def test_two_ranks_train_to_the_bits_that_gloo_gives(trained):
    over_tutti, over_gloo = trained(2, "gloo")
    assert over_tutti == over_gloo


def test_a_lost_rank_is_named():
    done = job(3, HERE / "torch_worker.py", "lost", TUTTI_TIMEOUT="20")
    assert done.returncode != 0
    assert re.search(r"rank 2 \(host \S+, pid \d+\)|signal 9", done.stderr), done.stderr


@pytest.mark.parametrize("per_node", ["1", "2"])
def test_a_rank_that_never_comes_to_a_backward_pass_is_named(per_node):
    done = job(2, HERE / "torch_worker.py", "late", TUTTI_TIMEOUT="15",
               TUTTI_RANKS_PER_NODE=per_node)
    assert done.returncode in (2, 4), done.stderr
    assert "Traceback" in done.stderr and "signal" not in done.stderr, done.stderr
    assert re.search(r"waited \d+ s for rank 1 \(", done.stderr), done.stderr


@pytest.mark.parametrize("what", ["agreed", "uneven"])
def test_a_job_that_ends_has_said_why(what):
    """torch's hook for exceptions, which init_process_group sets, captures what ours prints."""
    done = job(2, HERE / "torch_worker.py", what, TUTTI_TIMEOUT="20")
    assert done.returncode == 2, done.stderr
    assert "MismatchError: ranks disagree" in done.stderr, done.stderr


def test_messages_of_four_ranks_give_what_they_give_over_gloo():
    done = job(4, HERE / "torch_worker.py", "messages", TUTTI_TIMEOUT="60")
    assert done.returncode == 0, done.stderr
    digests = set(re.findall(r"rank (\d) digest (\w{64})", done.stdout))
    assert len(digests) == 4 and done.stdout.count("over") == 8, done.stdout


def test_a_rank_that_waits_for_what_is_sent_after_a_collective_is_told():
    done = job(2, HERE / "torch_worker.py", "crossed", TUTTI_TIMEOUT="60")
    assert done.returncode == 2, done.stderr
    assert re.search(r"rank 0 \(.* waits for a message of rank 1 \(.*, which waits in call \d+, "
                     "allreduce", done.stderr), done.stderr


@pytest.mark.parametrize("per_node", ["1", "2"])
def test_callbacks_of_futures_may_wait_for_other_futures(per_node):
    done = job(2, HERE / "torch_worker.py", "powersgd", TUTTI_TIMEOUT="60",
               TUTTI_RANKS_PER_NODE=per_node)
    assert done.returncode == 0, done.stderr
    assert len(set(re.findall(r"digest ([0-9a-f]{64})", done.stdout))) == 1, done.stdout


def test_processes_that_no_mpi_has_started_do_not_train_alone():
    program = ("import torch, tutti.torch; "
               "tutti.torch.Optimizer([torch.nn.Parameter(torch.ones(2))])")
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("OMPI_", "PMI", "SLURM_"))}
    environment |= {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    environment.pop("MASTER_ADDR", None)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True,
                          text=True, timeout=600, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode != 0
    assert "torch has 2 ranks" in done.stderr and "mpirun -np 2" in done.stderr, done.stderr


def without_mpi(*command, **environment):
    """The outcome of a program that no MPI starts."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("OMPI_", "PMI", "SLURM_"))}
    return subprocess.run([sys.executable, *map(str, command)], env=kept | environment,
                          capture_output=True, text=True, timeout=600, check=False,
                          stdin=subprocess.DEVNULL)


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def test_torchrun_trains_to_the_bits_of_mpirun(trained, tmp_path):
    done = without_mpi(*TORCHRUN, 2, HERE / "torch_worker.py", "bits", tmp_path / "torchrun",
                       TUTTI_REPRODUCIBLE="1")
    assert done.returncode == 0, done.stderr
    digests = re.findall(r"digest ([0-9a-f]{64})", done.stdout)
    assert digests == [trained(2, TUTTI_REPRODUCIBLE="1")[0][0]] * 2, done.stdout


def test_a_rank_that_torchrun_has_lost_is_named():
    done = without_mpi(*TORCHRUN, 3, HERE / "torch_worker.py", "lost", TUTTI_TIMEOUT="60")
    assert done.returncode != 0
    assert re.search(r"rank 2 \(host \S+, pid \d+\)|Signal 9", done.stderr), done.stderr


RESTARTED = """
import os, signal, sys, time
import torch, torch.distributed as dist
import tutti.torch

attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
time.sleep(1 - rank)  # rank 1 is the first to look for the other one
dist.init_process_group("tutti")
value = torch.ones(1)
dist.all_reduce(value)
if attempt == 0 and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(value)
sys.stdout.write(f"{rank} has {value.item():g} at attempt {attempt}\\n")
dist.destroy_process_group()
"""


def test_ranks_that_torchrun_starts_again_meet_each_other(tmp_path):
    """Its store still has what the first ones wrote."""
    program = tmp_path / "restarted.py"
    program.write_text(RESTARTED)
    done = without_mpi(*TORCHRUN, 2, "--max-restarts", 1, program, TUTTI_TIMEOUT="20")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 has 4 at attempt 1", "1 has 4 at attempt 1"]


SLOW = """
import sys, time

def slowly(kind, error, trace):
    time.sleep(1)
    sys.__excepthook__(kind, error, trace)

sys.excepthook = slowly
import torch, torch.distributed as dist
import tutti, tutti.torch

if sys.argv[1] == "group":
    dist.init_process_group("tutti")
    dist.all_reduce(torch.ones(3 + dist.get_rank()))
else:
    kv = tutti.create(tutti.torch.world())
    kv.init("w", torch.zeros(3 + kv.rank))
"""


@pytest.mark.parametrize("what", ["group", "store"])
def test_torchrun_does_not_end_the_rank_that_says_why(what, tmp_path):
    """It ends all ranks as soon as it sees that one has ended."""
    program = tmp_path / "slow.py"
    program.write_text(SLOW)
    done = without_mpi(*TORCHRUN, 2, program, what, TUTTI_TIMEOUT="20")
    assert done.returncode != 0
    said = done.stderr.count("tutti.MismatchError: ")
    assert said == 1, done.stderr


ONE_MODEL = """
import hashlib, sys
import torch, tutti.torch

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
ranks = tutti.torch.world()
torch.manual_seed(ranks.rank)  # rank 0's model is that of all
model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
optimizer = tutti.torch.Optimizer(model.named_parameters(), "adamw", learning_rate=0.01)
generator = torch.Generator().manual_seed(7)
for step in range(30):
    whole, wanted = torch.randn(12, 6, generator=generator), torch.randn(12, 2, generator=generator)
    mine = slice(ranks.rank, None, ranks.size)
    optimizer.zero_grad()
    (model(whole[mine]) - wanted[mine]).square().mean().backward()
    optimizer.step()
weights = torch.cat([weight.detach().reshape(-1) for weight in model.parameters()])
torch.save(weights, f"{sys.argv[1]}.{ranks.rank}")
"""


def test_torchrun_trains_one_model_with_an_optimizer_of_the_store(tmp_path):
    import torch

    program, file = tmp_path / "one_model.py", tmp_path / "weights"
    program.write_text(ONE_MODEL)
    def trained(*launcher):
        done = without_mpi(*launcher, program, file, TUTTI_TIMEOUT="60")
        assert done.returncode == 0, done.stderr
        return [torch.load(path) for path in sorted(tmp_path.glob("weights.*"))]

    (alone,) = trained()
    together = trained(*TORCHRUN, 3)
    assert len(together) == 3 and all(torch.equal(one, together[0]) for one in together)
    assert torch.allclose(together[0], alone, rtol=1e-12, atol=1e-12)


SPAWNED = """
import os, sys
import torch, torch.distributed as dist, torch.multiprocessing as multiprocessing
import tutti.torch

def train(rank, address, where):
    if where == "apart" and rank == 2:
        os.readlink = lambda path: "net:[7]"
    dist.init_process_group("tutti", init_method=address, rank=rank, world_size=3)
    value = torch.tensor([rank + 1.0])
    dist.all_reduce(value)
    some = dist.new_group([0, 2])
    if rank != 1:
        dist.all_reduce(value, group=some)
    with open("/proc/self/maps") as maps:
        has_mpi = "libmpi" in maps.read()
    sys.stdout.write(f"{rank} has {value.item():g}, MPI: {has_mpi}\\n")
    dist.destroy_process_group()

if __name__ == "__main__":
    multiprocessing.start_processes(train, ("file://" + sys.argv[1], sys.argv[3]), nprocs=3,
                                    start_method=sys.argv[2])
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_of_torch_multiprocessing_meet_through_torchs_store(method, tmp_path):
    """Rank and size are arguments, and no variable says them."""
    program = tmp_path / "spawned.py"
    program.write_text(SPAWNED)
    done = without_mpi(program, tmp_path / "store", method, "together", TUTTI_TIMEOUT="60")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "0 has 12, MPI: False", "1 has 6, MPI: False", "2 has 12, MPI: False"]


def test_processes_on_several_hosts_are_told_to_take_mpirun(tmp_path):
    program = tmp_path / "spawned.py"
    program.write_text(SPAWNED)
    done = without_mpi(program, tmp_path / "store", "fork", "apart", TUTTI_TIMEOUT="60")
    assert done.returncode != 0 and done.stdout == "", done.stdout
    assert re.search(r"several hosts \(rank 0 on \S+, rank 2 on \S+\), and without an MPI they "
                     "must be on one; start the job with mpirun -np 3 python spawned.py",
                     done.stderr), done.stderr


@needs_images
@pytest.mark.parametrize("model", ["mlp", "resnet"])
def test_the_same_script_runs_over_both_backends(model):
    losses = []
    for backend in ("tutti", "gloo"):
        done = job(2, EXAMPLES / "train_ddp.py", "--backend", backend, "--model", model, "--steps",
                   "4", "--batch", "16")
        assert done.returncode == 0, done.stderr
        losses.append(re.search(r"epoch 1: loss ([\d.]+), [\d,]+ images/s", done.stdout)[1])
        assert re.search(r"^accuracy [\d.]+ %$", done.stdout, re.M)
    assert losses[0] == losses[1]


@needs_images
def test_a_job_goes_on_from_its_checkpoint(tmp_path):
    def train(folder, epochs):
        done = job(2, EXAMPLES / "train_store.py", "--steps", "6", "--batch", "16", "--epochs",
                   str(epochs), "--checkpoint", folder)
        assert done.returncode == 0, done.stderr
        return re.findall(r"loss ([\d.]+)", done.stdout)
    whole = train(tmp_path / "whole", 2)
    assert [*train(tmp_path / "parts", 1), *train(tmp_path / "parts", 2)] == whole


@needs_images
def test_few_pushes_train_too():
    done = job(2, EXAMPLES / "diloco.py", "--steps", "60", "--every", "10")
    assert done.returncode == 0, done.stderr
    assert "6 pushes in 60 steps" in done.stdout
    assert float(re.search(r"accuracy ([\d.]+) %", done.stdout)[1]) > 60
