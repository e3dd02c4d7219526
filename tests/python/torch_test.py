# SPDX-License-Identifier: Apache-2.0
"""torch.distributed over the backend tutti: alone, and on the ranks of a job."""

import datetime
import functools
import os
import re
import time
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed as dist
from torch.distributed import ReduceOp, checkpoint
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

import tutti
import tutti.torch

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8,
          torch.int32, torch.int64]


@pytest.fixture(scope="module", autouse=True)
def group():
    torch.set_num_threads(1)
    dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=60))
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize("seconds, warns", [(7, True), (300, False), (1800, False)])
def test_a_timeout_that_has_no_effect_is_told(seconds, warns, rank, ranks, monkeypatch):
    monkeypatch.delenv("TUTTI_TIMEOUT", raising=False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        dist.new_group(list(range(ranks)), timeout=datetime.timedelta(seconds=seconds))
    texts = [str(one.message) for one in told if "TUTTI_TIMEOUT" in str(one.message)]
    expected = ("a group's timeout of 7 s has no effect: waits end after 300 s; start the job with "
                "mpirun -x TUTTI_TIMEOUT=7")
    assert texts == ([expected] if warns and rank == 0 else [])


def same(tensor, expected):
    return torch.equal(tensor, torch.full_like(tensor, expected))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 7, 70001])
def test_all_reduce_sums_every_dtype(dtype, count, rank, ranks):
    tensor = torch.full((count,), rank + 1).to(dtype)
    dist.all_reduce(tensor)
    assert same(tensor, ranks * (ranks + 1) // 2)


def test_all_reduce_adds_sparse_tensors(rank, ranks):
    for op, factor in ((ReduceOp.SUM, 1), (ReduceOp.AVG, 1 / ranks)):
        dense = torch.zeros(ranks + 2, 3)
        dense[0] = dense[rank + 1] = rank + 1.0  # a row of all ranks, and one of its own
        tensor = dense.to_sparse(1)
        dist.all_reduce(tensor, op)
        expected = torch.zeros(ranks + 2, 3)
        expected[0] = ranks * (ranks + 1) / 2
        expected[1:ranks + 1] = torch.arange(1.0, ranks + 1)[:, None]
        assert torch.allclose(tensor.to_dense(), expected * factor)


def test_sparse_tensors_of_two_shapes_are_refused_on_all_ranks(rank, ranks):
    own = torch.eye(4 if rank == ranks - 1 else 3).to_sparse()
    if ranks == 1:
        dist.all_reduce(own)
        return
    with pytest.raises(tutti.MismatchError) as caught:
        dist.all_reduce(own)
    assert str(caught.value) == (
        "all_reduce: expected sparse tensors of one shape; rank 0 has (3, 3) with 2 sparse "
        f"dimensions, and rank {ranks - 1} (4, 4) with 2; nothing was changed")
    dist.all_reduce(tensor := torch.ones(2))
    assert same(tensor, ranks)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_all_reduce_has_five_operations(asynchronous, rank, ranks):
    expected = {ReduceOp.SUM: ranks * (ranks + 1) / 2, ReduceOp.AVG: (ranks + 1) / 2,
                ReduceOp.MIN: 1, ReduceOp.MAX: ranks}
    for op, value in expected.items():
        tensor = torch.full((2, 3), float(rank + 1))
        work = dist.all_reduce(tensor, op, async_op=asynchronous)
        if asynchronous:
            assert work.wait()
            assert work.is_completed() and work.is_success()
        assert same(tensor, value)
    tensor = torch.full((3,), 2)
    dist.all_reduce(tensor, ReduceOp.PRODUCT)
    assert same(tensor, 2**ranks)
    flag = torch.tensor(rank == 0)
    dist.all_reduce(flag, ReduceOp.MAX)
    assert flag
    dist.all_reduce(flag := torch.tensor(rank == 0), ReduceOp.MIN)
    assert bool(flag) == (ranks == 1)
    dist.all_reduce(flag := torch.tensor(rank == 0))
    assert flag


@pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.uint8, torch.bool])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_all_reduce_combines_bits(asynchronous, dtype, rank, ranks):
    of_all = [torch.tensor([[7, 0, 4], [index, 1 << index, 1]]).to(dtype) for index in range(ranks)]
    for op, combine in ((ReduceOp.BAND, torch.bitwise_and), (ReduceOp.BOR, torch.bitwise_or),
                        (ReduceOp.BXOR, torch.bitwise_xor)):
        tensor = of_all[rank].t().clone().t()
        work = dist.all_reduce(tensor, op, async_op=asynchronous)
        if asynchronous:
            work.wait()
        assert torch.equal(tensor, functools.reduce(combine, of_all))


