# SPDX-License-Identifier: Apache-2.0
"""tutti.torch.Optimizer: groups, rates, checkpoints, what it refuses, its memory and its end."""

import gc
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.nn.functional import cross_entropy

import tutti
import tutti.torch


@pytest.fixture
def ranks():
    torch.set_num_threads(1)
    return tutti.torch.world()


@pytest.fixture
def folder(ranks, tmp_path_factory):
    return ranks.broadcast_object(str(tmp_path_factory.mktemp("run")))


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 5))


def backward(model):
    model(torch.ones(1, 20)).square().sum().backward()


def train(model, optimizer, count=3):
    torch.manual_seed(7)
    for _ in range(count):
        optimizer.zero_grad()
        data, labels = torch.randn(8, 20), torch.randint(0, 5, (8,))
        cross_entropy(model(data), labels).backward()
        optimizer.step()
    return weights_of(model)


def weights_of(model):
    return torch.cat([weight.detach().reshape(-1) for weight in model.parameters()])


def groups_of(model, *options):
    return [{"params": list(layer.parameters()), **own}
            for layer, own in zip((model[0], model[2]), options)]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("base, own", [(0.1, ({}, {"weight_decay": 0.0})),
                                       (0.1, ({"weight_decay": 0.3}, {"weight_decay": 0.05})),
                                       (0.0, ({}, {"weight_decay": 0.2, "lr": 0.01}))])
def test_groups_have_a_weight_decay_of_their_own(base, own, overlap, ranks):
    plain, stored = network(), network()
    expected = train(plain, torch.optim.SGD(groups_of(plain, *own), 0.1, weight_decay=base))
    optimizer = tutti.torch.Optimizer(groups_of(stored, *own), learning_rate=0.1,
                                      weight_decay=base, overlap=overlap)
    assert torch.allclose(train(stored, optimizer), expected, atol=1e-6)
    for model, changed in ((plain, None), (stored, optimizer)):
        if changed is None:
            changed = torch.optim.SGD(groups_of(model, *own), 0.1, weight_decay=base)
        changed.param_groups[1]["weight_decay"] = 0.02
        weights = train(model, changed)
        expected, found = (weights, expected) if model is plain else (expected, weights)
    assert torch.allclose(found, expected, atol=1e-6)


def test_options_of_groups_that_would_be_ignored_are_refused():
    with pytest.raises(tutti.InvalidArgumentError, match="got betas, momentum; all other options"):
        tutti.torch.Optimizer(groups_of(network(), {"momentum": 0.9, "betas": (0.9, 0.99)}, {}))
    with pytest.raises(tutti.InvalidArgumentError, match="got momentum; all other options"):
        tutti.torch.Optimizer(groups_of(network(), {"momentum": 0}, {}), momentum=0.9)
    optimizer = tutti.torch.Optimizer(network().parameters(), overlap=False)
    optimizer.param_groups[0]["weight_decay"] = 0.1
    with pytest.raises(tutti.InvalidArgumentError, match="a factor of the option weight_decay"):
        optimizer.step()


def test_what_groups_say_for_the_program_alone_stays_there(ranks):
    model = network()
    groups = groups_of(model, {"lr_scale": 0.5}, {"name": "head"})
    torch.optim.SGD(groups, lr=0.1)  # it writes its defaults into the groups
    optimizer = tutti.torch.Optimizer(groups, learning_rate=0.1)
    assert optimizer.param_groups[0]["lr_scale"] == 0.5
    assert optimizer.param_groups[1]["name"] == "head"
    train(model, optimizer)


def test_parameters_that_come_later_are_refused():
    optimizer = tutti.torch.Optimizer(network().parameters())
    with pytest.raises(tutti.InvalidArgumentError, match="the parameters that it was made with"):
        optimizer.add_param_group({"params": network().parameters()})
    assert len(optimizer.param_groups) == 1


