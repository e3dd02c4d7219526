# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch on a GPU: streams, a store's calls, and tutti.torch.Optimizer."""

import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.nn.functional import cross_entropy

import tutti
import tutti.torch

pytestmark = pytest.mark.skipif(
    tutti.num_gpus() == 0 or not torch.cuda.is_available(),
    reason=f"skipped for want of a GPU: {tutti.describe_gpus()}, torch {torch.__version__}")

GPU = "cuda:0"
A_WHILE = 50_000_000  # cycles: some 30 ms


@pytest.fixture
def ranks():
    return tutti.torch.world()


@pytest.fixture(autouse=True)
def default_stream():
    yield
    if torch.cuda.is_available():
        tutti.set_stream(GPU, 0)


def network(device):
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.ReLU(),
                               torch.nn.Linear(300, 5)).to(device)


def train(model, optimizer, count=5):
    device = next(model.parameters()).device
    torch.manual_seed(7)
    for _ in range(count):
        optimizer.zero_grad()
        data, labels = torch.randn(8, 20).to(device), torch.randint(0, 5, (8,)).to(device)
        cross_entropy(model(data), labels).backward()
        optimizer.step()
    return torch.cat([weight.detach().reshape(-1) for weight in model.parameters()])


@pytest.mark.parametrize("is_new", [False, True])
def test_a_push_reads_what_was_written_before_it_in_any_stream(is_new):
    kv = tutti.create("device")
    kv.init("w", torch.zeros(1000, device=GPU))
    stream = torch.cuda.Stream() if is_new else torch.cuda.default_stream()
    with torch.cuda.stream(stream):  # the store's is the default stream
        for step in range(5):
            value = torch.zeros(1000, device=GPU)
            torch.cuda._sleep(A_WHILE)
            value.fill_(step)
            kv.push("w", value)
            found = np.zeros(1000, np.float32)
            kv.pull("w", found)
            assert (found == step).all()
            del value


def test_values_pass_in_torchs_own_stream():
    kv = tutti.create("device")
    kv.set_optimizer(tutti.optimizer("sgd", learning_rate=1.0))
    kv.init("w", torch.zeros(1000, device=GPU))
    out = torch.empty(1000, device=GPU)
    with torch.cuda.stream(torch.cuda.Stream()):
        tutti.set_stream(GPU, torch.cuda.current_stream().cuda_stream)
        torch.cuda._sleep(A_WHILE)
        for step in range(50):
            kv.push("w", torch.full((1000,), float(step), device=GPU))  # memory is used again
        kv.pull("w", out)
        assert (out == -sum(range(50))).all()


@pytest.fixture
def busy():
    """Keeps the library's stream, which is none of torch's current ones, busy for a while."""
    stream = torch.cuda.Stream()
    tutti.set_stream(GPU, stream.cuda_stream)

    def keep():
        with torch.cuda.stream(stream):
            torch.cuda._sleep(A_WHILE)
    return keep


def test_memory_that_was_pushed_is_used_again_after_the_push_has_read_it(busy):
    kv = tutti.create("device")
    kv.init("w", torch.zeros(1000, device=GPU))
    with torch.cuda.stream(torch.cuda.Stream()):
        for step in range(5):
            value = torch.full((1000,), float(step), device=GPU)
            busy()
            kv.push("w", value)
            del value
            again = torch.full((1000,), -1.0, device=GPU)  # torch gives out the same memory
            found = np.zeros(1000, np.float32)
            kv.pull("w", found)
            assert (found == step).all()
            del again


def test_what_was_pulled_is_there_for_torchs_next_kernel(busy):
    kv = tutti.create("device")
    kv.init("w", torch.full((1000,), 3.0, device=GPU))
    with torch.cuda.stream(torch.cuda.Stream()):
        out = torch.zeros(1000, device=GPU)
        busy()
        kv.pull("w", out)
        assert ((out + 1) == 4).all()


def test_pushes_end_no_capture_of_another_thread():
    kv = tutti.create("device")
    value = torch.ones(1000, device=GPU)
    kv.init("w", value)
    kv.push("w", value)
    pushes = threading.Thread(target=lambda: [kv.push("w", value) for _ in range(200)])
    graph, doubled = torch.cuda.CUDAGraph(), torch.ones(1000, device=GPU)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        pushes.start()
        doubled *= 2
        pushes.join()
    graph.replay()
    assert (doubled == 2).all()