def test_a_future_has_the_sum(rank, ranks):
    tensor = torch.full((1000,), float(rank))
    future = dist.all_reduce(tensor, async_op=True).get_future()
    assert same(future.wait()[0], ranks * (ranks - 1) / 2)


def test_a_sum_that_failed_says_so(rank, ranks):
    if ranks == 1:
        pytest.skip("one rank agrees with itself")
    work = dist.all_reduce(torch.ones(3 if rank == 0 else 2), async_op=True)
    with pytest.raises(tutti.MismatchError):
        work.wait()
    assert work.is_completed() and not work.is_success()
    assert isinstance(work.exception(), tutti.MismatchError)


def test_a_wait_ends_after_its_timeout(rank, ranks, tmp_path):
    file = [str(tmp_path / "given up")]
    dist.broadcast_object_list(file, 0)
    if rank != 0:
        while not os.path.exists(file[0]):
            time.sleep(0.01)
    work = dist.all_reduce(tensor := torch.ones(2), async_op=True)
    if rank == 0 and ranks > 1:
        with pytest.raises(tutti.TimeoutError, match="expected the sum within 0.05 s"):
            work.wait(datetime.timedelta(milliseconds=50))
        assert not work.is_success() and work.exception() is None
    Path(file[0]).touch()
    assert work.wait(datetime.timedelta(seconds=60)) and work.is_success()
    assert same(tensor, ranks)