def test_the_stores_schedules_decide_the_rate_of_all_groups(ranks):
    model = network()
    optimizer = tutti.torch.Optimizer(groups_of(model, {}, {}), "sgd", learning_rate=0.1,
                                      schedule="cosine", max_update=10, overlap=False)
    before = weights_of(model)
    assert not torch.equal(train(model, optimizer), before)
    model = network()
    places = [weight.data_ptr() for weight in model.parameters()]
    with pytest.raises(tutti.InvalidArgumentError, match="schedule=cosine decides the rate of all"):
        tutti.torch.Optimizer(groups_of(model, {"lr": 0.01}, {}), "sgd", learning_rate=0.1,
                              schedule="cosine", max_update=10)
    assert [weight.data_ptr() for weight in model.parameters()] == places
    optimizer.param_groups[0]["lr"] = 0.01
    with pytest.raises(tutti.InvalidArgumentError, match="got groups with lr="):
        train(network(), optimizer, 1)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_checkpoint_has_no_rates_of_groups(overlap, folder, ranks):
    def made(momentum=0.9):
        model = network()
        optimizer = tutti.torch.Optimizer(
            groups_of(model, {}, {"lr": 0.01, "weight_decay": 0.01}), learning_rate=0.1,
            momentum=momentum, overlap=overlap)
        return model, optimizer

    model, optimizer = made()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda n: 0.5**n, lambda n: 0.9**n])
    train(model, optimizer)
    schedule.step()
    train(model, optimizer)
    optimizer.save(folder)
    rates = [group["lr"] for group in optimizer.param_groups]
    saved, after = weights_of(model), train(model, optimizer)
    fresh, again = made()
    again.load(folder)
    assert torch.equal(weights_of(fresh), saved)
    for group, rate in zip(again.param_groups, rates):
        group["lr"] = rate
    assert torch.equal(train(fresh, again), after)
    other, changed = made(momentum=0.5)
    with pytest.raises(tutti.InvalidArgumentError, match="other_options"):
        changed.load(folder)
    changed.load(folder, other_options=True)
    assert torch.equal(weights_of(other), saved)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_step_has_taken_place_where_pushes_go_on(overlap, ranks):
    store = tutti.create("dist", asynchronous=True)
    model = torch.nn.Linear(2000, 1000)
    optimizer = tutti.torch.Optimizer(model.parameters(), learning_rate=1.0, store=store,
                                      overlap=overlap)
    for _ in range(3):
        before = model.weight.detach().clone()
        optimizer.zero_grad()
        model(torch.ones(1, 2000)).sum().backward()
        optimizer.step()
        assert torch.equal(model.weight.detach(), before - 1)


def test_a_scaler_that_looks_at_one_rank_is_refused():
    model = network()
    optimizer = tutti.torch.Optimizer(model.parameters(), overlap=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(model(torch.ones(1, 20)).sum()).backward()
    before = weights_of(model)
    with pytest.raises(tutti.InvalidArgumentError, match="the option loss_scale="):
        scaler.step(optimizer)
    assert torch.equal(weights_of(model), before)
    optimizer.zero_grad()
    backward(model)
    optimizer.step()  # a plain one
    assert not torch.equal(weights_of(model), before)


def replace(model):
    model[0].bias.grad = model[0].bias.grad.clone()


@pytest.mark.parametrize("change", [
    lambda model: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0),
    lambda model: model[0].bias.grad.mul_(0.5), replace,
    lambda model: model.zero_grad()])
def test_gradients_that_were_pushed_stay_as_they_are(change):
    model = network()
    optimizer = tutti.torch.Optimizer(model.named_parameters(), overlap=True)
    backward(model)
    change(model)
    with pytest.raises(tutti.InvalidArgumentError, match="gradient of parameter 0.* was changed"):
        optimizer.step()
    optimizer.zero_grad()
    backward(model)
    optimizer.step()
    optimizer.close()
    optimizer = tutti.torch.Optimizer(model.named_parameters(), overlap=False)
    backward(model)
    change(model)
    optimizer.step()


@pytest.mark.parametrize("overlap", [False, True])
def test_sparse_gradients_train_alike(overlap):
    def result(make):
        torch.manual_seed(3)
        table = torch.nn.Embedding(50, 4, sparse=True)
        optimizer = make(table.parameters())
        for index in range(3):
            optimizer.zero_grad()
            table(torch.tensor([index, 7, 7])).square().sum().backward()
            optimizer.step()
        return table.weight.detach()

    stored = result(lambda params: tutti.torch.Optimizer(params, learning_rate=0.1,
                                                         overlap=overlap))
    assert torch.allclose(stored, result(lambda params: torch.optim.SGD(params, 0.1)), atol=1e-6)


