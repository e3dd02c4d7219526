# SPDX-License-Identifier: Apache-2.0
"""Messages of torch.distributed over the backend tutti, between the ranks of a job."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed as dist

import tutti
import tutti.torch


@pytest.fixture(scope="module", autouse=True)
def group():
    torch.set_num_threads(1)
    if tutti.torch.world().size == 1:
        pytest.skip("a message needs two ranks")
    dist.init_process_group("tutti")
    yield
    dist.destroy_process_group()


def same(tensor, expected):
    return torch.equal(tensor, torch.full_like(tensor, expected))


def test_messages_of_a_ring_take_place_whoever_begins(rank, ranks):
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    for first in ("isend", "irecv"):
        sent, taken = torch.full((1000,), float(rank)), torch.zeros(1000)
        begun = [dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, taken, before)]
        for work in dist.batch_isend_irecv(begun if first == "isend" else begun[::-1]):
            work.wait()
        assert same(taken, before)
    if rank == 0:
        dist.send(torch.arange(4), 1)
    elif rank == 1:
        dist.recv(taken := torch.zeros(4, dtype=torch.int64), 0)
        assert torch.equal(taken, torch.arange(4))


def test_tags_tell_messages_apart(rank):
    if rank == 0:
        begun = [dist.isend(torch.full((3,), float(tag)), 1, tag=tag) for tag in (7, 2, 7, 9)]
        begun.append(dist.isend(torch.zeros(0, dtype=torch.bfloat16), 1, tag=1))
        for work in begun:
            work.wait()
        with pytest.raises(tutti.MismatchError, match="expected 8 bytes to rank 1 with tag 4"):
            dist.send(torch.ones(2), 1, tag=4)
    elif rank == 1:
        for tag in (2, 7, 9, 7):
            dist.recv(taken := torch.zeros(3), 0, tag=tag)
            assert same(taken, tag)
        dist.recv(torch.zeros(0, dtype=torch.bfloat16), 0, tag=1)
        text = "expected 12 bytes from rank 0 with tag 4; got 8"
        with pytest.raises(tutti.MismatchError, match=text):
            dist.recv(torch.zeros(3), 0, tag=4)
    dist.barrier()


def test_ranks_wait_for_messages_in_orders_of_their_own(rank):
    """A rank that has begun to receive what is sent later sends what the other one waits for."""
    values = [torch.full((5,), float(number)) for number in range(4)]
    taken = [torch.zeros(5) for _ in values]
    if rank == 0:
        dist.recv(taken[0], 1)
        dist.send(values[1], 1)
        for number in (2, 3):
            dist.send(values[number], 1, tag=number)
        works = [dist.irecv(taken[1], 1, tag=1), dist.isend(values[1], 1, tag=1)]
        while not all(work.is_completed() for work in works):
            pass
    elif rank == 1:
        early = dist.irecv(taken[1], 0)
        later = dist.isend(values[0], 0)
        early.wait()
        for number in (3, 2):  # the first comes while this rank waits for the second
            dist.recv(taken[number], 0, tag=number)
            assert same(taken[number], number)
        dist.recv(taken[0], 0, tag=1)
        dist.send(values[1], 0, tag=1)
        later.wait()
        assert same(taken[0], 1)
    if rank < 2:
        assert same(taken[1], 1)
    dist.barrier()


def test_ranks_that_wait_for_each_others_messages_are_told(rank):
    if rank < 2:
        taken = torch.zeros(2)
        work = dist.irecv(taken, 1 - rank, tag=rank)
        text = rf"ranks {rank} and {1 - rank} wait .* the tags \[{1 - rank}\] and \[{rank}\], and"
        with pytest.raises(tutti.MismatchError, match=text):
            work.wait()
        sent = dist.isend(torch.ones(2), 1 - rank, tag=1 - rank)
        work.wait(), sent.wait()
        assert same(taken, 1)
    dist.barrier()


def test_a_message_may_be_begun_before_a_collective_and_awaited_after_it(rank, ranks):
    """The rank that sends waits for the message before it comes to the collective."""
    for call in (dist.all_reduce, lambda value: dist.all_reduce(value, async_op=True).wait(),
                 lambda value: dist.broadcast(value, 0), lambda _: dist.barrier()):
        value = torch.ones(2)
        if rank == 0:
            taken = [torch.zeros(3000) for _ in range(1, ranks)]
            works = [dist.irecv(tensor, other, tag=other)
                     for other, tensor in enumerate(taken, start=1)]
            call(value)
            for other, work in enumerate(works, start=1):
                work.wait()
                assert same(taken[other - 1], other)
        else:
            dist.send(torch.full((3000,), float(rank)), 0, tag=rank)
            call(value)


def test_messages_cross_collectives_of_all_ranks(rank, ranks):
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    taken = [torch.zeros(9) for _ in range(4)]
    received = [dist.irecv(tensor, before) for tensor in taken]
    sent = []
    for number in range(4):
        sent.append(dist.isend(torch.full((9,), float(number)), after))
        dist.barrier()
        if number % 2 == rank % 2:
            received[number].wait()
    for work in [*sent, *received[::-1]]:
        work.wait()
    assert [tensor[0].item() for tensor in taken] == [0, 1, 2, 3]


def test_an_interleaved_pipeline_trains(rank, ranks):
    pipelining = pytest.importorskip("torch.distributed.pipelining")
    torch.manual_seed(3)
    layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
              for _ in range(2 * ranks)]
    whole, wanted = torch.randn(4 * ranks, 8), torch.randn(4 * ranks, 8)
    alone = torch.nn.Sequential(*copy.deepcopy(layers))
    torch.nn.functional.mse_loss(alone(whole), wanted).backward()
    own = (rank, rank + ranks)
    stages = [pipelining.PipelineStage(layers[index], index, 2 * ranks, torch.device("cpu"))
              for index in own]
    schedule = pipelining.ScheduleInterleaved1F1B(stages, 2 * ranks,
                                                  torch.nn.functional.mse_loss)
    schedule.step(*([whole] if rank == 0 else []),
                  **({"target": wanted} if rank == ranks - 1 else {}))
    for index in own:
        for found, expected in zip(layers[index].parameters(), alone[index].parameters()):
            torch.testing.assert_close(found.grad, expected.grad)