def test_blocks_go_where_they_belong(rank, ranks):
    out = torch.zeros(ranks * 3)
    dist.all_gather_into_tensor(out, torch.full((3,), float(rank)))
    assert torch.equal(out, torch.arange(ranks).repeat_interleave(3).float())
    dist.all_gather_into_tensor(out, out[3 * rank:3 * rank + 3])  # a part of the output
    assert torch.equal(out, torch.arange(ranks).repeat_interleave(3).float())
    parts = [torch.zeros(2, 2, dtype=torch.int16) for _ in range(ranks)]  # no dtype of the library
    dist.all_gather(parts, torch.full((2, 2), rank, dtype=torch.int16))
    assert all(same(part, index) for index, part in enumerate(parts))
    out = torch.zeros(3)
    dist.reduce_scatter_tensor(out, torch.arange(3.0 * ranks))
    assert torch.equal(out, ranks * torch.arange(3.0 * rank, 3.0 * rank + 3))
    dist.reduce_scatter(out, [torch.full((3,), float(index)) for index in range(ranks)])
    assert same(out, rank * ranks)
    everyone = torch.full((3,), rank)
    dist.broadcast(everyone, ranks - 1)
    assert same(everyone, ranks - 1)
    total = torch.full((5,), rank + 1)
    dist.reduce(total, ranks - 1)
    assert rank != ranks - 1 or same(total, ranks * (ranks + 1) // 2)


def test_roots_gather_and_scatter(rank, ranks):
    parts = [torch.zeros(2) for _ in range(ranks)] if rank == 0 else None
    dist.gather(torch.full((2,), float(rank)), parts, 0)
    assert rank != 0 or all(same(part, index) for index, part in enumerate(parts))
    out = torch.zeros(2)
    dist.scatter(out, parts, 0)
    assert same(out, rank)


def test_all_to_all_takes_blocks_of_any_size(rank, ranks):
    out = torch.zeros(ranks)
    dist.all_to_all_single(out, torch.arange(float(ranks)) + 10 * rank)
    assert torch.equal(out, 10 * torch.arange(float(ranks)) + rank)
    parts = [torch.zeros(rank + 1) for _ in range(ranks)]
    dist.all_to_all(parts, [torch.full((to + 1,), float(rank)) for to in range(ranks)])
    assert all(same(part, index) for index, part in enumerate(parts))
    out = torch.zeros((rank + 1) * ranks, 2)
    dist.all_to_all_single(out, torch.full((ranks * (ranks + 1) // 2, 2), float(rank)),
                           [rank + 1] * ranks, [to + 1 for to in range(ranks)])
    assert torch.equal(out[:, 0], torch.arange(ranks).repeat_interleave(rank + 1).float())


def test_objects_travel(rank, ranks):
    found = [None] * ranks
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": index} for index in range(ranks)]
    given = [f"from {rank}"]
    dist.broadcast_object_list(given, ranks - 1)
    assert given == [f"from {ranks - 1}"]
    dist.barrier()


def test_other_names_of_collectives(rank, ranks):
    outputs = [[torch.zeros(2), torch.zeros(3)] for _ in range(ranks)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls it old
        dist.all_gather_coalesced(outputs, [torch.full((2,), rank + 1.0), torch.full((3,), -1.0)])
    assert all(same(outputs[index][0], index + 1) for index in range(ranks))
    assert all(same(of_rank[1], -1) for of_rank in outputs)


def test_groups_have_names_and_end(rank, ranks):
    group = dist.new_group(list(range(ranks)), group_desc="all of them")
    assert group.group_name and group.group_name != dist.group.WORLD.group_name
    assert group.group_desc == "all of them"
    dist.all_reduce(torch.ones(1), group=group)
    dist.destroy_process_group(group)
    dist.all_reduce(tensor := torch.ones(2))
    assert same(tensor, ranks)


def test_torch_finds_a_group_for_the_hosts_memory(rank, ranks, tmp_path):
    """Torch asks for it before asynchronous checkpoints and state dicts that rank 0 spreads."""
    assert dist.group.WORLD._device_types == [torch.device("cpu")]
    dist.monitored_barrier(wait_all_ranks=True)
    folder = [str(tmp_path)]
    dist.broadcast_object_list(folder, 0)
    weight = torch.arange(6.0).reshape(2, 3)
    checkpoint.async_save({"weight": weight}, checkpoint_id=folder[0]).result()
    found = {"weight": torch.zeros(2, 3)}
    checkpoint.load(found, checkpoint_id=folder[0])
    assert torch.equal(found["weight"], weight)
    model = torch.nn.Linear(3, 2)
    own = {name: torch.full_like(value, rank + 1.0) for name, value in model.state_dict().items()}
    set_model_state_dict(model, own if rank == 0 else {}, options=StateDictOptions(
        full_state_dict=True, broadcast_from_rank0=True))
    assert same(model.weight, 1) and same(model.bias, 1)
    with pytest.raises(RuntimeError, match="does not support splitting"):
        dist.split_group(split_ranks=[[index] for index in range(ranks)])


def test_groups_are_made_by_their_members_and_alternate(rank, ranks):
    ends = sorted({0, ranks - 1})
    pair = dist.new_group(ends)
    alone = [dist.new_group([index]) for index in range(ranks)]
    for _ in range(3):
        if rank in ends:
            tensor = torch.ones(100)
            dist.all_reduce(tensor, group=pair)
            assert same(tensor, len(ends))
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=alone[rank])
        assert same(tensor, 1)
        dist.all_reduce(tensor)
        assert same(tensor, ranks)


REFUSED = [
    (lambda: dist.all_reduce(torch.ones(2), ReduceOp.BAND), "expected one of SUM, AVG"),
    (lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16)), "got torch.int16; convert it"),
    (lambda: dist.all_reduce(torch.eye(3).to_sparse(), ReduceOp.MAX), "expected SUM or AVG"),
    (lambda: dist.all_reduce(torch.eye(3).to_sparse_csr()), "expected a dense tensor"),
    (lambda: dist.all_reduce(torch.frombuffer(bytearray(9), offset=1, dtype=torch.float32)),
     "input: expected memory that begins at a multiple of 4"),
    (lambda: dist.isend(torch.ones(2), (dist.get_rank() + 1) % dist.get_world_size(), tag=-5),
     "expected a tag from 0 to 2**63 - 1; got -5"),
    (lambda: dist.isend(torch.ones(2), (dist.get_rank() + 1) % dist.get_world_size(), tag="a"),
     "expected a tag from 0 to 2**63 - 1; got 'a'"),
    (lambda: dist.isend(torch.ones(2), (dist.get_rank() + 1) % dist.get_world_size(), tag=2**63),
     "expected a tag from 0 to 2**63 - 1; got 9223372036854775808"),
    (lambda: dist.irecv(torch.ones(4, 4).t(), (dist.get_rank() + 1) % dist.get_world_size()),
     "recv: expected a dense, contiguous tensor"),
    (lambda: dist.recv(torch.ones(2)), "messages from any rank are not supported"),
    (lambda: dist.all_to_all_single(torch.ones(3, 2), torch.ones(3, 2), [9] * dist.get_world_size(),
                                    [9] * dist.get_world_size()), "add up to the first dimension"),
]


@pytest.mark.parametrize("call, text", REFUSED)
def test_what_cannot_be_done_is_one_sentence_on_all_ranks(call, text, ranks):
    if ranks == 1 and ("tag" in text or "recv" in text):
        pytest.skip("torch itself refuses a message to this rank")
    with pytest.raises(Exception, match=re.escape(text)):
        call()
    dist.all_reduce(tensor := torch.ones(2))
    assert same(tensor, ranks)


def test_all_to_all_needs_equal_blocks(ranks):
    if ranks == 1:
        pytest.skip("one rank divides everything")
    with pytest.raises(tutti.InvalidArgumentError, match="equal blocks; got"):
        tensor = torch.ones(2 * ranks + 1)
        tutti.torch.ProcessGroup.alltoall_base(dist.group.WORLD, tensor.clone(), tensor, [], [])


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 5))


