# SPDX-License-Identifier: Apache-2.0
"""Which samples each rank trains on, so that a job can go on with another number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.utils.data

from .. import Communicator, InvalidArgumentError
from ._job import world


class Sampler(torch.utils.data.Sampler[list[int]]):
    """Batches of indices for torch.utils.data.DataLoader(data, batch_sampler=...).

    What a rank gets follows from (step, rank, number of ranks) alone: step s of an epoch takes the
    s-th `batch_size` samples of the epoch's order, and each rank an equal part of these, one after
    the other. So a job that goes on at a step, with however many ranks, sees every sample of the
    epoch once. The samples that fill no batch are left out.

    samples: how many there are. batch_size: of all ranks together. ranks: all ranks of the job by
    default. An iteration begins at `step`, which counts from the first epoch on, and ends with the
    epoch; its last batch sets `step` to the next epoch's first.
    """

    def __init__(self, samples: int, batch_size: int, ranks: Communicator | None = None, *,
                 seed: int = 0, step: int = 0) -> None:
        self._ranks = world() if ranks is None else ranks
        if batch_size <= 0 or batch_size % self._ranks.size != 0:
            raise InvalidArgumentError(
                f"Sampler: batch_size is of all ranks together, expected a multiple of their "
                f"number {self._ranks.size}, got {batch_size}")
        self.per_epoch = samples // batch_size
        if self.per_epoch == 0:
            raise InvalidArgumentError(
                f"Sampler: expected at least one batch of {batch_size}, got {samples} samples")
        self.step = step
        self._samples, self._batch_size, self._seed = samples, batch_size, seed
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)

    def batch(self, step: int) -> list[int]:
        """This rank's samples of a step."""
        epoch, index = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(self._seed + epoch)
            self._epoch, self._order = epoch, torch.randperm(self._samples, generator=generator)
        share = self._batch_size // self._ranks.size
        first = index * self._batch_size + share * self._ranks.rank
        result: list[int] = self._order[first:first + share].tolist()
        return result

    def __iter__(self) -> Iterator[list[int]]:
        first = self.step
        end = (first // self.per_epoch + 1) * self.per_epoch
        for step in range(first, end):
            if step + 1 == end:
                self.step = end
            yield self.batch(step)

    def __len__(self) -> int:
        """Steps from `step` to the end of its epoch."""
        return self.per_epoch - self.step % self.per_epoch
