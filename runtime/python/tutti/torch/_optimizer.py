# SPDX-License-Identifier: Apache-2.0
"""Parameters and gradients in the store's memory, and the store's optimizer in place of torch's."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Callable, Iterable, Iterator

import torch

from .. import InvalidArgumentError, KVStore, Pending, create, optimizer, set_stream
from ._clip import Clipping
from ._job import world
from ._overlap import end_pushes, error_of
from ._rates import Rates, other_options
from ._rules import TorchRule, named
from ._states import load_into, state_of
from ._work import carry_out_beside

_HALVES = (torch.float16, torch.bfloat16)
_open: "weakref.WeakSet[Optimizer]" = weakref.WeakSet()


def _remove(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()
    hooks.clear()


def _end(hooks: list[Any], pending: list[Pending]) -> None:
    """Ends the pushes of an optimizer that is dropped, while its store exists. Pushes that a store
    gave up would end the calls of all ranks."""
    _remove(hooks)
    for push in pending:
        error_of(push)


def _runs_optimizer(store: KVStore) -> bool:
    try:
        return store.optimizer is not None
    except InvalidArgumentError:
        return False


class Optimizer(Clipping, torch.optim.Optimizer):
    """An optimizer of the store, for models that fit into every rank, in the host's memory or on a
    GPU.

        optimizer = tutti.torch.Optimizer(model.named_parameters(), "sgd", learning_rate=0.1,
                                          momentum=0.9)
        for images, labels in loader:
            optimizer.zero_grad()
            loss_of(model(images), labels).backward()
            optimizer.step()              # sum over all ranks, then the update, on each

    Parameters become views of the store's replicas, rank 0's values at first, so that a step does
    not copy them. Gradients in the host's memory are copied into the store's once, which is faster
    than clearing them there and adding to zero; those on a GPU are pushed from where they are. The
    model needs no DistributedDataParallel. A gradient is the mean over the store's ranks.

    All parameters are in the host's memory or on one GPU, the rank's own: move the model first. A
    step on a GPU is put into torch's current stream of it, and returns as KVStore.push does.

    params: named_parameters(), parameters(), or groups of them. Names become keys. A group may have
        its own lr and weight_decay.
    name, options: as tutti.optimizer() takes them, e.g. "adamw", learning_rate=1e-3,
        weight_decay=0.01. "adamw" is torch's AdamW here, with its formula and defaults; for torch's
        others take tutti.torch.SGD, Adam, NAdam, RMSprop, Adagrad, Adadelta and Adamax.
        learning_rate is also param_groups[i]["lr"], which schedules of torch may change. With the
        option schedule it is not: that decides the rate of all groups.
    store: a store that has none of the keys and runs no optimizer; by default a new one over all
        ranks. A store for parameters on a GPU keeps its keys there, as "dist" does.
    find_unused_parameters: False leaves a parameter without a gradient as it is, as torch does; the
        parameters must be the same on all ranks, and with overlap all have one. True counts a
        missing gradient as zero, on each rank.
    overlap: in the host's memory, True pushes each gradient as soon as it is complete, with the
        priority of its layer, while the backward pass goes on; for jobs of several nodes, where it
        is the default except with clip_global_norm or loss_scale. A rate counts from the next
        backward pass on.

    Write to parameters on all ranks alike, or not at all: they are replicas. With multi_precision
    the store's float32 weights, of which parameters of 16 bits are rounded copies, overwrite at the
    next step values that were written after the first one; load() sets both. Code that changes
    gradients between backward() and step(), such as clip_grad_norm_, sees those of this rank,
    before the mean, and is refused with overlap; clip_global_norm clips the mean. A GradScaler is
    refused: take loss_scale.

    The states, such as momentum, are the store's: save() keeps them. state_dict() has copies, under
    torch's names where torch's optimizer is the same, and load_state_dict(), which is collective,
    takes them. Neither has buffers, such as BatchNorm's, and parameters that require no gradient:
    see broadcast_buffers(). A new optimizer closes that which had its parameters. Collective.
    """

    # Lets a GradScaler hand its findings to step(), which refuses them: one rank would skip a step.
    _step_supports_amp_scaling = True
    _is_made = False
    _is_closed = False
    _torch_rule: TorchRule | None = None

    def __init__(self, params: Any, name: str = "sgd", *, store: KVStore | None = None,
                 overlap: bool | None = None, find_unused_parameters: bool = False,
                 **options: Any):
        if self._torch_rule is None:
            self._torch_rule, name, options = named(name, options)
        is_scaled = any(options.get(option) is not None
                        for option in ("clip_global_norm", "loss_scale"))
        if overlap and is_scaled:
            raise InvalidArgumentError(
                "Optimizer: clip_global_norm and loss_scale are for all gradients of a step "
                "together, and overlap=True pushes them one by one; take overlap=False")
        if store is not None and _runs_optimizer(store):
            raise InvalidArgumentError(
                "Optimizer: expected a store that runs no optimizer; a store runs one for all of "
                "its keys; give all parameters to one Optimizer, in groups, or take a store each")
        ranks = world().size if store is None else store.num_workers
        params = params if isinstance(params, torch.Tensor) else list(params)
        if self._torch_rule is not None:
            defaults, options = options.pop("defaults"), options
            options = self._torch_rule.store_options(defaults, options, ranks)
        else:
            options = {"rescale_grad": 1.0 / ranks, **options}
            defaults = {}
        rule = optimizer(name, **options)
        rates = {**defaults, "lr": rule.learning_rate, "weight_decay": rule.weight_decay}
        if not defaults and float(options.get("momentum", 0)) > 0:
            rates["momentum"] = float(options["momentum"])
        decay = max((float(group.get("weight_decay", 0)) for group in params
                     if isinstance(group, dict)), default=0.0)
        if rule.weight_decay == 0 and decay > 0:  # the largest: groups have parts of it
            rule = optimizer(name, **{**options, "weight_decay": decay})
        self._options = options
        self._finds_unused = find_unused_parameters
        super().__init__(params, rates)
        self._rule = rule
        self._params: list[torch.nn.Parameter] = []
        self._keys: list[int | str] = []
        self._arrays: list[Any] = []
        self._gradients: list[torch.Tensor] = []
        self._replicas: list[torch.Tensor] = []
        self._addresses: list[int] = []
        self._pending: list[Pending] = []
        self._hooks: list[Any] = []
        for group in self.param_groups:
            names = group.get("param_names", [None] * len(group["params"]))
            for given, param in zip(names, group["params"]):
                self._keys.append(given if given is not None else len(self._params))
                self._params.append(param)
        # Torch's count of writes to each gradient, as it was at the push.
        self._versions: list[int | None] = [None] * len(self._params)
        self._device = self._check()
        self._on_gpu = self._device.type == "cuda"
        if overlap and self._on_gpu:
            raise InvalidArgumentError(
                "Optimizer: overlap=True is for parameters in the host's memory; got some on "
                f"{self._device}, of which a step makes one push of all gradients; leave it out")
        fixed = {} if self._torch_rule is None else self._torch_rule.fixed(self.defaults)
        self._rates = Rates(rule, options, self._keys, self.defaults, fixed)
        self._rates.update(self.param_groups)
        self.store = create(world()) if store is None else store
        others = self._others()
        for other in others:
            other._await_pushes()
        with torch.no_grad():
            self._move()
        self.store.set_optimizer(self._rule)
        for other in others:
            other.close()
        # True if push() itself returns before the parameters are updated.
        self._goes_on = self.store._is_asynchronous and not is_scaled and not self._on_gpu
        pays = (world().num_nodes > 1 and ranks == world().size and not is_scaled
                and not self._on_gpu)
        self._overlaps = pays if overlap is None else overlap
        if self._overlaps:
            self._hooks += [param.register_post_accumulate_grad_hook(self._hook(index))
                            for index, param in enumerate(self._params)]
        weakref.finalize(self, _end, self._hooks, self._pending).atexit = False
        _open.add(self)
        self._is_made = True

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuses a group once the optimizer is made: its store has the parameters of that time."""
        if self._is_made:
            raise InvalidArgumentError(
                "Optimizer.add_param_group: its store has the parameters that it was made with; "
                "give all groups when it is made, with lr=0 for those that come later")
        refused = other_options(param_group, self._options, self.defaults)
        if refused:
            raise InvalidArgumentError(
                "Optimizer: expected groups with params, lr and weight_decay; got "
                f"{', '.join(refused)}; all other options are those of all groups")
        super().add_param_group(param_group)

    def _others(self) -> list[Optimizer]:
        """The open optimizers that have one of its parameters."""
        own = set(map(id, self._params))
        return [other for other in _open if not own.isdisjoint(map(id, other._params))]

    def close(self) -> None:
        """Ends pushes under way, and lets later backward passes push no more. Parameters stay as
        they are, and the store stays open. Local."""
        _remove(self._hooks)
        _open.discard(self)
        self._is_closed = True
        self._await_pushes()

    def _check(self) -> torch.device:
        """The device of all parameters."""
        device = self._params[0].device if self._params else torch.device("cpu")
        for key, param in zip(self._keys, self._params):
            if param.device.type not in ("cpu", "cuda") or not param.requires_grad:
                raise InvalidArgumentError(
                    f"Optimizer: parameter {key}: expected one in the host's memory or on a CUDA "
                    f"GPU that requires a gradient; got one on {param.device}, "
                    f"requires_grad={param.requires_grad}")
            if param.dtype in _HALVES and not self._options.get("multi_precision"):
                raise InvalidArgumentError(
                    f"Optimizer: parameter {key}: {param.dtype} is too coarse to add updates to; "
                    "take multi_precision=True, which keeps a float32 weight beside it")
            if param.device != device:
                raise InvalidArgumentError(
                    f"Optimizer: expected all parameters on one device; got {self._keys[0]} on "
                    f"{device} and {key} on {param.device}; move the model before: "
                    "model.to(device)")
        return device

    def _use_stream(self) -> None:
        """Uses torch's stream, in which parameters are read and gradients written."""
        if self._on_gpu:
            set_stream(str(self._device), torch.cuda.current_stream(self._device).cuda_stream)

    def _show_replicas(self) -> None:
        self._replicas = [torch.from_dlpack(self.store.view(key)) for key in self._keys]
        self._addresses = [replica.data_ptr() for replica in self._replicas]
        for param, replica in zip(self._params, self._replicas):
            param.data = replica

    @torch.no_grad()
    def _show_again(self, indices: Iterable[int]) -> None:
        """Makes parameters views of the replicas again. Code that gives a parameter memory of its
        own, such as flatten_parameters() of an LSTM, copies the values there, which the program may
        have changed since. From a push to the step the replica has the values."""
        for index in indices:
            param = self._params[index]
            if param.data_ptr() == self._addresses[index]:
                continue
            replica = self._replicas[index]
            if (param.shape, param.dtype, param.device) != (replica.shape, replica.dtype,
                                                            replica.device):
                raise InvalidArgumentError(
                    f"Optimizer: parameter {self._keys[index]}: expected {tuple(replica.shape)} "
                    f"{replica.dtype} on {replica.device}, as when the optimizer was made; got "
                    f"{tuple(param.shape)} {param.dtype} on {param.device}; change the model "
                    "before, and make another optimizer")
            if self._versions[index] is None:  # not pushed
                replica.copy_(param)
            param.data = replica

    def _move(self) -> None:
        self._use_stream()
        self.store.init(self._keys, [param.detach().contiguous() for param in self._params])
        if self._on_gpu:
            self._require_gpu()
        gradients = [param.grad for param in self._params]
        self._show_replicas()
        if self._on_gpu:
            return
        for param, given in zip(self._params, gradients):
            array = self.store.allocate(tuple(param.shape), str(param.dtype).split(".")[1])
            gradient = torch.from_dlpack(array)
            if given is not None:
                gradient.copy_(given)
                param.grad = gradient
            self._arrays.append(array)
            self._gradients.append(gradient)

    def _require_gpu(self) -> None:
        for key in self._keys[:1]:
            device = self.store.view(key).device
            if not device.startswith("gpu"):
                raise InvalidArgumentError(
                    f"Optimizer: expected a store that keeps parameters on {self._device}; got one "
                    f"that keeps them on {device}; take create(\"dist\") or create(\"device\")")

    def _hook(self, index: int) -> Callable[[torch.nn.Parameter], None]:
        """A hook that pushes a gradient, and does not keep the optimizer alive."""
        owner = weakref.ref(self)

        def push(_: torch.nn.Parameter) -> None:
            found = owner()
            if found is not None and found._overlaps:
                found._push(index)
        return push

    def _push(self, index: int) -> None:
        if not self._pending:  # else the pushes under way read the rates
            self._rates.update(self.param_groups)
        self._show_again([index])
        with torch.no_grad():
            self._take_gradients([index])
        self._versions[index] = self._gradients[index]._version
        self._pending.append(self.store.push_async(self._keys[index], self._arrays[index],
                                                   priority=-index))

    def _await_pushes(self) -> None:
        for pending in self._pending:
            error_of(pending)

    def _take_gradients(self, indices: Iterable[int]) -> None:
        """Copies gradients that the backward pass or the program replaced to the store's memory."""
        copied, copies = [], []
        for index in indices:
            param, gradient = self._params[index], self._gradients[index]
            given = param.grad
            if given is None:
                gradient.zero_()
            elif given.layout is not torch.strided:
                gradient.copy_(given.to_dense())
            elif given is not gradient and given.data_ptr() != gradient.data_ptr():
                copied.append(given)
                copies.append(gradient)
            param.grad = gradient
        if copied:
            torch._foreach_copy_(copies, copied)

    def _given(self) -> list[int]:
        """The parameters that a step updates: those with a gradient, as in torch."""
        if self._finds_unused:
            return list(range(len(self._params)))
        return [index for index, param in enumerate(self._params) if param.grad is not None]

    def _gradients_on_gpu(self, indices: list[int]) -> list[torch.Tensor]:
        """Gradients in place. A push reads them in torch's stream before their memory is reused."""
        gradients = []
        for index in indices:
            param = self._params[index]
            given = param.grad
            if given is None:
                given = torch.zeros_like(param)
            elif given.layout is not torch.strided:
                given = given.to_dense()
            if given.requires_grad:  # after backward(create_graph=True)
                given = given.detach()
            gradients.append(given if given.is_contiguous() else given.contiguous())
        return gradients

    @contextlib.contextmanager
    def no_push(self) -> Iterator[None]:
        """A context whose backward passes only add gradients. The first one after it pushes."""
        before, self._overlaps = self._overlaps, False
        try:
            yield
        finally:
            self._overlaps = before

    @contextlib.contextmanager
    def _without_rates(self) -> Iterator[None]:
        self._await_pushes()  # they read the factors
        with self._rates.left_out(self.param_groups):
            yield

    @property
    def state(self) -> Any:  # type: ignore[override]
        """Copies of the store's states by parameter, with torch's names. Local."""
        if not self._is_made:
            return self.__dict__.setdefault("_first_state", {})
        return {param: state_of(self, index) for index, param in enumerate(self._params)}

    @state.setter
    def state(self, given: Any) -> None:
        """torch sets an empty state when the optimizer is made; later states come by
        load_state_dict()."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes states and rates from a state_dict() of this class, or of torch's optimizer of the
        same name. Collective: ranks load the same, and compare it.

        Raises InvalidArgumentError, on all ranks, for other groups, options or states than this
        optimizer has, and MismatchError; nothing has changed then.
        """
        load_into(self, state_dict)

    def _refuse_scaler(self) -> None:
        found = [name for name in ("grad_scale", "found_inf") if name in self.__dict__]
        for name in found:
            delattr(self, name)
        if found:
            raise InvalidArgumentError(
                "Optimizer.step: a GradScaler looks at the gradients of this rank, and would skip "
                "the step of one rank alone; take the option loss_scale=\"dynamic\", and multiply "
                "the loss by optimizer.store.loss_scale")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Sums the gradients over all ranks and updates the parameters. Collective.

        A parameter without a gradient stays as it is, with its states; ranks have gradients of the
        same parameters, or all raise MismatchError. With find_unused_parameters they need not.
        """
        self._refuse_scaler()
        if self._is_closed:
            raise InvalidArgumentError(
                "Optimizer.step: it is closed, by close() or by a newer Optimizer of one of its "
                "parameters; make one for all of them")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._overlaps:
            self._show_again(range(len(self._params)))
            end_pushes(self)
            return loss
        self._rates.update(self.param_groups)
        carry_out_beside()
        self._use_stream()
        self._show_again(range(len(self._params)))
        given = self._given()
        if not given:
            self.store.barrier()  # ranks that push instead are told, and this one as well
            return loss
        keys = [self._keys[index] for index in given]
        if self._on_gpu:
            self.store.push(keys, self._gradients_on_gpu(given))
            return loss
        self._take_gradients(given)
        arrays = [self._arrays[index] for index in given]
        if self._goes_on:
            self.store.push_async(keys, arrays).wait()
        else:
            self.store.push(keys, arrays)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients; or, with `set_to_none` False, makes them zero."""
        if set_to_none:
            for param in self._params:
                param.grad = None
            return
        for param, gradient in zip(self._params, self._gradients):
            if param.grad is not None:
                param.grad = gradient
        gradients = [param.grad for param in self._params if param.grad is not None]
        if gradients:
            torch._foreach_zero_(gradients)

    def save(self, directory: str, metadata: dict[str, str] | None = None) -> None:
        """Saves parameters and states as a generation of a checkpoint. Collective."""
        self._use_stream()
        with self._without_rates():
            self._show_again(range(len(self._params)))
            self.store.save(directory, metadata or {})

    def snapshot_when_due(self, directory: str, metadata: dict[str, str] | None = None) -> bool:
        """KVStore.snapshot_when_due(): for the end of each step. Collective."""
        self._use_stream()
        with self._without_rates():
            return self.store.snapshot_when_due(directory, metadata or {})

    def load(self, directory: str, may_be_absent: bool = False,
             other_options: bool = False) -> dict[str, Any]:
        """Loads the newest whole generation; the result is that of KVStore.load(). Collective.

        Groups have the weight decay that they were saved with, or `other_options` is True.
        """
        self._use_stream()
        with self._without_rates():
            found = self.store.load(directory, may_be_absent=may_be_absent,
                                    other_options=other_options)
        self._show_replicas()
        return dict(found)