def hooks_of(model):
    return [len(weight._post_accumulate_grad_hooks or {}) for weight in model.parameters()]


def test_a_newer_optimizer_closes_that_which_had_the_parameters(ranks):
    model = network()
    first = tutti.torch.Optimizer(model.parameters(), learning_rate=1.0, overlap=True)
    assert hooks_of(model) == [1] * 4
    backward(model)  # pushes that nobody steps
    second = tutti.torch.Optimizer(model.parameters(), learning_rate=1.0, overlap=True)
    assert hooks_of(model) == [1] * 4
    with pytest.raises(tutti.InvalidArgumentError, match="closed, by close.. or by a newer"):
        first.step()
    second.zero_grad()
    before = weights_of(model)
    backward(model)
    second.step()
    assert not torch.equal(weights_of(model), before)
    second.close()
    second.close()
    assert hooks_of(model) == [0] * 4
    backward(model)


def test_an_optimizer_that_is_dropped_leaves_no_hooks():
    model = network()
    optimizer = tutti.torch.Optimizer(model.parameters(), overlap=True)
    del optimizer
    gc.collect()
    assert hooks_of(model) == [0] * 4


def test_pushes_of_an_optimizer_that_is_dropped_end_well(ranks):
    model = network()
    optimizer = tutti.torch.Optimizer(model.parameters(), overlap=True)
    backward(model)
    del optimizer
    gc.collect()
    ranks.barrier()  # which fails where a store gave up its pushes


def test_a_store_has_one_optimizer():
    store = tutti.create("dist")
    first, second = network(), network()
    optimizer = tutti.torch.Optimizer(first.named_parameters(), store=store)
    with pytest.raises(tutti.InvalidArgumentError, match="a store that runs no optimizer"):
        tutti.torch.Optimizer([(f"b.{name}", weight) for name, weight in second.named_parameters()],
                              "adam", store=store)
    assert store.optimizer.name == optimizer._rule.name == "sgd"


def test_an_optimizer_that_cannot_be_made_leaves_the_one_before():
    model = network()
    store = tutti.create("dist")
    store.init(3, torch.zeros(2).numpy())
    optimizer = tutti.torch.Optimizer(model.parameters(), learning_rate=0.1)
    with pytest.raises(tutti.InvalidArgumentError, match="key 3 .*exists already"):
        tutti.torch.Optimizer(model.parameters(), store=store)
    train(model, optimizer)


def test_a_model_outlives_its_optimizer():
    def trained():
        model = network()
        optimizer = tutti.torch.Optimizer(model.parameters(), learning_rate=0.1)
        return model, train(model, optimizer)

    model, expected = trained()
    gc.collect()
    others = [tutti.torch.Optimizer(torch.nn.Linear(30, size).parameters()) for size in (20, 5, 30)]
    assert torch.equal(weights_of(model), expected) and len(others) == 3


def test_buffers_and_parameters_that_stand_still_are_rank_zeros(ranks):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    model[0].bias.requires_grad_(False)
    model.register_buffer("turned", torch.arange(6.0).reshape(2, 3).t())
    model.register_buffer("conjugate", torch.tensor([1j]).conj())
    with torch.no_grad():
        for tensor in [model[0].bias, *model.buffers()]:
            tensor.add_(ranks.rank + 1)
        model[0].weight.fill_(ranks.rank)
    tutti.torch.broadcast_buffers(model)
    assert model[1].num_batches_tracked == 1 and (model[1].running_mean == 1).all()
    assert model.conjugate.item() == 1 - 1j
    assert (model[1].running_var == 2).all() and model.turned.tolist() == [[1, 4], [2, 5], [3, 6]]
    everyone = ranks.allgather_object(model[0].bias.tolist())
    assert everyone == [everyone[0]] * ranks.size
    assert (model[0].weight == ranks.rank).all()  # an Optimizer spreads it
    assert model[1].running_mean.resize_(100).shape == (100,)  # its memory was lent for the call


