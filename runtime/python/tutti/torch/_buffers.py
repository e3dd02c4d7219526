# SPDX-License-Identifier: Apache-2.0
"""Broadcasts of a model's buffers, and of parameters that are not trained."""

from __future__ import annotations

import itertools

import torch

from .. import Communicator
from ._job import world


@torch.no_grad()
def broadcast_buffers(model: torch.nn.Module, ranks: Communicator | None = None) -> None:
    """Gives rank 0's buffers, such as the running means of BatchNorm, and its parameters that
    require no gradient to all ranks. Collective.

    An Optimizer broadcasts and saves only the parameters that it trains. Call this when the model
    is made or loaded; and, where buffers depend on the rank's own batches, before the model is
    tested or saved. ranks: all ranks of the job by default.
    """
    ranks = world() if ranks is None else ranks
    still = (param for param in model.parameters() if not param.requires_grad)
    for tensor in itertools.chain(model.buffers(), still):
        # DLPack, unlike NumPy, lets the program resize the tensor afterwards.
        sent = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        ranks.broadcast(sent.reshape(-1).view(torch.uint8), 0)
        if sent.data_ptr() != tensor.data_ptr():
            tensor.copy_(sent)
