# SPDX-License-Identifier: Apache-2.0
"""What a rank of torch_jobs_test.py does.

    torch_worker.py bits FILE       DDP for 60 steps; prints a digest of the weights, and rank 0
                                    writes the mean loss of each step into FILE.tutti
    torch_worker.py gloo FILE       the same, and then over gloo, with losses in FILE.gloo
    torch_worker.py lost            the last rank is killed before an all_reduce
    torch_worker.py agreed          all ranks call all_reduce with other shapes
    torch_worker.py uneven          the last rank has one backward pass more than the others
    torch_worker.py powersgd        torch's hook, whose callbacks wait for another all_reduce
    torch_worker.py late            the last rank never comes to a backward pass of DDP
    torch_worker.py messages        messages between collectives, each awaited by both of its ranks
                                    when they like; prints a digest of all; then the same over gloo
    torch_worker.py crossed         rank 0 waits for a message that rank 1 begins after a collective
"""

import hashlib
import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.functional import cross_entropy

import tutti.torch


def trained(what):
    """The model after DDP's steps, and its mean losses."""
    torch.manual_seed(3)
    centres = torch.randn(10, 50)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(50, 300), torch.nn.Tanh(), torch.nn.Linear(300, 10)),
        bucket_cap_mb=0.01)
    if what == "powersgd":
        model.register_comm_hook(powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2),
                                 powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    losses = []
    for step in range(10 if what == "powersgd" else 60):
        if what == "late" and step == 3 and rank == ranks - 1:
            time.sleep(3600)  # until the job ends
        kinds = torch.randint(10, (8 * ranks,))
        batch = centres[kinds] + 2 * torch.randn(8 * ranks, 50)
        mine = slice(8 * rank, 8 * rank + 8)
        optimizer.zero_grad()
        loss = cross_entropy(model(batch[mine]), kinds[mine])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    mean = torch.stack(losses) / ranks
    dist.all_reduce(mean)
    return model, mean


def tell(model, mean, file):
    """Prints the digest of the weights; rank 0 writes the losses."""
    weights = torch.cat([weight.detach().reshape(-1) for weight in model.parameters()])
    digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()
    print(f"digest {digest} over {dist.get_backend()}", flush=True)
    if dist.get_rank() == 0 and file:
        Path(f"{file}.{dist.get_backend()}").write_text(json.dumps(mean.tolist()))


def exchanged():
    """What this rank has received, in the order in which it has begun to."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    plan, own = random.Random(5), random.Random(rank)
    begun, taken = [], []
    for phase in range(60):
        for number in range(12):
            sender, receiver = plan.sample(range(ranks), 2)
            tag, size = plan.randrange(3), plan.choice((1, 7, 900, 30_000))
            if rank == sender:
                begun.append(dist.isend(torch.full((size,), 100. * phase + number), receiver,
                                        tag=tag))
            elif rank == receiver:
                taken.append(torch.zeros(size))
                begun.append(dist.irecv(taken[-1], sender, tag=tag))
        if phase % 3 == 0:
            dist.all_reduce(total := torch.ones(3))
            taken.append(total)
        own.shuffle(begun)
        while len(begun) > own.randrange(20):
            begun.pop().wait()
    for work in begun:
        work.wait()
    return torch.cat(taken)


torch.set_num_threads(1)
what, file = [*sys.argv[1:], ""][:2]
# Rank 0 listens already: no other program can take the port before the groups meet there.
socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 30).close()
dist.init_process_group("tutti")
if what == "lost":
    if dist.get_rank() == dist.get_world_size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(3))
if what == "messages":
    for backend in ("tutti", "gloo"):
        if backend == "gloo":
            dist.destroy_process_group()
            dist.init_process_group(backend)
        digest = hashlib.sha256(exchanged().numpy().tobytes()).hexdigest()
        print(f"rank {dist.get_rank()} digest {digest} over {backend}", flush=True)
    dist.destroy_process_group()
    sys.exit()
if what == "crossed":
    if dist.get_rank() == 0:
        dist.recv(torch.zeros(3), 1)
    dist.all_reduce(torch.ones(1))
    dist.send(torch.zeros(3), 0)
if what == "agreed":
    dist.all_reduce(torch.ones(3 + dist.get_rank()))
if what == "uneven":
    small = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    for _ in range(4 if dist.get_rank() == dist.get_world_size() - 1 else 3):
        small(torch.ones(2, 4)).sum().backward()
    dist.all_reduce(torch.ones(1))
tell(*trained(what), file)
dist.destroy_process_group()
if what == "gloo":
    dist.init_process_group("gloo")
    tell(*trained(what), file)
    dist.destroy_process_group()
