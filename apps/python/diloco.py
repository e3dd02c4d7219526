#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Low-communication training: DiLoCo, arXiv 2311.08105.

Each rank trains on its own, and every H steps pushes how far its weights have moved. The store's
optimizer takes the mean as a gradient.

    mpirun -np 2 python diloco.py --every 20
"""

import argparse

import torch
from torch.nn.functional import cross_entropy

import tutti
import tutti.torch

import fashion_mnist

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--every", type=int, default=20, help="steps between two pushes")
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--data", default=fashion_mnist.FOLDER)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(1)
ranks = tutti.torch.world()
images, labels = fashion_mnist.read("train", args.data)
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
mine = order[ranks.rank::ranks.size]
model = fashion_mnist.mlp()
names, weights = zip(*model.named_parameters())
inner = torch.optim.SGD(weights, 0.05, momentum=0.9)

kv = tutti.create(ranks)
kv.broadcast(list(names), [w.data for w in weights], [w.data for w in weights])  # rank 0's weights
kv.set_optimizer("nag", learning_rate=0.4, momentum=0.6, rescale_grad=1 / ranks.size)
for step in range(args.steps):
    batch = mine[(torch.arange(128) + 128 * step) % len(mine)]
    inner.zero_grad()
    loss = cross_entropy(model(images[batch]), labels[batch])
    loss.backward()
    inner.step()
    if (step + 1) % args.every == 0 or step + 1 == args.steps:
        outer = [torch.from_dlpack(kv.view(name)) for name in names]
        kv.pushpull(list(names), [o - w.data for o, w in zip(outer, weights)],
                    [w.data for w in weights])
if ranks.rank == 0:
    test = fashion_mnist.read("t10k", args.data)
    print(f"loss {loss.item():.4f}, accuracy {100 * fashion_mnist.accuracy(model, *test):.2f} %, "
          f"{-(-args.steps // args.every)} pushes in {args.steps} steps")
