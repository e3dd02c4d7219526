# SPDX-License-Identifier: Apache-2.0
"""tutti.torch.SGD, Adam, ...: torch's formulas, options, states and checkpoints."""

import copy
import inspect

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import tutti
import tutti.torch

CASES = [
    ("SGD", {}), ("SGD", {"momentum": 0.9}), ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("SGD", {"momentum": 0.5, "dampening": 0.3, "weight_decay": 0.01, "maximize": True}),
    ("Adam", {}), ("Adam", {"amsgrad": True, "weight_decay": 0.02, "betas": (0.8, 0.99)}),
    ("Adam", {"decoupled_weight_decay": True, "weight_decay": 0.1, "betas": (0.3, 0.9)}),
    ("AdamW", {}), ("AdamW", {"amsgrad": True, "eps": 1e-5, "maximize": True}),
    ("NAdam", {}), ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("NAdam", {"weight_decay": 0.01, "momentum_decay": 0.01}),
    ("RMSprop", {}), ("RMSprop", {"momentum": 0.9, "centered": True, "weight_decay": 0.01}),
    ("RMSprop", {"momentum": 0.5, "alpha": 0.9}), ("RMSprop", {"centered": True}),
    ("Adagrad", {}), ("Adagrad", {"lr_decay": 0.01, "initial_accumulator_value": 0.5}),
    ("Adadelta", {}), ("Adadelta", {"rho": 0.8, "weight_decay": 0.01, "maximize": True}),
    ("Adamax", {}), ("Adamax", {"weight_decay": 0.01, "betas": (0.7, 0.9)})]
NAMES = sorted({name for name, _ in CASES})


@pytest.fixture
def ranks():
    torch.set_num_threads(1)
    return tutti.torch.world()


def test_options_may_be_numbers_of_numpy(ranks):
    numpy = pytest.importorskip("numpy")
    model = network()
    optimizer = tutti.torch.Adam(model.parameters(), lr=numpy.float32(0.5),
                                 betas=(numpy.float32(0.5), numpy.float64(0.75)),
                                 amsgrad=numpy.bool_(True))
    assert optimizer.defaults["betas"] == (0.5, 0.75) and optimizer.defaults["lr"] == 0.5
    tutti.torch.SGD(network().parameters(), lr=0.1, momentum=numpy.float32(0.5),
                    nesterov=numpy.bool_(True))


@pytest.fixture
def doubles(ranks):
    torch.set_default_dtype(torch.float64)
    yield ranks
    torch.set_default_dtype(torch.float32)


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


def train(model, optimizer, steps, first=0):
    for step in range(first, first + steps):
        torch.manual_seed(step)
        optimizer.zero_grad()
        (model(torch.randn(4, 6)) - torch.randn(4, 2)).square().mean().backward()
        optimizer.step()
    return torch.cat([weight.detach().reshape(-1) for weight in model.parameters()])


def both(name, options):
    plain, stored = network(), network()
    return (plain, getattr(torch.optim, name)(plain.parameters(), **options),
            stored, getattr(tutti.torch, name)(stored.parameters(), overlap=False, **options))


@pytest.mark.parametrize("name, options", CASES)
def test_a_thousand_steps_are_torchs(name, options, doubles):
    results = []
    for optimizer in both(name, options)[1::2]:
        torch.manual_seed(1)
        params = optimizer.param_groups[0]["params"]
        for _ in range(1000):  # gradients of a training would tell a last bit a thousand times
            for param in params:
                param.grad = torch.randn_like(param) + 0.3
            optimizer.step()
        results.append(torch.cat([param.detach().reshape(-1) for param in params]))
    assert torch.allclose(*results, rtol=1e-12, atol=1e-12), (results[0] - results[1]).abs().max()


@pytest.mark.parametrize("name", NAMES)
def test_signatures_are_torchs(name):
    assert (inspect.signature(getattr(tutti.torch, name)).parameters.keys() >=
            inspect.signature(getattr(torch.optim, name)).parameters.keys())
    with pytest.raises(TypeError, match="learning_rate"):
        getattr(tutti.torch, name)(network().parameters(), learning_rate=0.1)
    with pytest.raises(ValueError, match="Invalid learning rate"):
        getattr(tutti.torch, name)(network().parameters(), lr=-1.0)
    with pytest.raises(tutti.InvalidArgumentError, match="differentiable=True has no counterpart"):
        getattr(tutti.torch, name)(network().parameters(), differentiable=True)


