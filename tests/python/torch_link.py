#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel with ResNet-18's shapes between two hosts; no test, as it measures.

    scripts/mpirun/hosts.sh 2 --rate 200mbit -- \
      mpirun -np 2 build/venv/bin/python tests/python/torch_link.py --mbit 200

Steps over gloo and over tutti in turn. The backward pass costs next to nothing: what is measured is
how the gradients get to the other host. Prints the p50 of a step, and how much of the link the
46.8 MB fill, without the headers of packets. Gradients are checked in each step.
"""

import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")

import tutti.torch  # registers the backend, and finds the ranks of the job


def resnet18():
    """The shapes of its 62 parameters, in their order."""
    shapes = [(64, 3, 7, 7), (64,), (64,)]
    inputs = 64
    for width in (64, 128, 256, 512):
        for block in range(2):
            shapes += [(width, inputs, 3, 3), (width,), (width,), (width, width, 3, 3), (width,),
                       (width,)]
            if block == 0 and width != 64:
                shapes += [(width, inputs, 1, 1), (width,), (width,)]
            inputs = width
    return shapes + [(1000, 512), (1000,)]


class Shapes(torch.nn.Module):
    """Whose gradients are what it is called with."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.zeros(shape) for shape in resnet18())

    def forward(self, gradient):
        return sum(weight.sum() * gradient for weight in self.weights)


def step(model, value, expected):
    """Its seconds."""
    model.zero_grad()
    dist.barrier()
    begin = time.perf_counter()
    model(torch.tensor(value)).backward()
    seconds = time.perf_counter() - begin
    assert all(bool((weight.grad == expected).all()) for weight in model.parameters())
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mbit", type=float, required=True, help="of the link, per second")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3, help="of a turn")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    groups = {"gloo": dist.group.WORLD, "tutti": dist.new_group(backend="tutti")}
    models = {name: DistributedDataParallel(Shapes(), process_group=group)
              for name, group in groups.items()}
    taken = {name: [] for name in groups}
    for turn in range(args.turns + 1):
        for name, model in models.items():
            for index in range(args.steps):
                seconds = step(model, float(rank + index), (ranks - 1) / 2 + index)
                if turn > 0:  # the first warms up, and torch forms its buckets anew
                    taken[name].append(seconds)
    p50 = torch.tensor([statistics.median(taken[name]) for name in groups])
    dist.all_reduce(p50, dist.ReduceOp.MAX, group=groups["tutti"])
    if rank == 0:
        sent = 4 * sum(weight.numel() for weight in models["tutti"].parameters())
        sent *= 2 * (ranks - 1) / ranks
        for name, seconds in zip(groups, p50.tolist()):
            share = 8e-6 * sent / args.mbit / seconds
            print(f"{name:<6} {1e3 * seconds:8.1f} ms a step, {100 * share:5.1f} % of the link")
        print(f"ratio  {(p50[0] / p50[1]).item():8.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