def test_a_first_group_that_stands_still_stops_no_other():
    model = network()
    groups = [{"params": model[0].parameters(), "lr": 0.0},
              {"params": model[2].parameters(), "lr": 0.5}]
    optimizer = tutti.torch.Optimizer(groups, learning_rate=0.1, overlap=False)
    before = [weight.detach().clone() for weight in model.parameters()]
    model(torch.ones(1, 20)).sum().backward()
    optimizer.step()
    moved = [not torch.equal(weight, old) for weight, old in zip(model.parameters(), before)]
    assert moved == [False, False, True, True]


def test_gradients_are_the_mean_over_the_stores_ranks():
    model = network()
    optimizer = tutti.torch.Optimizer(model.parameters(), learning_rate=1.0,
                                      store=tutti.create("local"))
    before = model[2].bias.detach().clone()
    model(torch.ones(1, 20)).sum().backward()
    optimizer.step()
    assert torch.allclose(before - model[2].bias.detach(), torch.ones(5))


def test_clipping_needs_all_gradients_together():
    with pytest.raises(tutti.InvalidArgumentError, match="overlap=False"):
        tutti.torch.Optimizer(network().parameters(), clip_global_norm=1.0, overlap=True)


def test_passes_add_up_under_no_push():
    for overlap in (False, True):
        model = network()
        optimizer = tutti.torch.Optimizer(model.parameters(), learning_rate=1.0, overlap=overlap)
        before = model[2].bias.detach().clone()
        for index in range(2):
            inside = optimizer.no_push() if index == 0 else torch.enable_grad()
            with inside:
                model(torch.ones(1, 20)).sum().backward()
        optimizer.step()
        assert torch.allclose(before - model[2].bias.detach(), torch.full((5,), 2.0))


def test_a_parameter_without_a_gradient_stays():
    model = network()
    optimizer = tutti.torch.Optimizer(model.parameters(), learning_rate=1.0, overlap=False)
    model(torch.ones(1, 20)).sum().backward()
    optimizer.step()
    before = [weight.detach().clone() for weight in model.parameters()]
    optimizer.zero_grad()
    model[2](torch.ones(1, 30)).sum().backward()
    optimizer.step()
    moved = [not torch.equal(weight, old) for weight, old in zip(model.parameters(), before)]
    assert moved == [False, False, True, True]


def test_a_step_without_its_gradients_says_so():
    model = network()
    optimizer = tutti.torch.Optimizer(model.parameters(), overlap=True)
    with pytest.raises(tutti.InvalidArgumentError, match="expected one backward pass"):
        optimizer.step()
    model[0].weight.requires_grad_(False)
    with pytest.raises(tutti.InvalidArgumentError, match="that requires a gradient"):
        tutti.torch.Optimizer(model.parameters())


def test_parameters_elsewhere_are_refused(ranks):
    with pytest.raises(tutti.InvalidArgumentError, match="0: expected one in .* got one on meta"):
        tutti.torch.Optimizer([torch.nn.Parameter(torch.ones(3, device="meta"))], "sgd")


@pytest.mark.parametrize("value, words", [
    (torch.zeros(4, requires_grad=True), "require gradient"),
    (torch.zeros(4, 2)[:, 0], "C-contiguous"),
    (torch.zeros(4).to_sparse(), "does not give its memory away"),
    (torch.zeros(4, device="meta"), "does not give its memory away|device type")])
def test_what_torch_does_not_give_away_is_refused_with_its_words(value, words):
    kv = tutti.create("local")
    kv.init("w", torch.zeros(4))
    with pytest.raises(tutti.InvalidArgumentError, match=words):
        kv.push("w", value)
    kv.push("w", torch.ones(4))
    out = torch.zeros(4)
    kv.pull("w", out)
    assert out.tolist() == [1.0] * 4


@pytest.mark.parametrize("overlap", [False, True])
def test_a_parameter_that_gets_memory_of_its_own_shows_the_store_again(overlap, ranks):
    def trained(moves):
        model = network()
        optimizer = tutti.torch.Optimizer(model.named_parameters(), "sgd", learning_rate=0.1,
                                          momentum=0.9, overlap=overlap)
        for step in range(3):
            before = model[0].weight.data.clone()
            optimizer.zero_grad()
            backward(model)
            if moves:  # between a push and the step, too, with the values of before
                model[0].weight.data = before
            optimizer.step()
            if moves:  # as flatten_parameters() of an LSTM does
                model[step % 2 * 2].weight.data = model[step % 2 * 2].weight.data.clone()
            train(model, optimizer, 1)
        return weights_of(model)

    assert torch.equal(trained(True), trained(False))