@pytest.mark.parametrize("name, options", CASES)
@pytest.mark.parametrize("to_torch", [False, True])
def test_a_checkpoint_goes_on_in_the_other(name, options, to_torch, doubles):
    plain, like, stored, ours = both(name, options)
    expected, found = train(plain, like, 20), train(stored, ours, 20)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)
    state = copy.deepcopy((ours if to_torch else like).state_dict())
    fresh, again = both(name, options)[:2] if to_torch else both(name, options)[2:]
    fresh.load_state_dict(plain.state_dict())
    again.load_state_dict(state)
    expected = train(plain, like, 20, first=20)
    assert torch.allclose(train(fresh, again, 20, first=20), expected, rtol=1e-12, atol=1e-12)


def test_states_have_torchs_names_shapes_and_values(doubles):
    for name, options in CASES:
        plain, like, stored, ours = both(name, options)
        train(plain, like, 5), train(stored, ours, 5)
        expected, found = like.state_dict()["state"], ours.state_dict()["state"]
        for index, states in expected.items():
            states = {key: value for key, value in states.items() if value is not None}
            assert found[index].keys() == states.keys(), name
            for key, value in states.items():
                assert found[index][key].dtype == value.dtype, (name, key)
                assert torch.allclose(found[index][key], value, rtol=1e-10), (name, key)


def test_what_cannot_be_mapped_is_refused_and_changes_nothing(ranks):
    plain, like, stored, ours = both("AdamW", {})
    train(plain, like, 3)
    before = train(stored, ours, 3)
    for name, options, words in [("SGD", {"momentum": 0.9}, "expected betas|has exp_avg"),
                                 ("AdamW", {"betas": (0.9, 0.99)}, "expected betas"),
                                 ("AdamW", {"amsgrad": True}, "expected amsgrad=False"),
                                 ("Adagrad", {"eps": 1e-8}, "torch_adamw has exp_avg")]:
        model = network()
        other = getattr(torch.optim, name)(model.parameters(), **options)
        train(model, other, 1)
        with pytest.raises(tutti.InvalidArgumentError, match=words):
            ours.load_state_dict(other.state_dict())
    assert ours.state_dict()["state"][0]["step"] == 3
    with pytest.raises(tutti.InvalidArgumentError, match="torch_adamw has exp_avg"):
        store_own = tutti.torch.Optimizer(network().parameters(), "adam", overlap=False)
        ours.load_state_dict({**ours.state_dict(), "state": store_own.state_dict()["state"]})
    assert torch.equal(train(stored, ours, 0), before)


def test_states_of_the_stores_own_rules_come_back(ranks):
    for name in ("lamb", "sgd,momentum=0.9", "ftml", "adam"):
        model, other = network(), network()
        first = tutti.torch.Optimizer(model.parameters(), name, learning_rate=0.01, overlap=False)
        train(model, first, 5)
        again = tutti.torch.Optimizer(other.parameters(), name, learning_rate=0.01, overlap=False)
        other.load_state_dict(model.state_dict())
        again.load_state_dict(copy.deepcopy(first.state_dict()))
        assert torch.equal(train(model, first, 5, 5), train(other, again, 5, 5)), name


def test_ranks_that_load_other_states_are_told(ranks):
    if ranks.size == 1:
        pytest.skip("one rank has nobody to differ from")
    model = network()
    ours = tutti.torch.Adam(model.parameters(), overlap=False)
    train(model, ours, 2)
    state = ours.state_dict()
    if ranks.rank == 1:
        state["state"][0]["exp_avg"] += 1
    with pytest.raises(tutti.MismatchError):
        ours.load_state_dict(state)


def test_a_rank_without_any_gradient_is_told_like_the_others(ranks):
    if ranks.size == 1:
        pytest.skip("one rank has nobody to differ from")
    model, other = network(), network()
    ours = tutti.torch.Adam(model.parameters(), overlap=False)
    unhurt = tutti.torch.Adam(other.parameters(), overlap=False)
    if ranks.rank != 1:
        model(torch.ones(1, 6)).sum().backward()
    with pytest.raises(tutti.MismatchError):
        ours.step()
    assert torch.equal(train(model, ours, 5), train(other, unhurt, 5))