def steps_of(model, optimizer, rank, ranks, count=6, **zeroing):
    """A batch per step, of which each rank has its part; a plain model has all of it."""
    torch.manual_seed(7)
    data, labels = torch.randn(count, 8 * ranks, 20), torch.randint(0, 5, (count, 8 * ranks))
    part = slice(8 * rank, 8 * rank + 8) if rank is not None else slice(None)
    for step in range(count):
        optimizer.zero_grad(**zeroing)
        torch.nn.functional.cross_entropy(model(data[step, part]), labels[step, part]).backward()
        optimizer.step()
    whole = [weight.full_tensor() if hasattr(weight, "full_tensor") else weight
             for weight in model.parameters()]
    return torch.cat([weight.detach().reshape(-1) for weight in whole])


@pytest.fixture
def expected(ranks):
    model = network()
    return steps_of(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), None, ranks)


def agree(tensor):
    everyone = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, tensor)
    return all(torch.equal(tensor, other) for other in everyone)


@pytest.mark.parametrize("hook", [None, "plain", "fp16"])
def test_ddp_trains_as_one_process_with_the_whole_batch(hook, rank, ranks, expected):
    model = torch.nn.parallel.DistributedDataParallel(network())
    if hook is not None:
        state = tutti.torch.AllreduceState(compression=None if hook == "plain" else hook)
        model.register_comm_hook(state, tutti.torch.allreduce_hook)
    weights = steps_of(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), rank, ranks)
    assert torch.allclose(weights, expected, atol=1e-6 if hook != "fp16" else 1e-3)
    assert agree(weights)


def test_models_sharded_over_a_mesh_train_alike(rank, ranks, expected):
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("this torch has no fully_shard")
    model = network()
    fsdp.fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (ranks,)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    assert torch.allclose(steps_of(model, optimizer, rank, ranks), expected, atol=1e-6)


def test_zero_redundancy_optimizer_trains_alike(rank, ranks, expected):
    from torch.distributed.optim import ZeroRedundancyOptimizer
    model = torch.nn.parallel.DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    assert torch.allclose(steps_of(model, optimizer, rank, ranks), expected, atol=1e-6)


def test_fully_sharded_models_train_alike(rank, ranks, expected):
    from torch.distributed.fsdp import FullyShardedDataParallel
    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    steps_of(model, optimizer, rank, ranks)
    with FullyShardedDataParallel.summon_full_params(model):
        weights = torch.cat([weight.detach().reshape(-1) for weight in model.parameters()])
    assert torch.allclose(weights, expected, atol=1e-6)


@pytest.mark.parametrize("to_none", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_the_stores_optimizer_trains_alike(overlap, to_none, rank, ranks, expected):
    model = network()
    optimizer = tutti.torch.Optimizer(model.named_parameters(), "sgd", learning_rate=0.1,
                                      momentum=0.9, overlap=overlap)
    weights = steps_of(model, optimizer, rank, ranks, set_to_none=to_none)
    assert torch.allclose(weights, expected, atol=1e-6)
    assert agree(weights)
    assert optimizer.store.verify()["healed"] == 0
    assert model[0].weight.data_ptr() == optimizer.store.view("0.weight").numpy().ctypes.data


@pytest.mark.parametrize("overlap", [False, True])
def test_rates_follow_torchs_schedules_and_groups(overlap, rank, ranks):
    def train(model, make):
        groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.01}]
        optimizer = make(groups)
        optimizer.param_groups[1]["lr"] = 0.01
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        for _ in range(3):
            weights = steps_of(model, optimizer, 0, 1, 2)
            schedule.step()
        return weights
    plain = train(network(), lambda groups: torch.optim.SGD(groups, 0.1))
    stored = train(network(), lambda groups: tutti.torch.Optimizer(groups, learning_rate=0.1,
                                                                   overlap=overlap))
    assert torch.allclose(stored, plain, atol=1e-6)


def test_checkpoints_bring_parameters_back(tmp_path_factory, ranks):
    folder = [str(tmp_path_factory.mktemp("run"))]
    dist.broadcast_object_list(folder, 0)
    model = network()
    optimizer = tutti.torch.Optimizer(model.named_parameters(), "adam", learning_rate=0.1)
    steps_of(model, optimizer, 0, 1, 2)
    optimizer.save(folder[0], {"step": "2"})
    saved = steps_of(model, optimizer, 0, 1, 0)
    after = steps_of(model, optimizer, 0, 1, 2)
    assert not torch.equal(saved, after)
    fresh = network()
    again = tutti.torch.Optimizer(fresh.named_parameters(), "adam", learning_rate=0.1)
    assert again.load(folder[0])["metadata"] == {"step": "2"}
    assert torch.equal(steps_of(fresh, again, 0, 1, 0), saved)
    assert torch.equal(steps_of(fresh, again, 0, 1, 2), after)
