# SPDX-License-Identifier: Apache-2.0
"""Images and labels of Fashion-MNIST as tensors, and the two models of the examples."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import nn

FOLDER = "/usr/share/datasets/fashion-mnist"  # of Debian's package dataset-fashion-mnist


def read(kind: str, folder: str = FOLDER, limit: int | None = None) -> tuple[torch.Tensor, ...]:
    """kind: "train" or "t10k". Images (n, 1, 28, 28) of float32 in 0 .. 1, and labels (n)."""
    def array(what: str, header: int) -> np.ndarray:
        path = Path(folder) / f"{kind}-{what}-ubyte.gz"
        if not path.exists():
            raise SystemExit(f"{path} is missing: apt-get install dataset-fashion-mnist, or name a "
                             "folder that has it with --data")
        return np.frombuffer(gzip.open(path).read(), np.uint8, offset=header)

    images = torch.from_numpy(array("images-idx3", 16).copy()).reshape(-1, 1, 28, 28)[:limit]
    labels = torch.from_numpy(array("labels-idx1", 8).copy())[:limit]
    return images.float() / 255, labels.long()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128),
                         nn.ReLU(), nn.Linear(128, 10))


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.GroupNorm(4, outputs),
            nn.ReLU(), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.GroupNorm(4, outputs))
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(images) + self.shortcut(images))


def resnet() -> nn.Module:
    """A residual network of 8 layers, for 28 x 28 pixels in one channel."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


MODELS = {"mlp": mlp, "resnet": resnet}


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    hits = sum(int((model(images[i:i + 500]).argmax(1) == labels[i:i + 500]).sum())
               for i in range(0, len(images), 500))
    model.train()
    return hits / len(images)
