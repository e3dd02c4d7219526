# SPDX-License-Identifier: Apache-2.0
"""Operations of calls that reduce: sums, means and others, with their factors."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Optional

import torch

from ... import Communicator
from ._requests import Request

Average, Sum, Adasum, Min, Max, Product = 0, 1, 2, 3, 4, 5
_NAMES = {Average: "avg", Sum: "sum", Min: "min", Max: "max", Product: "prod"}
_HALVES = (torch.float16, torch.bfloat16)
_REDUCED = {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8,
            torch.int32, torch.int64}


class _NoCompression:
    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _HalfCompression:
    """Sends floating-point numbers as float16."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        halved = tensor.to(torch.float16) if tensor.dtype.is_floating_point else tensor
        return halved, tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


class Compression:
    """The form in which a call sends its tensors: Compression.none or Compression.fp16."""

    none = _NoCompression
    fp16 = _HalfCompression


def operation(op: Optional[int], average: Optional[bool] = None) -> int:
    if op is None:
        if average is None:
            return Average
        warnings.warn("Parameter `average` has been replaced with `op`", DeprecationWarning,
                      stacklevel=3)
        return Average if average else Sum
    if average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if op == Adasum:
        raise NotImplementedError("op: Adasum is not there; take Average or Sum, with a learning "
                                  "rate for that many ranks")
    if op not in _NAMES:
        raise ValueError(f"op: expected Average, Sum, Min, Max or Product; got {op!r}")
    return op


def require_plain(call: str, tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        if tensor.layout is not torch.strided or not tensor.is_contiguous():
            raise ValueError(f"{call}: Tensor is required to be contiguous.")
        if tensor.device.type != "cpu":
            raise ValueError(f"{call}: expected tensors in the host's memory; got one on "
                             f"{tensor.device}; take tensor.cpu(), or tutti.torch's optimizers, "
                             "which are for GPUs as well")


def require_reducible(call: str, tensors: list[torch.Tensor]) -> None:
    require_plain(call, tensors)
    for tensor in tensors:
        if tensor.dtype not in _REDUCED:
            raise ValueError(f"{call}: Tensor type {tensor.type()} is not supported.")


def kinds_of(tensors: list[torch.Tensor], from_dimension: int = 0) -> tuple[Any, ...]:
    return tuple((str(tensor.dtype).split(".")[1], tuple(tensor.shape[from_dimension:]))
                 for tensor in tensors)


def _scale(tensor: torch.Tensor, factor: float) -> None:
    """Multiplies in place. 16-bit numbers are multiplied as float32, and integers as float64."""
    if factor == 1.0:
        return
    if tensor.dtype in _HALVES:
        tensor.copy_(tensor.float().mul_(factor))
    elif tensor.dtype.is_floating_point:
        tensor.mul_(factor)
    else:
        tensor.copy_(tensor.double().mul_(factor))


class Reduction:
    """An operation with its factors."""

    def __init__(self, op: int, before: float, after: float):
        self.op, self.before, self.after = op, float(before), float(after)

    @property
    def alike(self) -> tuple[Any, ...]:
        return _NAMES[self.op], self.before, self.after

    def sent(self, tensor: torch.Tensor) -> torch.Tensor:
        """The contribution of a rank: the tensor, or a copy that is scaled."""
        if self.before == 1.0:
            return tensor
        scaled = tensor.clone()
        _scale(scaled, self.before)
        return scaled

    def name(self, dtype: torch.dtype) -> Any:
        """The library's name of the operation. The library has no mean of integers."""
        return "sum" if self.op == Average and not dtype.is_floating_point else _NAMES[self.op]

    def complete(self, tensor: torch.Tensor, ranks: int) -> None:
        if self.op == Average and not tensor.dtype.is_floating_point:
            tensor.copy_(torch.div(tensor, ranks, rounding_mode="trunc"))
        _scale(tensor, self.after)


@torch.no_grad()
def start_allreduce(ranks: Communicator, reduction: Reduction, tensors: list[torch.Tensor],
                    outputs: list[torch.Tensor]) -> Callable[[], None]:
    pending = []
    for tensor, output in zip(tensors, outputs):
        source = reduction.sent(tensor.detach())
        to = output.detach()
        name = reduction.name(tensor.dtype)
        if source.data_ptr() == to.data_ptr():
            pending.append(ranks.allreduce_async(to, op=name))
        else:
            pending.append(ranks.allreduce_async(source, to, op=name))

    @torch.no_grad()
    def end() -> None:
        for one in pending:
            one.wait()
        for output in outputs:
            reduction.complete(output.detach(), ranks.size)
    return end


def stand_in(described: Any) -> Request:
    """The request of a rank that has joined, in answer to one of others: zeros in an allreduce;
    nothing in other calls, or where zeros would be wrong."""
    name, alike, own = described
    if alike[0] != "allreduce" or alike[1] not in ("sum", "avg"):
        return Request(name, alike, own, lambda ranks, owns: None)
    op = next(number for number, known in _NAMES.items() if known == alike[1])
    zeros = [torch.zeros(shape, dtype=getattr(torch, dtype)) for dtype, shape in alike[4]]
    reduction = Reduction(op, *alike[2:4])
    return Request(name, alike, own,
                   lambda ranks, owns: start_allreduce(ranks, reduction, zeros, zeros))
