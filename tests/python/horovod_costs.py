#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of DistributedOptimizer with tensors of ResNet-18's shapes; no test, as it measures.

    mpirun -np 2 python tests/python/horovod_costs.py tutti      in an environment with tutti
    mpirun -np 2 python tests/python/horovod_costs.py horovod    in one with Horovod
    mpirun -np 2 python tests/python/horovod_costs.py horovod alone    ranks that never meet

Prints the median of a step in milliseconds, backward pass included, and the sum of all parameters,
which is the same for both.
"""

import importlib
import statistics
import sys
import time

import torch

STEPS, WARM_UP = 40, 10
WIDTHS = [(64, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 512), (512, 512)]


def shapes():
    found = [(64, 3, 7, 7), (64,), (64,)]
    for before, width in WIDTHS:
        found += [(width, before, 3, 3), (width,), (width,), (width, width, 3, 3), (width,),
                  (width,)]
        if before != width:
            found += [(width, before, 1, 1), (width,), (width,)]
    return [*found, (1000, 512), (1000,)]


def main(library, is_alone):
    hvd = importlib.import_module("tutti.horovod.torch" if library == "tutti"
                                  else "horovod.torch")
    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(hvd.rank())
    parameters = [torch.nn.Parameter(0.01 * torch.randn(shape)) for shape in shapes()]
    named = {str(index): one for index, one in enumerate(parameters)}
    hvd.broadcast_parameters(named, 0)
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
    if not is_alone:
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=named.items())
    factors = [torch.randn_like(one) for one in parameters]
    times = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        begin = time.perf_counter()
        sum((one * factor).sum() for one, factor in zip(parameters, factors)).backward()
        optimizer.step()
        times.append(1000 * (time.perf_counter() - begin))
    median = torch.tensor(statistics.median(times[WARM_UP:]))
    mean = hvd.allreduce(median, name="median", op=hvd.Average).item()
    total = sum(one.double().sum().item() for one in parameters)
    if hvd.rank() == 0:
        print(f"{library}{' alone' if is_alone else ''}: {mean:.1f} ms a step, sum {total:.6f}")
    hvd.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], "alone" in sys.argv[2:])