def test_reading_states_changes_no_training(ranks, tmp_path_factory):
    def trained(reads):
        model = network()
        ours = tutti.torch.AdamW(model.named_parameters(), overlap=False)
        for step in range(4):
            if reads:
                ours.zero_grad()
                get_state_dict(model, ours)
                assert ours.state and ours.state_dict()["state"]
                ours.step()  # without gradients: nothing
            train(model, ours, 1, step)
        return torch.cat([weight.detach().reshape(-1) for weight in model.parameters()])

    assert torch.equal(trained(True), trained(False))


@pytest.mark.parametrize("name, options", [("AdamW", {}), ("SGD", {"momentum": 0.9}),
                                           ("NAdam", {}), ("RMSprop", {"centered": True})])
def test_a_distributed_checkpoint_comes_back_bit_by_bit(name, options, ranks, tmp_path_factory):
    folder = ranks.broadcast_object(str(tmp_path_factory.mktemp("dcp")))
    model = network()
    ours = getattr(tutti.torch, name)(model.named_parameters(), overlap=False, **options)
    train(model, ours, 5)
    weights, states = get_state_dict(model, ours)
    no_dist = not torch.distributed.is_initialized()
    if ranks.rank == 0:
        dcp.save({"model": weights, "optim": states}, checkpoint_id=folder, no_dist=no_dist)
    ranks.barrier()
    fresh = network()
    again = getattr(tutti.torch, name)(fresh.named_parameters(), overlap=False, **options)
    weights, states = get_state_dict(fresh, again)
    dcp.load({"model": weights, "optim": states}, checkpoint_id=folder, no_dist=no_dist)
    set_state_dict(fresh, again, model_state_dict=weights, optim_state_dict=states)
    assert torch.equal(train(model, ours, 5, 5), train(fresh, again, 5, 5))


def test_a_parameter_without_a_gradient_is_left_out_as_in_torch(ranks):
    plain, like, stored, ours = both("AdamW", {"weight_decay": 0.5})
    for model, optimizer in ((plain, like), (stored, ours)):
        train(model, optimizer, 2)
        optimizer.zero_grad(set_to_none=True)
        model[2](torch.ones(1, 5)).sum().backward()
        optimizer.step()
    for expected, found in zip(plain.parameters(), stored.parameters()):
        assert torch.allclose(expected, found, atol=1e-6)
    assert ours.state_dict()["state"][0]["step"] == 2 and ours.state_dict()["state"][2]["step"] == 3


def test_one_cycle_cycles_the_momentum_too(doubles):
    for name, options in (("SGD", {"momentum": 0.9}), ("AdamW", {}), ("Adam", {"amsgrad": True})):
        results = []
        for model, optimizer in zip(*[iter(both(name, {"lr": 0.01, **options}))] * 2):
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=60)
            for step in range(50):
                train(model, optimizer, 1, step)
                schedule.step()
            results.append(train(model, optimizer, 1, 50))
        assert torch.allclose(*results, rtol=1e-11, atol=1e-12), name


def test_options_that_change_later_are_refused(ranks):
    model = network()
    ours = tutti.torch.AdamW(model.parameters(), overlap=False)
    for name, value in (("eps", 1e-3), ("amsgrad", True), ("betas", (0.9, 0.5))):
        before = ours.param_groups[0][name]
        ours.param_groups[0][name] = value
        with pytest.raises(tutti.InvalidArgumentError, match=f"expected {name}="):
            train(model, ours, 1)
        ours.param_groups[0][name] = before
    train(model, ours, 1)


@pytest.mark.parametrize("name, made, changed, words", [
    ("AdamW", {"weight_decay": 0.0}, {"weight_decay": 0.01}, "a factor of the option weight_decay"),
    ("AdamW", {}, {"eps": 1e-3}, "expected eps=1e-08"),
    ("AdamW", {}, {"maximize": True}, "expected maximize=False"),
    ("AdamW", {}, {"momentum": 0.5}, "got momentum=0.5 in a group"),
    ("AdamW", {}, {"betas": (1.5, 0.999)}, "beta1=1.5: expected"),
    ("AdamW", {}, {"lr": -1.0}, "learning_rate=-1: expected"),
    ("NAdam", {}, {"betas": (0.8, 0.999)}, "NAdam's betas stay as they are"),
    ("SGD", {}, {"momentum": 0.9}, "expected momentum=0, .*got 0.9"),
    ("sgd", {"learning_rate": 0.1}, {"maximize": True, "weight_decay": 0.0}, "maximize=True"),
    ("sgd", {"learning_rate": 0.1}, {"weight_decay": 0.5}, "a factor of the option weight_decay")])
