# SPDX-License-Identifier: Apache-2.0
"""Horovod's DistributedOptimizer: torch's optimizer, whose gradients are those of all ranks."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, Callable, Iterator, Optional

import torch

from ...torch import Optimizer
from ._calls import allreduce_async_, sparse_allreduce_async, synchronize
from ._reduction import Average, Compression, operation
from ._sets import ProcessSet, global_process_set, size


_Wait = Callable[[], torch.Tensor]  # for a gradient whose reduction has begun


class _Distributed:
    """The class that is put before that of an optimizer. Its names begin with _hvd, so that none
    is a name of the optimizer's."""

    _hvd_reductions: dict[Any, Optional[_Wait]]

    def __new__(cls, *args: Any, **options: Any) -> Any:
        return object.__new__(cls)

    def __init__(self, optimizer: torch.optim.Optimizer, names: dict[Any, str],
                 options: dict[str, Any]):
        # Options, states and hooks are shared with the optimizer, which a schedule may hold.
        self.__dict__.update({name: value for name, value in optimizer.__dict__.items()
                              if name != "step"})
        self._parameter_names = names
        self._hvd_optimizer = optimizer
        self._hvd_options = options
        self._hvd_passes = options["backward_passes_per_step"]
        self._hvd_left = {param: self._hvd_passes for param in names}
        self._hvd_reductions = {}
        self._hvd_is_through = False
        self._hvd_skips = False
        self._hvd_trained = []
        if options["process_set"].included() and size() > 1:
            self._hvd_trained = [param for param in names if param.requires_grad]
        for param in self._hvd_trained:
            param.register_post_accumulate_grad_hook(self._hvd_hook)

    @property
    def backward_passes_per_step(self) -> int:
        return self._hvd_passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        self._hvd_passes = passes
        self._hvd_left = dict.fromkeys(self._hvd_left, passes)

    def load_state_dict(self, *args: Any, **options: Any) -> None:
        self._hvd_reductions.clear()
        self._hvd_is_through = self._hvd_skips = False
        self.set_backward_passes_per_step(self._hvd_passes)
        super().load_state_dict(*args, **options)  # type: ignore[misc]

    def _hvd_hook(self, param: torch.Tensor) -> None:
        if self._hvd_left[param] <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to "
                "step(). Increase backward_passes_per_step to accumulate gradients locally.")
        self._hvd_left[param] -= 1
        self._hvd_reductions[param] = (self._hvd_begin(param) if self._hvd_left[param] == 0
                                       else None)

    def _hvd_begin(self, param: torch.Tensor) -> _Wait:
        if param.grad is None:  # another rank may have one
            param.grad = torch.zeros_like(param)
        options = self._hvd_options
        name, process_set = self._parameter_names[param], options["process_set"]
        gradient = param.grad
        if gradient.is_sparse and not options["sparse_as_dense"]:
            return sparse_allreduce_async(gradient, name, options["op"], process_set)
        is_sparse = gradient.is_sparse
        dense = gradient.to_dense() if is_sparse else gradient
        factor = options["gradient_predivide_factor"]
        sent, context = options["compression"].compress(dense.contiguous())
        handle = allreduce_async_(sent, name=name, op=options["op"], prescale_factor=1.0 / factor,
                                  postscale_factor=factor, process_set=process_set)

        def wait() -> torch.Tensor:
            found = options["compression"].decompress(synchronize(handle), context)
            return found.to_sparse() if is_sparse else found
        return wait

    def synchronize(self) -> None:
        """Waits until gradients are reduced over all ranks. Parameters without one then have
        zeros."""
        for param in self._hvd_trained:
            if self._hvd_reductions.get(param) is None:
                self._hvd_reductions[param] = self._hvd_begin(param)
        reductions, self._hvd_reductions = self._hvd_reductions, {}
        with torch.no_grad():
            for param, reduction in reductions.items():
                assert reduction is not None
                found = reduction()
                self._hvd_left[param] = self._hvd_passes
                if param.grad.is_sparse:
                    param.grad.zero_().add_(found)
                elif found.data_ptr() != param.grad.data_ptr():
                    param.grad.copy_(found)
        self._hvd_is_through = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """A context in which step() does not reduce, because the program called synchronize()."""
        self._hvd_skips = True
        try:
            yield
        finally:
            self._hvd_skips = False

    def step(self, closure: Any = None) -> Any:
        if not self._hvd_skips:
            if self._hvd_is_through:
                warnings.warn("optimizer.step() called without optimizer.skip_synchronize() "
                              "context after optimizer.synchronize(). This reduces the gradients "
                              "again", stacklevel=2)
            self.synchronize()
        self._hvd_is_through = False
        self._hvd_optimizer._opt_called = True  # type: ignore[attr-defined]  # its schedule asks
        return super().step(closure)  # type: ignore[misc]

    def zero_grad(self, *args: Any, **options: Any) -> None:
        if self._hvd_reductions:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize(). This is prohibited as it can cause "
                "a race condition.")
        super().zero_grad(*args, **options)  # type: ignore[misc]