def test_a_model_that_is_converted_after_its_optimizer_is_refused(ranks):
    model = network()
    optimizer = tutti.torch.Optimizer(model.named_parameters(), "sgd", overlap=False)
    model.double()
    with pytest.raises(tutti.InvalidArgumentError,
                       match=r"0.weight: expected \(30, 20\) torch.float32 on cpu, .*float64"):
        optimizer.step()


def test_a_branch_that_lacks_gradients_on_one_rank_is_an_error_of_all():
    ranks = tutti.torch.world()
    used, branch = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    model = torch.nn.ModuleDict({"used": used, "branch": branch})
    optimizer = tutti.torch.Optimizer(model.named_parameters(), learning_rate=0.1, overlap=True)
    has_branch = ranks.rank < ranks.size - 1
    out = used(torch.ones(1, 4)) + (branch(torch.ones(1, 4)) if has_branch else 0)
    out.sum().backward()
    lacks = "a rank none of parameter branch"
    with pytest.raises(tutti.InvalidArgumentError, match=lacks) as raised:
        optimizer.step()
    assert raised.value.agreed and f"this rank got {4 if has_branch else 2}," in str(raised.value)
    optimizer.zero_grad()
    (used(torch.ones(1, 4)) + branch(torch.ones(1, 4))).sum().backward()
    optimizer.step()  # it goes on


@pytest.mark.parametrize("overlap", [False, True])
def test_gradients_that_a_rank_lacks_count_as_zero_if_asked(overlap, ranks):
    used, branch = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    model = torch.nn.ModuleDict({"used": used, "branch": branch, "never": torch.nn.Linear(1, 1)})
    optimizer = tutti.torch.Optimizer(model.named_parameters(), learning_rate=1.0, overlap=overlap,
                                      find_unused_parameters=True)
    for has_branch in (ranks.rank == 0, True, ranks.rank > 0):
        before = [layer.bias.detach().clone() for layer in model.values()]
        optimizer.zero_grad()
        out = used(torch.ones(1, 4)) + (branch(torch.ones(1, 4)) if has_branch else 0)
        out.sum().backward()
        optimizer.step()
        count = ranks.allgather_object(has_branch).count(True)
        for layer, old, mean in zip(model.values(), before, (1.0, count / ranks.size, 0.0)):
            assert torch.allclose(old - layer.bias.detach(), torch.full_like(old, mean)), mean
    optimizer.zero_grad()
    with optimizer.no_push():
        branch(torch.ones(1, 4)).sum().backward()  # which the pass that pushes does not add to
    used(torch.ones(1, 4)).sum().backward()
    before = branch.bias.detach().clone()
    optimizer.step()
    assert torch.allclose(before - branch.bias.detach(), torch.ones(2))


def test_samples_follow_from_the_step_for_any_number_of_ranks():
    def samplers(size, **options):
        return [tutti.torch.Sampler(103, 12, SimpleNamespace(rank=rank, size=size), **options)
                for rank in range(size)]
    whole = [batch for _ in range(2) for batch in samplers(1)[0]]  # two epochs: the same one twice
    assert len(whole) == 2 * 8 and len(samplers(1)[0]) == 8
    first = list(samplers(1)[0])
    assert sorted(set(sum(first, []))) == sorted(sum(first, [])) and len(sum(first, [])) == 96
    one = samplers(1)[0]
    epochs = [list(one), list(one)]
    assert epochs[0] == first and epochs[1] != first
    for size in (2, 3, 4):
        for step in range(16):
            together = sum((each.batch(step) for each in samplers(size)), [])
            assert together == epochs[step // 8][step % 8]
    later = samplers(2, step=11)
    assert [len(each) for each in later] == [5, 5]
    assert [a + b for a, b in zip(*later)] == epochs[1][3:]
    with pytest.raises(tutti.InvalidArgumentError, match="a multiple of their number 5, got 12"):
        samplers(5)
    with pytest.raises(tutti.InvalidArgumentError, match="at least one batch of 120, got 103"):
        tutti.torch.Sampler(103, 120, SimpleNamespace(rank=0, size=2))
