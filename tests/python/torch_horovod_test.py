# SPDX-License-Identifier: Apache-2.0
"""Horovod's names for PyTorch: alone, and on the ranks of a job."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tutti
import tutti.horovod.torch as hvd
import tutti.torch


@pytest.fixture(scope="module", autouse=True)
def job():
    torch.set_num_threads(1)
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture
def rank():
    return hvd.rank()


@pytest.fixture
def ranks():
    return hvd.size()


def same(tensor, expected):
    return torch.equal(tensor, torch.full_like(tensor, expected))


def test_the_job_is_that_of_mpirun(rank, ranks):
    world = tutti.torch.world()
    assert (rank, ranks) == (world.rank, world.size)
    assert (hvd.local_rank(), hvd.local_size()) == (world.local_rank, world.local_size)
    assert (hvd.cross_rank(), hvd.cross_size()) == (world.node, world.num_nodes)
    hvd.init()  # changes nothing
    assert hvd.is_initialized() and hvd.mpi_built() and not hvd.gloo_built()


def test_names_that_are_not_there_say_what_is():
    for name in ("SyncBatchNorm", "elastic", "start_timeline"):
        with pytest.raises(AttributeError, match=name):
            getattr(hvd, name)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (40000,)])
@pytest.mark.parametrize("op, expected", [
    (hvd.Sum, lambda n: n * (n + 1) / 2), (hvd.Average, lambda n: (n + 1) / 2),
    (hvd.Min, lambda n: 1), (hvd.Max, lambda n: n)])
def test_allreduce(op, expected, shape, rank, ranks):
    given = torch.full(shape, rank + 1.0)
    assert same(hvd.allreduce(given, op=op), expected(ranks))
    assert same(given, rank + 1.0)
    assert hvd.allreduce_(given, op=op) is given and same(given, expected(ranks))


def test_allreduce_of_integers_averages_towards_zero(rank, ranks):
    given = torch.full((3,), -rank, dtype=torch.int64)
    assert same(hvd.allreduce(given), int(-ranks * (ranks - 1) / 2 / ranks))


def test_factors_are_of_float32_for_halves(ranks):
    given = torch.full((4,), 3.0, dtype=torch.float16)
    found = hvd.allreduce(given, op=hvd.Sum, prescale_factor=0.3, postscale_factor=2.0)
    assert same(found, (given.float() * 0.3).half()[0].item() * ranks * 2)
    assert same(hvd.allreduce(torch.full((2,), 3), op=hvd.Sum, prescale_factor=0.5), ranks)


def test_the_old_argument_average(ranks):
    with pytest.warns(DeprecationWarning, match="average"):
        assert same(hvd.allreduce(torch.ones(2), average=False), ranks)
    with pytest.raises(ValueError, match="supersedes average"):
        hvd.allreduce(torch.ones(2), average=False, op=hvd.Sum)


def test_adasum_is_refused_by_name():
    with pytest.raises(NotImplementedError, match="Adasum"):
        hvd.allreduce(torch.ones(2), op=hvd.Adasum)
    model = torch.nn.Linear(2, 1)
    with pytest.raises(NotImplementedError, match="Adasum"):
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), op=hvd.Adasum)


def test_what_cannot_be_sent_is_refused_at_the_call():
    for wrong in (torch.ones(4, 4).t(), torch.ones(2).to(torch.int16), torch.ones(2).to_sparse()):
        with pytest.raises(ValueError, match="allreduce"):
            hvd.allreduce(wrong)
    with pytest.raises(ValueError, match="scalar"):
        hvd.allgather(torch.tensor(1.0))


def test_calls_are_matched_by_name_in_any_order(rank, ranks):
    given = {name: torch.full((5,), float(index)) for index, name in enumerate("abcd")}
    order = list(given) if rank % 2 == 0 else list(given)[::-1]
    handles = {name: hvd.allreduce_async(given[name], name=name, op=hvd.Sum) for name in order}
    for name in order:
        assert same(hvd.synchronize(handles[name]), given[name][0].item() * ranks)
    assert hvd.synchronize(handles["a"]) is None


def test_a_call_that_a_rank_makes_later_is_awaited(rank, ranks):
    early = hvd.allreduce_async(torch.ones(2), name="early", op=hvd.Sum) if rank == 0 else None
    assert same(hvd.allreduce(torch.ones(1), name="between", op=hvd.Sum), ranks)
    if rank != 0:
        early = hvd.allreduce_async(torch.ones(2), name="early", op=hvd.Sum)
    assert same(hvd.synchronize(early), ranks)


def test_waits_for_different_calls_end_on_all_ranks(rank, ranks):
    if ranks == 1:
        assert same(hvd.allreduce(torch.ones(1), name="mine"), 1)
        return
    with pytest.raises(hvd.HorovodInternalError, match="rank 0 for allreduce.only0") as raised:
        hvd.allreduce(torch.ones(1), name=f"only{rank}")
    assert raised.value.agreed and raised.value.reporter == (rank == 0)
    assert same(hvd.allreduce(torch.ones(1), op=hvd.Sum), ranks)


def test_calls_that_do_not_fit_together_end_on_all_ranks(rank, ranks):
    if ranks > 1:
        for wrong in (torch.ones(2 + rank), torch.ones(2).to(torch.int32 if rank else torch.int64)):
            with pytest.raises(hvd.HorovodInternalError, match="nothing was changed"):
                hvd.allreduce(wrong, name="wrong")
        with pytest.raises(hvd.HorovodInternalError, match="nothing was changed"):
            hvd.broadcast(torch.ones(2), rank, name="root")
    assert same(hvd.allreduce(torch.ones(1), op=hvd.Sum), ranks)


def test_a_name_that_is_under_way_is_refused(ranks):
    handle = hvd.allreduce_async(torch.ones(2), name="twice", op=hvd.Sum)
    with pytest.raises(ValueError, match="allreduce.twice"):
        hvd.allreduce_async(torch.ones(2), name="twice")
    assert same(hvd.synchronize(handle), ranks)


def test_a_program_that_polls_gets_on(ranks):
    handle = hvd.allreduce_async(torch.ones(2), op=hvd.Sum)
    assert not hvd.poll(handle)
    while not hvd.poll(handle):
        pass
    assert same(hvd.synchronize(handle), ranks)


def test_grouped_calls(rank, ranks):
    given = [torch.full((size,), rank + 1.0) for size in (1, 0, 700)]
    total = ranks * (ranks + 1) / 2
    assert all(same(one, total) for one in hvd.grouped_allreduce(given, op=hvd.Sum))
    gathered = hvd.grouped_allgather([torch.full((rank + 1, 2), float(rank)), torch.ones(1)])
    assert [len(one) for one in gathered] == [total, ranks]
    parts = hvd.grouped_reducescatter([torch.ones(2 * ranks), torch.ones(ranks + 1)], op=hvd.Sum)
    assert [len(one) for one in parts] == [2, 1 + (rank == 0)]
    assert all(same(one, ranks) for one in parts)
    hvd.grouped_allreduce_(given, op=hvd.Sum)
    assert all(same(one, total) for one in given)


def test_allgather_of_uneven_rows_of_any_type(rank, ranks):
    for dtype in (torch.bool, torch.int16, torch.float64, torch.complex64):
        own = torch.ones(rank, 3).to(dtype)  # rank 0 has none
        assert hvd.allgather(own).shape == (ranks * (ranks - 1) // 2, 3)


def test_alltoall(rank, ranks):
    even = hvd.alltoall(torch.arange(ranks) + 10 * rank)
    assert even.tolist() == [rank + 10 * other for other in range(ranks)]
    splits = torch.arange(ranks, dtype=torch.int32)  # rank r gets r rows of each
    sent = torch.full((int(splits.sum()), 2), float(rank))
    rows, received = hvd.alltoall(sent, splits)
    assert rows[:, 0].tolist() == [float(other) for other in range(ranks) for _ in range(rank)]
    assert received.tolist() == [rank] * ranks
    for wrong in ([1] * (ranks + 1), [len(sent) + 1] + [0] * (ranks - 1), torch.ones(ranks)):
        with pytest.raises(ValueError, match="splits"):
            hvd.alltoall(sent, wrong)


def test_gradients_go_through_calls(rank, ranks):
    value = torch.ones(2, requires_grad=True)
    hvd.allreduce(value, op=hvd.Sum).sum().backward()
    assert same(value.grad, ranks)
    value.grad = None
    hvd.broadcast(value, 0).sum().backward()
    assert same(value.grad, 1.0 if rank == 0 else 0.0)
    rows = torch.ones(rank + 1, 2, requires_grad=True)
    (hvd.allgather(rows) * 3).sum().backward()
    assert same(rows.grad, 3)
    split = torch.ones(2 * ranks, requires_grad=True)
    hvd.reducescatter(split, op=hvd.Sum).sum().backward()
    assert same(split.grad, ranks)
    split.grad = None
    (hvd.alltoall(split) * 2).sum().backward()
    assert same(split.grad, 2)


def test_a_rank_that_has_joined_gives_zeros(rank, ranks):
    for _ in range(rank + 1):  # the last rank has the most
        hvd.allreduce(torch.full((3,), 1.0), op=hvd.Sum)
    assert hvd.join() == ranks - 1
    assert same(hvd.allreduce(torch.ones(2), op=hvd.Sum), ranks)
    if rank == 0:
        assert hvd.join() in range(ranks)
    else:
        found = hvd.allreduce(torch.full((3,), 2.0), name="of the others")
        assert torch.allclose(found, torch.full((3,), 2.0 * (ranks - 1) / ranks))
        with pytest.raises(hvd.HorovodInternalError, match="rank 0 has joined"):
            hvd.allgather(torch.ones(2))
        assert hvd.join() in range(ranks)


def test_objects(rank, ranks):
    assert hvd.broadcast_object({"rank": rank}, root_rank=ranks - 1) == {"rank": ranks - 1}
    assert hvd.allgather_object("x" * rank) == ["x" * other for other in range(ranks)]
    unpicklable = (lambda: None) if rank == ranks - 1 else 1
    with pytest.raises(hvd.HorovodInternalError, match=f"rank {ranks - 1} cannot pickle"):
        hvd.allgather_object(unpicklable)


def test_process_sets(rank, ranks):
    members = list(range(0, ranks, 2))
    if ranks == 1:
        with pytest.raises(ValueError, match="duplicate"):
            hvd.add_process_set(members)
        return
    even = hvd.add_process_set(members)
    with pytest.raises(ValueError, match="duplicate"):
        hvd.add_process_set(hvd.ProcessSet(members))
    assert even.size() == len(members) and even.included() == (rank in members)
    if rank in members:
        assert even.rank() == members.index(rank)
        assert same(hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=even), len(members))
        assert hvd.broadcast(torch.full((1,), rank), members[-1], process_set=even) == members[-1]
        assert hvd.allgather_object(rank, process_set=even) == members
        hvd.barrier(even)
    else:
        with pytest.raises(ValueError, match="is not in it"):
            hvd.allreduce(torch.ones(2), process_set=even)
    assert hvd.remove_process_set(even) and not hvd.remove_process_set(even)
    assert not hvd.remove_process_set(hvd.global_process_set)
    if rank in members:
        with pytest.raises(ValueError, match="not in use"):
            hvd.allreduce(torch.ones(2), process_set=even)
    with pytest.raises(ValueError, match="same set of all ranks"):
        hvd.add_process_set([rank])


# --- DistributedOptimizer ------------------------------------------------------------------------


def model_and_batches(ranks, steps):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 2))
    return model.double(), torch.randn(steps, ranks, 4, 6, dtype=torch.float64)


def trained_alone(kind, options, ranks, steps, factor=1.0):
    """Weights of one process that sees the batches of all ranks."""
    model, batches = model_and_batches(ranks, steps)
    optimizer = kind(model.parameters(), **options)
    for batch in batches:
        optimizer.zero_grad()
        (sum(model(part).square().mean() for part in batch) / ranks * factor).backward()
        optimizer.step()
    return [param.detach() for param in model.parameters()]


@pytest.mark.parametrize("kind, options", [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}), (torch.optim.AdamW, {"lr": 0.01})])
@pytest.mark.parametrize("more", [{}, {"gradient_predivide_factor": 4.0}, {"groups": 2},
                                  {"op": hvd.Sum}])
def test_training_is_as_with_the_batches_of_all_ranks(kind, options, more, rank, ranks):
    model, batches = model_and_batches(ranks, 5)
    optimizer = kind(model.parameters(), **options)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **more)
    assert isinstance(optimizer, kind)
    for batch in batches:
        optimizer.zero_grad()
        model(batch[rank]).square().mean().backward()
        optimizer.step()
        schedule.step()
    expected = trained_alone(kind, options, ranks, 5, ranks if more.get("op") == hvd.Sum else 1.0)
    for found, known in zip(model.parameters(), expected):
        torch.testing.assert_close(found.detach(), known, rtol=1e-10, atol=1e-12)


def test_several_backward_passes_per_step(rank, ranks):
    model, batches = model_and_batches(ranks, 4)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1),
                                         model.named_parameters(), backward_passes_per_step=2)
    alone, _ = model_and_batches(ranks, 4)
    for pair in batches.split(2):
        for batch in pair:
            model(batch[rank]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        gradients = torch.autograd.grad(
            sum(alone(part).square().mean() for batch in pair for part in batch) / ranks,
            list(alone.parameters()))
        with torch.no_grad():
            for param, gradient in zip(alone.parameters(), gradients):
                param -= 0.1 * gradient
    for found, known in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(found, known, rtol=1e-10, atol=1e-12)
    for _ in range(2):
        model(batches[0, rank]).sum().backward()
    if ranks > 1:
        with pytest.raises(AssertionError, match="backward_passes_per_step"):
            model(batches[0, rank]).sum().backward()
        with pytest.raises(AssertionError, match="zero_grad"):
            optimizer.zero_grad()
    optimizer.synchronize()


def test_clipping_and_compression(rank, ranks):
    model, batches = model_and_batches(ranks, 1)
    model.float()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1),
                                         model.named_parameters(),
                                         compression=hvd.Compression.fp16)
    model(batches[0, rank].float()).square().mean().backward()
    optimizer.synchronize()
    assert all(param.grad.dtype is torch.float32 for param in model.parameters())
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    norms = hvd.allgather(norm.reshape(1))
    assert same(norms, norm.item())  # the mean's, alike on all ranks
    with optimizer.skip_synchronize():
        optimizer.step()


def test_a_gradient_that_a_rank_lacks_counts_as_zero(rank, ranks):
    used, unused = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    model = torch.nn.ModuleList([used, unused])
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    before = unused.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1.0),
                                         model.named_parameters())
    out = used(torch.ones(2)) + (unused(torch.ones(2)) if rank == 0 else 0)
    out.sum().backward()
    optimizer.step()
    assert torch.allclose(unused.weight.detach(), before - 1.0 / ranks)


@pytest.mark.parametrize("as_dense", [False, True])
def test_sparse_gradients(as_dense, rank, ranks):
    table = torch.nn.Embedding(6, 2, sparse=True)
    hvd.broadcast_parameters(table.state_dict(), root_rank=0)
    before = table.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), 1.0),
                                         table.named_parameters(), sparse_as_dense=as_dense)
    table(torch.tensor([0, 0, 1 + rank % 2])).sum().backward()
    optimizer.step()
    expected = before.clone()
    expected[0] -= 2
    for other in range(ranks):
        expected[1 + other % 2] -= 1.0 / ranks
    torch.testing.assert_close(table.weight.detach(), expected)


def test_an_optimizers_state_comes_from_the_root(rank, ranks):
    model, batches = model_and_batches(ranks, 1)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01 * (rank + 1))
    weights = [param.detach().clone() for param in model.parameters()]
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)  # of a new one: nothing moves
    assert not optimizer.state and optimizer.param_groups[0]["lr"] == 0.01
    assert all(torch.equal(*pair) for pair in zip(weights, model.parameters()))
    if rank == 0:
        model(batches[0, 0]).sum().backward()
        optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for state in optimizer.state.values():
        assert state["step"] == 1
        found = hvd.allgather(state["exp_avg"].reshape(1, -1))
        assert torch.equal(found, found[:1].expand_as(found))
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(model.parameters()), root_rank=0)


def test_wrong_arguments_of_the_optimizer():
    first, second = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    both = [*first.parameters(), *second.parameters()]
    made = torch.optim.SGD(both, 0.1)
    twice = [*first.named_parameters(), *second.named_parameters()]
    for arguments, text in (
            ({"named_parameters": twice}, "unique"),
            ({"named_parameters": first.named_parameters()}, "not named"),
            ({"named_parameters": both}, "tuples"),
            ({"backward_passes_per_step": 0}, "backward_passes_per_step"),
            ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "gradient_predivide_factor"),
            ({"groups": [[both[0]], [both[0]]]}, "once")):
        with pytest.raises(ValueError, match=text):
            hvd.DistributedOptimizer(made, **arguments)
    ours = tutti.torch.SGD(first.named_parameters(), 0.1, store=tutti.create("local"))
    with pytest.raises(ValueError, match="tutti.torch"):
        hvd.DistributedOptimizer(ours)


def test_calls_before_init_say_so(rank):
    hvd.shutdown()
    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match="hvd.init"):
        hvd.rank()
    with pytest.raises(ValueError, match="hvd.init"):
        hvd.allreduce(torch.ones(1))
    hvd.init()
    assert hvd.rank() == rank
