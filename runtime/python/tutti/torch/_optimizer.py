# SPDX-License-Identifier: Apache-2.0
"""Parameters and gradients in the store's memory, and the store's optimizer in place of torch's."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterable, Iterator

import torch

from .. import Error, InvalidArgumentError, KVStore, Pending, create, optimizer
from ._job import world


def _error_of(pending: Pending) -> Error | None:
    """What a push failed with, once it is through."""
    try:
        pending.wait()
    except Error as error:
        return error
    return None


class Optimizer(torch.optim.Optimizer):
    """An optimizer of the store, for models in the host's memory that fit into every rank.

        optimizer = tutti.torch.Optimizer(model.named_parameters(), "sgd", learning_rate=0.1,
                                          momentum=0.9)
        for images, labels in loader:
            optimizer.zero_grad()
            loss_of(model(images), labels).backward()
            optimizer.step()              # sum over all ranks, then the update, on each

    Parameters become views of the store's replicas, rank 0's values at first, so that a step does
    not copy them. Gradients are copied into the store's memory once, which is faster than to clear
    them there and to add to zero. The model needs no DistributedDataParallel. A gradient is the
    mean over the store's ranks.

    params: named_parameters(), parameters(), or groups of them. Names become keys.
    name, options: as tutti.optimizer() takes them, e.g. "adamw", learning_rate=1e-3,
        weight_decay=0.01.
        learning_rate is also param_groups[i]["lr"], which schedules of torch may change.
    store: one that exists and has none of the keys; a new one over all ranks without it.
    overlap: True pushes each gradient as soon as it is there, with the priority of its layer, while
        the backward pass goes on; for jobs of several nodes, where it is the default but with
        clip_global_norm or loss_scale. A rate counts from the next backward pass on.

    Write to parameters on all ranks alike, or not at all: they are replicas. The states, such as
    momentum, are the store's: save() keeps them, and state_dict() has the rates alone. Collective.
    """

    def __init__(self, params: Any, name: str = "sgd", *, store: KVStore | None = None,
                 overlap: bool | None = None, **options: Any):
        is_scaled = any(option in name or options.get(option) is not None
                        for option in ("clip_global_norm", "loss_scale"))
        if overlap and is_scaled:
            raise InvalidArgumentError(
                "Optimizer: clip_global_norm and loss_scale are for all gradients of a step "
                "together, and overlap=True pushes them one by one; take overlap=False")
        self.store = create(world()) if store is None else store
        ranks = self.store.num_workers
        rule = optimizer(name, **{"rescale_grad": 1.0 / ranks, **options})
        super().__init__(params, {"lr": rule.learning_rate})
        self._rule = rule
        self._rates = [group["lr"] for group in self.param_groups]
        self._params: list[torch.nn.Parameter] = []
        self._keys: list[int | str] = []
        self._arrays: list[Any] = []
        self._gradients: list[torch.Tensor] = []
        self._pending: list[Pending] = []
        for group in self.param_groups:
            names = group.get("param_names", [None] * len(group["params"]))
            for given, param in zip(names, group["params"]):
                self._keys.append(given if given is not None else len(self._params))
                self._params.append(param)
        self._check()
        with torch.no_grad():
            self._move()
        self.store.set_optimizer(self._rule)
        self._set_rates()
        pays = world().num_nodes > 1 and ranks == world().size and not is_scaled
        self._overlaps = pays if overlap is None else overlap
        if self._overlaps:
            for index, param in enumerate(self._params):
                param.register_post_accumulate_grad_hook(self._hook(index))

    def _check(self) -> None:
        for key, param in zip(self._keys, self._params):
            if param.device.type != "cpu" or not param.requires_grad:
                raise InvalidArgumentError(
                    f"Optimizer: parameter {key}: expected one in the host's memory that requires "
                    f"a gradient; got one on {param.device}, requires_grad={param.requires_grad}")

    def _move(self) -> None:
        self.store.init(self._keys, [param.detach().contiguous() for param in self._params])
        for key, param in zip(self._keys, self._params):
            array = self.store.allocate(tuple(param.shape), str(param.dtype).split(".")[1])
            gradient = torch.from_dlpack(array)
            if param.grad is not None:
                gradient.copy_(param.grad)
            param.data = torch.from_dlpack(self.store.view(key))
            param.grad = gradient
            self._arrays.append(array)
            self._gradients.append(gradient)

    def _hook(self, index: int) -> Callable[[torch.nn.Parameter], None]:
        def push(_: torch.nn.Parameter) -> None:
            if self._overlaps:
                if not self._pending:  # else the pushes under way read the rates
                    self._set_new_rates()
                with torch.no_grad():
                    self._take_gradients([index])
                self._pending.append(self.store.push_async(
                    self._keys[index], self._arrays[index], priority=-index))
        return push

    def _take_gradients(self, indices: Iterable[int]) -> None:
        """What the backward pass or the program put in their place comes to the store's memory."""
        copied, copies = [], []
        for index in indices:
            param, gradient = self._params[index], self._gradients[index]
            given = param.grad
            if given is None:
                gradient.zero_()
            elif given is not gradient and given.data_ptr() != gradient.data_ptr():
                copied.append(given)
                copies.append(gradient)
            param.grad = gradient
        if copied:
            torch._foreach_copy_(copies, copied)

    @contextlib.contextmanager
    def no_push(self) -> Iterator[None]:
        """Gradients add up in the backward passes inside, and are pushed in the first one after."""
        before, self._overlaps = self._overlaps, False
        try:
            yield
        finally:
            self._overlaps = before

    def _set_rates(self) -> None:
        rates = [group["lr"] for group in self.param_groups]
        base = max(rates)  # not zero unless all are
        self._rule.learning_rate = base
        index = 0
        for group, rate in zip(self.param_groups, rates):
            for _ in group["params"]:
                if len(rates) > 1:
                    self._rule.set_lr_mult(self._keys[index], rate / base if base else 1.0)
                index += 1
        self._rates = rates

    def _set_new_rates(self) -> None:
        if any(group["lr"] != rate for group, rate in zip(self.param_groups, self._rates)):
            self._set_rates()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Sums the gradients over all ranks and updates the parameters. Collective.

        A parameter without a gradient counts as one whose gradient is zero.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._overlaps:
            pushed, self._pending = self._pending, []
            errors = [error for error in map(_error_of, pushed) if error is not None]
            if errors:
                raise errors[0]
            if len(pushed) != len(self._keys):
                raise InvalidArgumentError(
                    f"Optimizer.step: expected one backward pass, in which every parameter gets a "
                    f"gradient, {len(self._keys)} in all; got {len(pushed)}; put all passes but "
                    "the last under no_push(), or create it with overlap=False")
        else:
            self._set_new_rates()
            self._take_gradients(range(len(self._params)))
            self.store.push(self._keys, self._arrays)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients; or, with `set_to_none` False, they are zero and stay."""
        if set_to_none:
            for param in self._params:
                param.grad = None
            return
        for param, gradient in zip(self._params, self._gradients):
            param.grad = gradient
        torch._foreach_zero_(self._gradients)

    def save(self, directory: str, metadata: dict[str, str] | None = None) -> None:
        """Parameters and the optimizer's states as a generation of a checkpoint. Collective."""
        self.store.save(directory, metadata or {})

    def load(self, directory: str, may_be_absent: bool = False) -> dict[str, Any]:
        """The newest whole generation, as KVStore.load() gives it. Collective."""
        found = self.store.load(directory, may_be_absent=may_be_absent)
        for key, param in zip(self._keys, self._params):
            param.data = torch.from_dlpack(self.store.view(key))
        return dict(found)
