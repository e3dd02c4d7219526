#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training with parameters in the store: no copies, the store's optimizer,
checkpoints, and an end by SIGTERM or a lost rank after which the job goes on where it was.

    mpirun -np 2 python train_store.py --model resnet --epochs 2 --checkpoint run
"""

import argparse
import sys
import time

import torch
from torch.nn.functional import cross_entropy

import tutti
import tutti.torch

import fashion_mnist

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--model", default="mlp", choices=fashion_mnist.MODELS)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--steps", type=int, help="at most so many in an epoch")
parser.add_argument("--batch", type=int, default=128, help="images per rank and step")
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--checkpoint", help="a folder: saved after each epoch and on SIGTERM")
parser.add_argument("--data", default=fashion_mnist.FOLDER)
parser.add_argument("--device", default="cpu", help="where the model is: cpu, or cuda:0")
parser.add_argument("--threads", type=int, default=1, help="of torch, per rank")
args = parser.parse_args()

torch.set_num_threads(args.threads)
torch.manual_seed(1)
ranks = tutti.torch.world()
images, labels = (each.to(args.device) for each in fashion_mnist.read("train", args.data))
model = fashion_mnist.MODELS[args.model]().to(args.device)
optimizer = tutti.torch.Optimizer(model.named_parameters(), "sgd", learning_rate=args.lr,
                                  momentum=0.9)
signals = tutti.PreemptionSignals()
saved = {}
if args.checkpoint:
    saved = optimizer.load(args.checkpoint, may_be_absent=True)["metadata"]
first = int(saved.get("step", 0))  # 0 without a checkpoint
batch = int(saved.get("batch", args.batch * ranks.size))  # of all ranks, also of fewer or more
sampler = tutti.torch.Sampler(len(images), batch, ranks)
per_epoch = min(sampler.per_epoch, args.steps or sampler.per_epoch)
begin = time.perf_counter()
for step in range(first, args.epochs * per_epoch):
    epoch, index = divmod(step, per_epoch)
    samples = sampler.batch(epoch * sampler.per_epoch + index)
    optimizer.zero_grad()
    loss = cross_entropy(model(images[samples]), labels[samples])
    loss.backward()
    optimizer.step()
    ends = optimizer.store.stop_requested()  # the same on all ranks after a push
    position = {"step": str(step + 1), "batch": str(batch)}
    if args.checkpoint and (ends or index + 1 == per_epoch):
        optimizer.save(args.checkpoint, position)
    elif args.checkpoint:
        optimizer.snapshot_when_due(args.checkpoint, position)
    if ends:
        sys.exit(tutti.EXIT_REQUEUE if args.checkpoint else 1)
    if index + 1 == per_epoch and ranks.rank == 0:
        seconds = time.perf_counter() - begin
        print(f"epoch {epoch + 1}: loss {loss.item():.6f}, "
              f"{batch * (step + 1 - first) / seconds:,.0f} images/s", flush=True)
if ranks.rank == 0:
    test = (each.to(args.device) for each in fashion_mnist.read("t10k", args.data))
    print(f"accuracy {100 * fashion_mnist.accuracy(model, *test):.2f} %")
