# SPDX-License-Identifier: Apache-2.0
"""Clipping by the norm of all gradients, with the result of torch.nn.utils.clip_grad_norm_ under
DDP."""

from __future__ import annotations

from typing import Any

import torch

from .. import InvalidArgumentError
from ._job import world


class Clipping:
    """The members clip_grad_norm_() and grad_norm of Optimizer."""

    store: Any
    _norm: torch.Tensor | None = None

    @property
    def grad_norm(self) -> float:
        """The norm of the mean gradient before it was clipped, in the last clip_grad_norm_() or,
        with clip_global_norm or loss_scale, the last step. Local."""
        if self._norm is not None:
            return float(self._norm)
        return float(self.store.gradient_scaling()["norm"])

    @torch.no_grad()
    def clip_grad_norm_(self: Any, max_norm: float, norm_type: float = 2.0,
                        error_if_nonfinite: bool = False) -> torch.Tensor:
        """Makes the gradients their mean over the ranks, clips it, and returns its norm.
        Collective, between backward() and step(), which then sums gradients that are equal.

        The gradients travel twice. The option clip_global_norm clips in the step itself, which
        costs no message; then grad_norm has the norm.
        Raises InvalidArgumentError with overlap, or with a store of only some ranks.
        """
        if self._overlaps:
            raise InvalidArgumentError(
                "Optimizer.clip_grad_norm_: gradients are pushed while the backward pass goes on; "
                "make the optimizer with overlap=False")
        ranks = world()
        if self.store.num_workers != ranks.size:
            raise InvalidArgumentError(
                f"Optimizer.clip_grad_norm_: expected a store of all {ranks.size} ranks; got one "
                f"of {self.store.num_workers}; take the option clip_global_norm")
        self._use_stream()
        given = self._given()
        if not self._on_gpu:
            self._take_gradients(given)
        else:
            for index, gradient in zip(given, self._gradients_on_gpu(given)):
                self._params[index].grad = gradient
        params = [self._params[index] for index in given]
        for pending in [ranks.allreduce_async(param.grad, op="avg") for param in params]:
            pending.wait()
        self._norm = torch.nn.utils.clip_grad_norm_(params, max_norm, norm_type,
                                                    error_if_nonfinite)
        return self._norm