def test_options_that_a_step_would_refuse_are_refused_when_they_are_loaded(name, made, changed,
                                                                         words, ranks):
    model = network()
    make = getattr(tutti.torch, name, None)
    ours = (make(model.parameters(), overlap=False, **made) if make is not None else
            tutti.torch.Optimizer(model.parameters(), name, overlap=False, **made))
    has_states = name != "SGD"
    if has_states:
        train(model, ours, 2)
    before = copy.deepcopy(ours.state_dict())
    given = copy.deepcopy(before)
    given["param_groups"][0].update(changed)
    for state in given["state"].values():
        state.update((key, value + 1) for key, value in state.items() if key == "exp_avg")
    with pytest.raises(tutti.InvalidArgumentError, match=words):
        ours.load_state_dict(given)
    now = ours.state_dict()
    assert now["param_groups"] == before["param_groups"]
    for index, states in before["state"].items():
        assert all(torch.equal(now["state"][index][key], value) for key, value in states.items())
    train(model, ours, 1)


def test_weight_decay_rate_and_momentum_of_a_loaded_dict_take_effect(doubles):
    plain, like, stored, ours = both("AdamW", {"lr": 0.01, "weight_decay": 0.1})
    state = torch.optim.AdamW(network().parameters(), 0.02, (0.8, 0.999), weight_decay=0.3)
    for model, optimizer in ((plain, like), (stored, ours)):
        optimizer.load_state_dict(copy.deepcopy(state.state_dict()))
        train(model, optimizer, 5)
    for expected, found in zip(plain.parameters(), stored.parameters()):
        assert torch.allclose(expected, found, rtol=1e-12, atol=1e-12)


def test_text_is_read_as_what_an_option_is(doubles):
    plain = network()
    like = torch.optim.AdamW(plain.parameters(), 1e-2, betas=(0.8, 0.99), amsgrad=True)
    expected = train(plain, like, 10)
    for name, options in (
            ("adamw,lr=0.01,betas=0.8:0.99,amsgrad=1,maximize=False", {}),
            ("adamw,learning_rate=0.01,beta1=0.8,foreach=none",
             {"beta2": "0.99", "amsgrad": "true"}),
            ("adamw,lr=0.01,betas=0.8:0.99,amsgrad=True,maximize=0,fused=false", {})):
        model = network()
        ours = tutti.torch.Optimizer(model.parameters(), name, overlap=False, **options)
        assert torch.allclose(train(model, ours, 10), expected, rtol=1e-12, atol=1e-12), name
        assert set(ours.state_dict()["state"][0]) == {"step", "exp_avg", "exp_avg_sq",
                                                      "max_exp_avg_sq"}
    ours = tutti.torch.Optimizer(network().parameters(), "adamw,amsgrad=0", overlap=False)
    assert set(ours.state_dict()["state"][0]) == {"step", "exp_avg", "exp_avg_sq"}


def test_options_of_the_stores_optimizers_may_stand_in_the_name(ranks):
    model = network()
    ours = tutti.torch.Optimizer(model.parameters(), "sgd,momentum=0.9,rescale_grad=0.5",
                                 learning_rate=0.1, overlap=False)
    assert ours.param_groups[0]["momentum"] == 0.9
    train(model, ours, 1)
    tutti.torch.Optimizer(network().bfloat16().parameters(), "sgd,multi_precision=true")
    with pytest.raises(tutti.InvalidArgumentError, match="too coarse"):
        tutti.torch.Optimizer(network().bfloat16().parameters(), "sgd,multi_precision=0")
    tutti.torch.Optimizer(network().parameters(), "sgd,clip_global_norm=none", overlap=True)


@pytest.mark.parametrize("name, options, words", [
    ("adamw,maximize=no", {}, "maximize=no: expected true or false"),
    ("adamw,lr=fast", {}, "lr=fast: expected a number"),
    ("adamw,betas=0.9", {}, "betas=0.9: expected a number, another"),
    ("adamw,rescale_grad=x", {}, "rescale_grad=x: expected a number"),
    ("adamw,amsgrad", {}, "expected option=value between commas, found 'amsgrad'"),
    ("sgd,nesterov", {}, "expected option=value between commas, found 'nesterov'"),
    ("sgd,momentum=no", {}, "momentum=no: expected"),
    ("adamw,=1", {}, "expected option=value between commas, found '=1'"),
    ("adamw,lr=1,lr=2", {}, "'lr' is given twice"),
    ("adamw,lr=1,learning_rate=2", {}, "'lr' is given twice"),
    ("adamw,beta1=0.5", {"betas": (0.9, 0.99)}, "'betas' is given twice"),
    ("sgd,momentum=0.5", {"momentum": 0.9}, "'momentum' is given twice"),
    ("adamw", {"amsgrad": "yes"}, "amsgrad=yes: expected true or false"),
    ("adamw,params=3", {}, "unknown option 'params'|params"),
    ("adamw,defaults=3", {}, "unknown option 'defaults'")])
