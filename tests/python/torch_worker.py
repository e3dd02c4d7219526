# SPDX-License-Identifier: Apache-2.0
"""What a rank of torch_jobs_test.py does.

    torch_worker.py bits            DDP for five steps; prints a digest of the weights
    torch_worker.py gloo            the same over gloo, with the rest alike
    torch_worker.py lost            the last rank is killed before an all_reduce
"""

import hashlib
import os
import signal
import sys

import torch
import torch.distributed as dist

import tutti.torch

torch.set_num_threads(1)
torch.manual_seed(3)
what = sys.argv[1]
dist.init_process_group("gloo" if what == "gloo" else "tutti")
rank, ranks = dist.get_rank(), dist.get_world_size()
if what == "lost":
    if rank == ranks - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(3))

model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(50, 300), torch.nn.Tanh(), torch.nn.Linear(300, 10)),
    bucket_cap_mb=0.01)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(5):
    batch = torch.randn(8 * ranks, 50)[8 * rank:8 * rank + 8]
    optimizer.zero_grad()
    model(batch).square().sum().backward()
    optimizer.step()
weights = torch.cat([weight.detach().reshape(-1) for weight in model.parameters()])
print(f"digest {hashlib.sha256(weights.numpy().tobytes()).hexdigest()}", flush=True)
dist.destroy_process_group()
