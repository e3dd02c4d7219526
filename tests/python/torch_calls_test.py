# SPDX-License-Identifier: Apache-2.0
"""What ranks may choose by themselves in calls of torch.distributed, and how tensors may lie."""

import datetime
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed as dist
from torch.distributed import ReduceOp

import tutti.torch


@pytest.fixture(scope="module", autouse=True)
def group():
    torch.set_num_threads(1)
    dist.init_process_group("tutti")
    yield tutti.torch.world()
    dist.destroy_process_group()


def same(tensor, expected):
    return torch.equal(tensor, torch.full_like(tensor, expected))


CALLS = {
    "all_reduce": lambda t, n: dist.all_reduce(t),
    "all_reduce later": lambda t, n: dist.all_reduce(t, async_op=True),
    "broadcast": lambda t, n: dist.broadcast(t, 0),
    "reduce": lambda t, n: dist.reduce(t, 0),
    "all_gather": lambda t, n: dist.all_gather([torch.empty_like(t) for _ in range(n)], t),
    "all_gather one": lambda t, n: dist.all_gather_into_tensor(torch.cat([t] * n), t),
    "gather": lambda t, n: dist.gather(
        t, [torch.empty_like(t) for _ in range(n)] if dist.get_rank() == 0 else None),
    "scatter": lambda t, n: dist.scatter(t, [t] * n if dist.get_rank() == 0 else None),
    "reduce_scatter": lambda t, n: dist.reduce_scatter(t, [t] * n),
    "reduce_scatter one": lambda t, n: dist.reduce_scatter_tensor(t, torch.cat([t] * n)),
    "all_to_all": lambda t, n: dist.all_to_all([torch.empty_like(t) for _ in range(n)], [t] * n),
    "all_to_all one": lambda t, n: dist.all_to_all_single(torch.cat([t] * n), torch.cat([t] * n)),
    "send": lambda t, n: dist.isend(t, (dist.get_rank() + 1) % n),
    "recv": lambda t, n: dist.irecv(t, (dist.get_rank() + 1) % n),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_tensor_that_is_not_in_the_hosts_memory_is_refused_by_name(call, ranks):
    if call in ("send", "recv") and ranks == 1:
        return  # torch sends nothing to the own rank
    name = call.split()[0]
    with pytest.raises(tutti.InvalidArgumentError,
                       match=f"{name}.*: expected a tensor in the host's memory; got one on meta"):
        CALLS[call](torch.ones(4, device="meta"), ranks)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert same(tensor, ranks)


@pytest.mark.parametrize("count", [1, 2000, 100000])
def test_async_op_is_a_choice_of_each_rank(count, rank, ranks):
    for round_ in range(6):
        tensor = torch.full((count,), float(rank + 1))
        choice = (rank + round_) % 3
        if choice == 0:
            dist.all_reduce(tensor)
        elif choice == 1:
            dist.all_reduce(tensor, async_op=True).wait()
        else:
            work = dist.all_reduce(tensor, async_op=True)
            assert work.get_future().wait()
            assert work.is_completed()
        assert same(tensor, ranks * (ranks + 1) / 2)


def test_calls_that_nobody_has_waited_for_come_before_the_next_one(rank, ranks):
    first, second = torch.ones(3), torch.ones(3)
    if rank == 0:
        work = dist.all_reduce(first, async_op=True)
        dist.broadcast(second, 0)
        assert same(first, ranks)
        work.wait()
    else:
        dist.all_reduce(first)
        dist.broadcast(second, 0)
    assert same(first, ranks)


def test_calls_of_two_groups_may_begin_in_other_orders(rank, ranks):
    groups = [dist.new_group(list(range(ranks))) for _ in range(2)]
    for count in (3, 1 << 16):
        tensors = [torch.ones(count), torch.ones(count)]

        def begin(index, is_async=True):
            return dist.all_reduce(tensors[index], group=groups[index], async_op=is_async)

        own = [rank % 2, 1 - rank % 2]
        works = [begin(index) for index in own]
        for work in works:
            assert work.wait(datetime.timedelta(seconds=60))
        assert all(same(tensor, ranks) for tensor in tensors)
        for work in [begin(index) for index in own]:
            work.wait()
        if rank == 0:
            work = begin(0)
            begin(1, False)
            assert work.get_future().wait()
        else:
            begin(1, False)
            begin(0, False)
        dist.barrier()
        assert all(same(tensor, ranks ** 3) for tensor in tensors)


def test_ddp_joins_ranks_with_other_numbers_of_batches(rank):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    with model.join():
        for _ in range(3 + rank):
            model(torch.ones(2, 4)).sum().backward()


def test_lenders_stay_as_they_were(rank, ranks):
    def calls(tensor):
        dist.all_reduce(tensor, ReduceOp.MAX)
        dist.all_reduce(tensor, ReduceOp.MAX, async_op=True).wait()
        dist.broadcast(tensor, 0)
        dist.reduce(tensor, 0, ReduceOp.MAX)
        dist.all_gather([torch.empty_like(tensor) for _ in range(ranks)], tensor)

    for dtype in (torch.float32, torch.bool, torch.bfloat16):
        tensor = torch.ones(4, dtype=dtype)
        calls(tensor)
        tensor.resize_(40)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("lay", [
    lambda values: values.t(), lambda values: values[:, ::2], lambda values: values[1:, 1],
    lambda values: values.reshape(2, 3, 2, 2).contiguous(memory_format=torch.channels_last),
    lambda values: torch.complex(torch.zeros_like(values), values).conj().imag,
    torch._neg_view, torch.nn.Parameter])
def test_a_tensor_may_lie_as_it_likes(lay, asynchronous, rank, ranks):
    def values(number):
        return lay(torch.arange(24.0).reshape(6, 4) * number).requires_grad_(False)

    tensor = values(rank + 1)
    work = dist.all_reduce(tensor, async_op=asynchronous)
    if asynchronous:
        work.wait()
    assert torch.allclose(tensor, values(ranks * (ranks + 1) / 2))
    tensor = values(rank + 1)
    dist.all_reduce(tensor, ReduceOp.MAX)
    assert torch.equal(tensor, torch.maximum(values(1), values(ranks)))
    tensor = values(rank + 1)
    dist.broadcast(tensor, 0)
    assert torch.equal(tensor, values(1))
    gathered = [torch.empty_like(tensor) for _ in range(ranks)]
    dist.all_gather(gathered, values(rank + 1))
    assert all(torch.equal(one, values(index + 1)) for index, one in enumerate(gathered))


def test_a_monitored_barrier_names_who_is_missing_and_the_group_goes_on(rank, ranks):
    """Errors are RuntimeErrors, as those of torch's backends are."""
    everyone = dist.new_group(list(range(ranks)))
    for wait_all_ranks in (False, True):
        dist.monitored_barrier(everyone, datetime.timedelta(seconds=60), wait_all_ranks)
    if rank == 0 and ranks > 1:
        name = "Rank 1" if ranks == 2 else "Ranks 1, 2"
        with pytest.raises(RuntimeError, match=f"{name} failed to pass monitoredBarrier in 50 ms"):
            dist.monitored_barrier(everyone, datetime.timedelta(milliseconds=50), True)
    elif rank > 0:
        dist.barrier()
        with pytest.raises(RuntimeError, match=f"Rank {rank} successfully reached"):
            dist.monitored_barrier(everyone, datetime.timedelta(seconds=60))
    if rank == 0:
        dist.barrier()
    dist.monitored_barrier(everyone, datetime.timedelta(seconds=60))
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=everyone)
    assert same(tensor, ranks)
    dist.destroy_process_group(everyone)


