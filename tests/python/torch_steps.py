#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of a small model, by each way to train it; no test: it measures.

    mpirun -np 2 python tests/python/torch_steps.py [--model transformer] [--turns 9] [--steps 60]

The models are the multilayer perceptron of apps/python, with 128 images per rank and step, and a
transformer of 455,000 parameters, with 16. All ways take turns in one job, with one thread per
rank. "alone":
ranks that never meet and update nothing, so what no library can surpass; "alone, SGD": with torch's
optimizer. Prints, as the median over the turns, images/s of all ranks, how many times gloo's, and
what the parts of a step take on rank 0, in which `step` has the optimizer's work and its waiting.
After the first turn the weights of all ways that sum are compared, and those of all ranks.
"""

import argparse
import statistics
import sys
import time
from collections import namedtuple
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import tutti.torch  # registers the backend, and finds the ranks of the job

sys.path.insert(0, str(Path(__file__).parents[2] / "apps" / "python"))
import fashion_mnist

PARTS = ["images", "forward", "backward", "step"]


class Transformer(torch.nn.Module):
    """The rows of an image are its tokens."""

    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(128, 4, 320, dropout=0.0, batch_first=True)
        self.rows = torch.nn.Linear(28, 128)
        self.places = torch.nn.Parameter(torch.zeros(28, 128))
        self.body = torch.nn.TransformerEncoder(layer, 3)
        self.head = torch.nn.Linear(128, 10)

    def forward(self, images):
        return self.head(self.body(self.rows(images.squeeze(1)) + self.places).mean(1))


Case = namedtuple("Case", "model batch learning_rate")
CASES = {"mlp": Case(fashion_mnist.mlp, 128, 0.05), "transformer": Case(Transformer, 16, 0.005)}


class NoOptimizer:
    def __init__(self, model):
        self.zero_grad = model.zero_grad

    def step(self):
        pass


def ways(case):
    """By name: the model and its optimizer. All begin with the same weights."""
    groups = {"gloo": dist.group.WORLD, "tutti": dist.new_group(backend="tutti")}
    models = []
    for _ in range(5):
        torch.manual_seed(1)
        models.append(case.model())

    def sgd(model):
        return model, torch.optim.SGD(model.parameters(), case.learning_rate, momentum=0.9)

    return {
        "alone": (models[0], NoOptimizer(models[0])),
        "alone, SGD": sgd(models[1]),
        "DDP, gloo": sgd(DistributedDataParallel(models[2], process_group=groups["gloo"])),
        "DDP, tutti": sgd(DistributedDataParallel(models[3], process_group=groups["tutti"])),
        "Optimizer": (models[4], tutti.torch.Optimizer(
            models[4].named_parameters(), "sgd", learning_rate=case.learning_rate,
            momentum=0.9)),
    }


def train(model, optimizer, images, labels, batches):
    """Seconds of all steps, and of their parts."""
    parts = [0.0] * len(PARTS)
    tutti.torch.world().barrier()
    begin = time.perf_counter()
    for batch in batches:
        times = [time.perf_counter()]
        given, wanted = images[batch], labels[batch]
        times.append(time.perf_counter())
        optimizer.zero_grad()
        loss = cross_entropy(model(given), wanted)
        times.append(time.perf_counter())
        loss.backward()
        times.append(time.perf_counter())
        optimizer.step()
        times.append(time.perf_counter())
        parts = [part + after - before for part, before, after in zip(parts, times, times[1:])]
    tutti.torch.world().barrier()
    return [time.perf_counter() - begin, *parts]


def check(found):
    """After a few steps, the ways that sum have one model, on all ranks."""
    weights = {name: torch.cat([one.detach().reshape(-1) for one in found[name][0].parameters()])
               for name in ("DDP, gloo", "DDP, tutti", "Optimizer")}
    for name, own in weights.items():
        rank0 = own.clone()
        dist.broadcast(rank0, 0)
        assert torch.equal(own, rank0), name
        torch.testing.assert_close(own, weights["DDP, gloo"], rtol=0.01, atol=1e-4)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=CASES, default="mlp")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--steps", type=int, default=60, help="of a turn")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    images, labels = fashion_mnist.read("train")
    case = CASES[args.model]
    found = ways(case)
    taken = {name: [] for name in found}
    for turn in range(args.turns + 1):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(turn))
        batches = order[rank::ranks].split(case.batch)[:args.steps]
        for name, (model, optimizer) in found.items():
            seconds = train(model, optimizer, images, labels, batches)
            if turn > 0:  # the first warms up
                taken[name].append(seconds)
        if turn == 0:
            check(found)
    if rank == 0:
        p50 = {name: [statistics.median(column) for column in zip(*rows)]
               for name, rows in taken.items()}
        print(f"{'':<12}{'images/s':>10}{'of gloo':>9}{'ms a step':>11}  "
              + "".join(f"{part:>10}" for part in PARTS))
        for name, seconds in p50.items():
            step = [1e3 * one / args.steps for one in seconds]
            print(f"{name:<12}{ranks * case.batch * 1e3 / step[0]:10,.0f}"
                  f"{p50['DDP, gloo'][0] / seconds[0]:9.2f}{step[0]:11.2f}  "
                  + "".join(f"{one:10.2f}" for one in step[1:]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
