# SPDX-License-Identifier: Apache-2.0
"""The lines of apps/python/frameworks.md, each with a model around them, as jobs of two ranks."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

PAGE = Path(__file__).parents[2] / "apps" / "python" / "frameworks.md"
BEFORE = """
import torch
torch.set_num_threads(1)
torch.manual_seed(3)
"""
MODEL = BEFORE + """
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""
STEPS = """
assert dist.get_backend() == "tutti"
for step in range(3):
    torch.manual_seed(10 * step + dist.get_rank())
    optimizer.zero_grad()
    backward(model(torch.randn(5, 4)).square().mean())
    optimizer.step()
"""
AGREE = """
weights = torch.cat([param.detach().reshape(-1) for param in model.parameters()])
of_all = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
dist.all_gather(of_all, weights)
assert all(torch.equal(one, weights) for one in of_all) and dist.get_backend() == "tutti"
print("trained on", dist.get_world_size(), "ranks", flush=True)
"""
TRAINER = BEFORE + """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 2)

    def forward(self, x, labels=None):
        return {"loss": (self.line(x) - labels).square().mean()}

model = Model()
data = [{"x": torch.randn(4), "labels": torch.randn(2)} for _ in range(64)]
"""
PROGRAMS = {  # by heading: the package, and what is before and after the page's lines
    "accelerate": ("accelerate", MODEL, "backward = accelerator.backward" + STEPS + AGREE),
    "transformers.Trainer": ("transformers", TRAINER, AGREE),
    "Lightning Fabric": ("lightning_fabric", MODEL, "import torch.distributed as dist\n"
                         "backward = fabric.backward" + STEPS + AGREE)}


def lines_of(heading):
    section = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.search(r"```python\n(.*?)```", section, re.S).group(1)


@pytest.mark.skipif("MPIRUN" not in os.environ, reason="MPIRUN names no launcher")
@pytest.mark.parametrize("heading", PROGRAMS)
def test_the_lines_of_the_page_train(heading, tmp_path):
    package, before, after = PROGRAMS[heading]
    pytest.importorskip(package, reason=f"{package} is not installed")
    program = tmp_path / "train.py"
    program.write_text("\n".join((before, lines_of(heading), after)))
    done = subprocess.run([*shlex.split(os.environ["MPIRUN"]), "-np", "2", sys.executable,
                           str(program)], text=True, capture_output=True, cwd=tmp_path, timeout=300)
    assert done.stdout.count("trained on 2 ranks") == 2, done.stdout + done.stderr
    assert done.returncode == 0


def test_the_page_has_no_other_program():
    headings = re.findall(r"^## (.*)$", PAGE.read_text(), re.M)
    assert [one for one in headings if one != "torch.distributed.run"] == list(PROGRAMS)