@pytest.mark.parametrize("rule", ["sgd,momentum=0.9", "adamw", "rmsprop"])
def test_keys_on_a_gpu_have_the_bits_of_keys_on_the_cpu(rule):
    kv = tutti.create("device")
    name, *options = rule.split(",")
    kv.set_optimizer(tutti.optimizer(name, **dict(option.split("=") for option in options)))
    first = torch.randn(10_007)
    kv.init(["here", "there"], [first, first.to(GPU)])
    for _ in range(3):
        gradient = torch.randn(10_007)
        kv.push("here", gradient)
        kv.push("there", gradient.to(GPU))
    here, there = torch.empty(10_007), torch.empty(10_007, device=GPU)
    kv.pull("here", here)
    kv.pull("there", there)
    assert torch.equal(here, there.cpu())
    assert torch.equal(torch.from_dlpack(kv.view("there")), there)


def test_what_torch_does_not_give_away_is_refused_with_its_words():
    kv = tutti.create("device")
    kv.init("w", torch.zeros(4, device=GPU))
    for value, words in ((torch.zeros(4, device=GPU, requires_grad=True), "require gradient"),
                         (torch.zeros(4, 2, device=GPU)[:, 0], "C-contiguous"),
                         (torch.zeros(4, device=GPU).to_sparse(), "does not give its memory")):
        with pytest.raises(tutti.InvalidArgumentError, match=words):
            kv.push("w", value)


@pytest.mark.parametrize("momentum, decay", [(0.0, 0.0), (0.9, 0.0), (0.9, 0.01)])
@pytest.mark.parametrize("is_new", [False, True])
def test_the_optimizer_trains_as_torchs_does(momentum, decay, is_new, ranks):
    stream = torch.cuda.Stream() if is_new else torch.cuda.default_stream()
    with torch.cuda.stream(stream):
        model, own = network(GPU), network(GPU)
        found = train(own, tutti.torch.Optimizer(own.named_parameters(), "sgd", momentum=momentum,
                                                 learning_rate=0.1, weight_decay=decay))
        expected = train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum,
                                                weight_decay=decay))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_a_parameter_without_a_gradient_stays_and_rates_may_change(ranks):
    weight = torch.nn.Parameter(torch.ones(3, device=GPU))
    other = torch.nn.Parameter(torch.ones(3, device=GPU))
    optimizer = tutti.torch.Optimizer([weight, other], "sgd", learning_rate=1.0)
    weight.grad = torch.full((3,), 0.5, device=GPU)
    optimizer.step()
    assert weight.tolist() == [0.5] * 3 and other.tolist() == [1.0] * 3
    optimizer.zero_grad(set_to_none=False)
    assert weight.grad.tolist() == [0.0] * 3
    optimizer.zero_grad()
    assert weight.grad is None
    optimizer.param_groups[0]["lr"] = 0.5
    weight.grad = torch.ones(6, device=GPU)[::2]  # with gaps
    optimizer.step()
    assert weight.tolist() == [0.0] * 3


def test_a_checkpoint_goes_on_where_it_was(ranks, tmp_path_factory):
    folder = ranks.broadcast_object(str(tmp_path_factory.mktemp("run")))
    model = network(GPU)
    optimizer = tutti.torch.Optimizer(model.named_parameters(), "sgd", momentum=0.9)
    train(model, optimizer)
    optimizer.save(folder)
    expected = train(model, optimizer)
    again = network(GPU)
    optimizer = tutti.torch.Optimizer(again.named_parameters(), "sgd", momentum=0.9)
    optimizer.load(folder)
    assert torch.equal(train(again, optimizer), expected)


def test_what_an_optimizer_on_a_gpu_cannot_do_is_refused(ranks):
    with pytest.raises(tutti.InvalidArgumentError, match="on one device; got 0 on cuda:0 and 1"):
        tutti.torch.Optimizer([torch.nn.Parameter(torch.ones(3, device=GPU)),
                               torch.nn.Parameter(torch.ones(3))], "sgd")
    with pytest.raises(tutti.InvalidArgumentError, match="overlap=True is for parameters in"):
        tutti.torch.Optimizer(network(GPU).parameters(), "sgd", overlap=True)
    if ranks.size == 1:
        with pytest.raises(tutti.InvalidArgumentError, match="a store that keeps parameters on"):
            tutti.torch.Optimizer(network(GPU).parameters(), "sgd", store=tutti.create("local"))
