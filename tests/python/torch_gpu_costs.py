# SPDX-License-Identifier: Apache-2.0
"""What pushes of torch's tensors cost beside torch's own optimizers, called and waited for.

    torch_gpu_costs.py [--device cuda:0]     or cpu, where torch's rules are not fused

Prints microseconds, the median of 41 calls. "new": gradients at other addresses than in the call
before. Sizes are those of tests/gpu/torch_benchmark.py.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch

import tutti
import tutti.torch

sys.path.insert(0, str(Path(__file__).parent.parent / "gpu"))
from torch_benchmark import resnet50

ROUNDS = 41
RULES = {"sgd": ({"learning_rate": 0.1, "momentum": 0.9}, torch.optim.SGD,
                 {"lr": 0.1, "momentum": 0.9}),
         "adamw": ({"learning_rate": 1e-3}, torch.optim.AdamW, {"lr": 1e-3})}


def median_us(call, wait):
    times = []
    for _ in range(ROUNDS):
        wait()
        begin = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times)


def measure_pushes(rule, sizes, device, wait):
    kv = tutti.create("device")
    kv.set_optimizer(tutti.optimizer(rule, **RULES[rule][0]))
    keys = list(range(len(sizes)))
    kv.init(keys, [torch.randn(size, device=device) for size in sizes])
    gradients = [[torch.randn(size, device=device) for size in sizes] for _ in range(2)]
    turns = iter(range(ROUNDS))
    return {"push": median_us(lambda: kv.push(keys, gradients[0]), wait),
            "new": median_us(lambda: kv.push(keys, gradients[next(turns) % 2]), wait)}


def measure_steps(make, sizes, device, wait):
    params = [torch.nn.Parameter(torch.randn(size, device=device)) for size in sizes]
    optimizer = make(params)
    for param in params:
        param.grad = torch.randn_like(param)
    return median_us(optimizer.step, wait)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    device = parser.parse_args().device
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    for name, sizes in (("161 x 64", [64] * 161), ("resnet50", resnet50()),
                        ("10000 x 64", [64] * 10_000)):
        for rule, (options, torchs, of_torch) in RULES.items():
            found = measure_pushes(rule, sizes, device, wait)
            found["Optimizer"] = measure_steps(
                lambda params: tutti.torch.Optimizer(params, rule, **options), sizes, device, wait)
            found["torch"] = measure_steps(
                lambda params: torchs(params, fused=device != "cpu" or None, **of_torch), sizes,
                device, wait)
            print(f"{name:<11} {rule:<6}" + "".join(f" {key} {us:9.1f}"
                                                    for key, us in found.items()), flush=True)


if __name__ == "__main__":
    main()