class Probe(dist.ProcessGroup):
    """Another backend, which tells what it was called for."""

    calls: list = []

    def getBackendName(self):
        return "probe"

    def _set_group_name(self, name):
        pass

    def _set_group_desc(self, description):
        pass

    def allreduce(self, tensors, opts=None):
        Probe.calls.append("allreduce")
        return dist.group.WORLD._done

    def broadcast(self, tensors, opts=None):
        Probe.calls.append("broadcast")
        return dist.group.WORLD._done

    def allgather(self, outputs, inputs, opts=None):
        Probe.calls.append("allgather")
        return dist.group.WORLD._done


def test_tensors_of_other_devices_are_another_backends(rank, ranks):
    if not hasattr(dist.Backend, "PROBE"):
        dist.Backend.register_backend(
            "probe", lambda store, own, of_all, timeout: Probe(own, of_all), devices=["meta"])
    group = dist.new_group(list(range(ranks)), backend="cpu:tutti,meta:probe")
    here, elsewhere = torch.ones(2), torch.ones(2, device="meta")
    dist.all_reduce(here, group=group)
    assert same(here, ranks) and Probe.calls == []
    dist.all_reduce(elsewhere, group=group)
    dist.broadcast(elsewhere, 0, group=group)
    dist.all_gather([elsewhere] * ranks, elsewhere, group=group)
    assert Probe.calls == ["allreduce", "broadcast", "allgather"]
    dist.barrier(group=group)
    dist.destroy_process_group(group)


def test_a_group_for_gpus_too_serves_tensors_of_the_host(ranks):
    group = dist.new_group(list(range(ranks)), backend="cpu:tutti,cuda:nccl")
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=group)
    assert same(tensor, ranks) and [str(kind) for kind in group._device_types] == ["cpu", "cuda"]
    dist.destroy_process_group(group)


def test_a_compiled_model_trains_as_the_plain_one(rank):
    def trained(wrap):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        ready = wrap(torch.nn.parallel.DistributedDataParallel(model))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(2):
            torch.manual_seed(10 * step + rank)
            optimizer.zero_grad()
            ready(torch.randn(5, 4)).square().mean().backward()
            optimizer.step()
        return torch.cat([param.detach().reshape(-1) for param in model.parameters()])

    torch.testing.assert_close(trained(torch.compile), trained(lambda model: model))


def test_a_future_does_not_wait_for_those_before_it():
    from tutti.torch._work import _Watcher

    class Call:
        def __init__(self, is_ready):
            self.is_ready = is_ready

        def ready(self):
            return self.is_ready

        def wait(self):
            pass

    watcher = _Watcher()
    calls, futures = [Call(False), Call(True)], [torch.futures.Future(), torch.futures.Future()]
    for call, future in zip(calls, futures):
        watcher.watch([call], [], future)
    for _ in range(6000):
        if futures[1].done():
            break
        time.sleep(0.01)
    assert futures[1].done() and not futures[0].done()
    calls[0].is_ready = True
    assert futures[0].wait() == []
