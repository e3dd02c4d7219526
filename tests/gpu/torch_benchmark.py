# SPDX-License-Identifier: Apache-2.0
"""torch's fused optimizers and sums on the first GPU, to set beside kernel-benchmark's figures.

    torch_benchmark.py > torch.json

Cases have the names that kernel-benchmark gives them, and are timed alike, 21 times after 5: the
median. "us" is the device's own time, of a call that is put into the stream while the device is
busy; "idle_us" is from the call to its end on a device that waits for it. Exit code 77, and a
reason: no torch, or no GPU that it can use.
"""

import json
import statistics
import sys

LARGE = 64 << 20
WARMUP = 5
ROUNDS = 21


def resnet50():
    """The sizes of its 161 tensors, from the first layer to the last."""
    sizes = [64 * 3 * 49, 64, 64]
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            for count, channels in ((inputs * width, width), (width * width * 9, width),
                                    (width * width * 4, width * 4)):
                sizes += [count, channels, channels]
            if block == 0:
                sizes += [inputs * width * 4, width * 4, width * 4]
            inputs = width * 4
    return sizes + [2048 * 1000, 1000]


class Timer:
    def __init__(self, torch):
        self.torch = torch
        self.work = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")

    def measure(self, call):
        return {"us": self.median_us(call, True), "idle_us": self.median_us(call, False)}

    def median_us(self, call, is_busy):
        cuda = self.torch.cuda
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        times = []
        for _ in range(WARMUP + ROUNDS):
            cuda.synchronize()
            if is_busy:
                self.work.zero_()
            begin.record()
            call()
            end.record()
            cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1000)
        return round(statistics.median(times[WARMUP:]), 1)


def update(torch, timer, kind, sizes, options):
    parameters = [torch.rand(size, device="cuda").requires_grad_() for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.rand_like(parameter)
    optimizer = getattr(torch.optim, kind)(parameters, lr=1e-3, fused=True, **options)
    return timer.measure(optimizer.step)


def total(torch, timer, inputs):
    stack = torch.rand(inputs, LARGE, device="cuda")
    result = torch.empty(LARGE, device="cuda")
    return timer.measure(lambda: torch.sum(stack, dim=0, out=result))


def measure(torch):
    timer = Timer(torch)
    momentum = {"momentum": 0.9}
    found = {}
    for inputs in (2, 4, 8):
        found[f"sum of {inputs}, 64M"] = total(torch, timer, inputs)
    for name, sizes in (("4 x 64M", [LARGE] * 4), ("resnet50", resnet50())):
        found[f"sgd with momentum, {name}"] = update(torch, timer, "SGD", sizes, momentum)
        found[f"adamw, {name}"] = update(torch, timer, "AdamW", sizes, {})
    found["sgd, 10000 x 64"] = update(torch, timer, "SGD", [64] * 10000, {})
    return {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(),
            "cases": found}


def main():
    sizes = resnet50()
    assert (len(sizes), sum(sizes)) == (161, 25_557_032), (len(sizes), sum(sizes))
    try:
        import torch
    except ImportError as error:
        print(f"no torch: {error}", file=sys.stderr)
        return 77
    if not torch.cuda.is_available():
        print("torch finds no GPU that it can use", file=sys.stderr)
        return 77
    print(json.dumps(measure(torch), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
