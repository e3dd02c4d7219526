# SPDX-License-Identifier: Apache-2.0
"""The store's rules for the optimizers of torch, which compute the same, and their states."""

from __future__ import annotations

import inspect
from typing import Any, Callable

import torch

from .. import InvalidArgumentError

# Options that choose how torch computes, and do not change the result.
_HOW = {"capturable", "differentiable", "foreach", "fused"}
# Options that param_groups may change from step to step, beside the first of betas.
_PER_STEP = {"lr", "weight_decay", "momentum"}


def _plain(value: Any) -> Any:
    """Numbers of NumPy as numbers of Python, which torch requires."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    is_number = getattr(value, "ndim", None) == 0 and not isinstance(value, torch.Tensor)
    return value.item() if is_number else value


class TorchRule:
    """One optimizer of torch.optim. states: the names of its states, in the store's order."""

    def __init__(self, name: str, states: Callable[[dict[str, Any]], list[str]],
                 dropped: tuple[str, ...] = ()):
        self.torch_name = name
        self.name = f"torch_{name.lower()}"
        self.states_of = states
        self.has_count = name != "SGD"
        self.signature = inspect.signature(getattr(torch.optim, name).__init__)
        self._dropped = dropped

    def defaults(self, *args: Any, **options: Any) -> dict[str, Any]:
        """All options of torch's optimizer, with its defaults. Raises what torch raises."""
        found: dict[str, Any] = getattr(torch.optim, self.torch_name)(
            [torch.zeros(1)], *map(_plain, args),
            **{name: _plain(value) for name, value in options.items()}).defaults
        for name in ("capturable", "differentiable"):
            if found.get(name):
                raise InvalidArgumentError(
                    f"{self.torch_name}: {name}=True has no counterpart here: an update is one "
                    "call of the library, which is neither captured nor differentiated; leave it "
                    "out")
        return {**found, "lr": float(found["lr"])}

    def split(self, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Torch's options, and those of the store."""
        known = self.signature.parameters
        return ({name: value for name, value in options.items() if name in known},
                {name: value for name, value in options.items() if name not in known})

    def store_options(self, defaults: dict[str, Any], more: dict[str, Any],
                      ranks: int) -> dict[str, Any]:
        """The options of the store's optimizer. A gradient is the mean over the ranks."""
        options: dict[str, Any] = {"learning_rate": defaults["lr"]}
        for name, value in defaults.items():
            if name == "betas":
                options.update(beta1=float(value[0]), beta2=float(value[1]))
            elif name == "eps":
                options["epsilon"] = float(value)
            elif name not in _HOW and name not in ("lr", "maximize", *self._dropped):
                options[name] = value if isinstance(value, bool) else float(value)
        for name in more:
            if name in options:
                raise TypeError(f"{self.torch_name}: expected torch's options; got {name!r}, "
                                "which is the store's name of one of them")
        factor = float(more.get("rescale_grad", 1.0 / ranks))
        return {**options, **more, "rescale_grad": -factor if defaults["maximize"] else factor}

    @staticmethod
    def fixed(defaults: dict[str, Any]) -> dict[str, Any]:
        """The options that param_groups may not change."""
        return {name: value[1:] if name == "betas" else value for name, value in defaults.items()
                if name not in _HOW and name not in _PER_STEP}


def _adam_states(defaults: dict[str, Any]) -> list[str]:
    largest = ["max_exp_avg_sq"] if defaults["amsgrad"] else []
    return ["exp_avg", "exp_avg_sq", *largest]


def _rmsprop_states(defaults: dict[str, Any]) -> list[str]:
    mean = ["grad_avg"] if defaults["centered"] else []
    return ["square_avg", *mean, *(["momentum_buffer"] if defaults["momentum"] else [])]


RULES = {rule.torch_name: rule for rule in (
    TorchRule("SGD", lambda defaults: ["momentum_buffer"] if defaults["momentum"] else []),
    TorchRule("Adam", _adam_states),
    TorchRule("AdamW", _adam_states, ("decoupled_weight_decay",)),
    TorchRule("NAdam", lambda _: ["exp_avg", "exp_avg_sq"]),
    TorchRule("Adamax", lambda _: ["exp_avg", "exp_inf"]),
    TorchRule("RMSprop", _rmsprop_states),
    TorchRule("Adagrad", lambda _: ["sum"]),
    TorchRule("Adadelta", lambda _: ["square_avg", "acc_delta"]))}


def adamw_of_words(options: dict[str, Any]) -> dict[str, Any]:
    """Translates the store's names of adamw's options to torch's."""
    own = dict(options)
    named: dict[str, Any] = {}
    for ours, torchs in (("learning_rate", "lr"), ("epsilon", "eps")):
        if ours in own:
            named[torchs] = float(own.pop(ours))
    if "beta1" in own or "beta2" in own:
        named["betas"] = (float(own.pop("beta1", 0.9)), float(own.pop("beta2", 0.999)))
    if "weight_decay" in own:
        named["weight_decay"] = float(own.pop("weight_decay"))
    return {**own, **named}


def named(name: Any, options: dict[str, Any]) -> tuple[TorchRule | None, Any, dict[str, Any]]:
    """The rule for torch's optimizer of this name, if it is one, such as "adamw"; the store's name;
    and the options."""
    if isinstance(name, type):
        like = f"tutti.torch.{name.__name__}(params, ...)"
        raise InvalidArgumentError(
            f"Optimizer: expected a name, such as \"sgd\"; got the class {name.__name__}; take "
            f"{like if name.__name__ in RULES else 'a name of tutti.optimizer_names()'}")
    if not isinstance(name, str):
        return None, name, options
    plain, *words = name.split(",")
    if plain.lower() != "adamw":
        return None, name, options
    given = {**dict(word.split("=", 1) for word in words if "=" in word), **options}
    rule = RULES["AdamW"]
    own, more = rule.split(adamw_of_words(given))
    return rule, rule.name, {**more, "defaults": rule.defaults(**own)}