def test_text_that_cannot_be_read_is_refused_by_name(name, options, words, ranks):
    with pytest.raises(tutti.InvalidArgumentError, match=words):
        tutti.torch.Optimizer(network().parameters(), name, **options)


def test_adamw_by_its_name_is_torchs(doubles):
    plain = network()
    expected = train(plain, torch.optim.AdamW(plain.parameters(), 1e-2, betas=(0.8, 0.99)), 20)
    for name, options in (("adamw", {"learning_rate": 1e-2, "beta1": 0.8, "beta2": 0.99}),
                          ("AdamW,learning_rate=0.01,beta1=0.8,beta2=0.99", {})):
        model = network()
        ours = tutti.torch.Optimizer(model.parameters(), name, overlap=False, **options)
        assert torch.allclose(train(model, ours, 20), expected, rtol=1e-12, atol=1e-12)


def test_a_class_and_other_cases_are_explained(ranks):
    with pytest.raises(tutti.InvalidArgumentError, match=r"take tutti\.torch\.SGD\(params"):
        tutti.torch.Optimizer(network().parameters(), torch.optim.SGD)
    with pytest.raises(tutti.InvalidArgumentError, match="did you mean lamb"):
        tutti.torch.Optimizer(network().parameters(), "LAMB")


def test_models_of_16_bits_need_master_weights(ranks):
    with pytest.raises(tutti.InvalidArgumentError, match="take multi_precision=True"):
        tutti.torch.Adam(network().bfloat16().parameters())
    model = network().bfloat16()
    ours = tutti.torch.Adam(model.parameters(), multi_precision=True, overlap=False)
    model(torch.ones(1, 6, dtype=torch.bfloat16)).sum().backward()
    ours.step()
    state = copy.deepcopy(ours.state_dict())
    assert state["state"][0]["master_weight"].dtype is torch.float32
    ours.load_state_dict(state)


def test_the_mean_is_clipped_and_its_norm_returned(doubles):
    plain, like, stored, ours = both("SGD", {"lr": 0.1})
    for step in range(5):
        norms = []
        for model, optimizer in ((plain, like), (stored, ours)):
            torch.manual_seed(step)
            optimizer.zero_grad()
            model(torch.randn(4, 6)).square().sum().backward()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                         if optimizer is like else ours.clip_grad_norm_(0.5))
            optimizer.step()
        assert torch.allclose(*norms) and ours.grad_norm == pytest.approx(float(norms[0]))
    for expected, found in zip(plain.parameters(), stored.parameters()):
        assert torch.allclose(expected, found, rtol=1e-12)
    with pytest.raises(tutti.InvalidArgumentError, match="overlap=False"):
        tutti.torch.SGD(network().parameters(), overlap=True).clip_grad_norm_(1.0)


@pytest.mark.parametrize("most", [0.05, 1e6])
def test_a_step_that_clips_the_mean_tells_its_norm(most, doubles):
    plain, stored = network(), network()
    like = torch.optim.SGD(plain.parameters(), 0.1)
    ours = tutti.torch.SGD(stored.parameters(), 0.1, clip_global_norm=most)
    for step in range(4):
        batches = [torch.Generator().manual_seed(100 * step + rank) for rank in range(doubles.size)]
        batches = [torch.randn(4, 6, generator=batch) for batch in batches]
        like.zero_grad()
        torch.stack([plain(batch).square().mean() for batch in batches]).mean().backward()
        expected = torch.nn.utils.clip_grad_norm_(plain.parameters(), most)
        like.step()
        ours.zero_grad()
        stored(batches[doubles.rank]).square().mean().backward()
        ours.step()
        assert ours.grad_norm == pytest.approx(float(expected), rel=1e-12)
    for expected, found in zip(plain.parameters(), stored.parameters()):
        assert torch.allclose(expected, found, rtol=1e-12, atol=1e-12)
