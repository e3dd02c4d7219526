#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training with DistributedDataParallel: the backend is the one line that differs.

    mpirun -np 2 python train_ddp.py --backend tutti --model resnet --epochs 1
    mpirun -np 2 python train_ddp.py --backend gloo  --model resnet --epochs 1
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import tutti.torch  # registers the backend, and finds the ranks of the job

import fashion_mnist

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--backend", default="tutti", help="tutti or gloo")
parser.add_argument("--model", default="mlp", choices=fashion_mnist.MODELS)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--steps", type=int, help="at most so many in an epoch")
parser.add_argument("--batch", type=int, default=128, help="images per rank and step")
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--data", default=fashion_mnist.FOLDER)
parser.add_argument("--threads", type=int, default=1, help="of torch, per rank")
args = parser.parse_args()

torch.set_num_threads(args.threads)
torch.manual_seed(1)
dist.init_process_group(args.backend)
rank, ranks = dist.get_rank(), dist.get_world_size()
images, labels = fashion_mnist.read("train", args.data)
model = DistributedDataParallel(fashion_mnist.MODELS[args.model]())
optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)

for epoch in range(args.epochs):
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
    batches = order[rank::ranks].split(args.batch)[:args.steps]
    begin = time.perf_counter()
    for batch in batches:
        optimizer.zero_grad()
        loss = cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
    seconds = time.perf_counter() - begin
    if rank == 0:
        print(f"epoch {epoch + 1}: loss {loss.item():.6f}, "
              f"{ranks * args.batch * len(batches) / seconds:,.0f} images/s", flush=True)
if rank == 0:
    test = fashion_mnist.read("t10k", args.data)
    print(f"accuracy {100 * fashion_mnist.accuracy(model.module, *test):.2f} %")
dist.destroy_process_group()