def _names_of(optimizer: torch.optim.Optimizer, named_parameters: Any) -> dict[Any, str]:
    """The name of each parameter. Raises ValueError."""
    if named_parameters is None:
        named = [(f"noname.{index}.{place}", param)
                 for index, group in enumerate(optimizer.param_groups)
                 for place, param in enumerate(group["params"])]
    else:
        named = list(named_parameters)
    if any(not isinstance(one, tuple) for one in named):
        raise ValueError("named_parameters should be a sequence of tuples (name, parameter), "
                         "usually produced by model.named_parameters().")
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError("Parameter names in named_parameters must be unique. Found duplicates: "
                         + ", ".join(twice))
    by_param = {param: name for name, param in named}
    own = [param for group in optimizer.param_groups for param in group["params"]]
    missing = [tuple(param.shape) for param in own if param not in by_param]
    if missing:
        raise ValueError("named_parameters was specified, but one or more model parameters were "
                         f"not named; their shapes are {missing}")
    return {param: by_param[param] for param in own}


def _require_groups(groups: Any) -> None:
    if isinstance(groups, int) and groups >= 0:
        return
    if not isinstance(groups, list):
        raise ValueError("groups should be a non-negative integer or a list of list of "
                         "torch.Tensor.")
    members = [param for group in groups for param in group]
    if any(not isinstance(param, torch.Tensor) for param in members):
        raise ValueError("groups must consist of torch.Tensor.")
    if len(set(map(id, members))) < len(members):
        raise ValueError("A parameter can only appear once in groups.")


def DistributedOptimizer(  # noqa: N802  # Horovod's name
        optimizer: torch.optim.Optimizer, named_parameters: Any = None,
        compression: Any = Compression.none, backward_passes_per_step: int = 1,
        op: int = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
        groups: Any = None, sparse_as_dense: bool = False,
        process_set: ProcessSet = global_process_set) -> Any:
    """An optimizer like the given one, whose step() takes the ranks' mean gradients, or sums.

    It is an instance of the optimizer's class, and has its options and states. A parameter that has
    no gradient on a rank counts as zero there. groups and num_groups change nothing: all gradients
    that are complete travel together. Ranks outside of process_set train on their own.

    backward_passes_per_step: how many backward passes add to a gradient before it is reduced.
    gradient_predivide_factor: with Average, the factor that gradients are divided by before the
        sum, and multiplied by after it.
    sparse_as_dense: sparse gradients are reduced as dense ones.

    Raises NotImplementedError for Adasum, and ValueError for other wrong arguments.
    """
    if isinstance(optimizer, Optimizer):
        raise ValueError("DistributedOptimizer: expected an optimizer of torch.optim; one of "
                         "tutti.torch takes the mean over the ranks itself")
    operation(op)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if groups is not None or num_groups:
        _require_groups(num_groups if groups is None else groups)
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    names = _names_of(optimizer, named_parameters)
    kind = type(optimizer)
    distributed = type(kind.__name__, (_Distributed, kind), {"__module__": __name__})
    return distributed(optimizer, names, {
        "compression": compression, "backward_passes_per_step": backward_passes_per_step,
        "op": op, "gradient_predivide_factor": gradient_predivide_factor,
        "sparse_as_dense": sparse_as_dense, "process_set": process_set})
