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
        factor = float(_read(self.name, "rescale_grad", more.get("rescale_grad", 1.0 / ranks), 1.0))
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


_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_STORES_NAMES = {"learning_rate": "lr", "epsilon": "eps"}


def _read(owner: str, name: str, given: Any, default: Any) -> Any:
    """The value of an option; text is read as what its default is."""
    if not isinstance(given, str):
        return given
    try:
        if default is None and given.lower() == "none":
            return None
        if default is None or isinstance(default, bool):
            return _TRUTH[given.lower()]
        if not isinstance(default, tuple):
            return float(given)
        first, second = map(float, given.split(":"))
        return first, second
    except (KeyError, ValueError):
        expected = ("a number, another, such as 0.9:0.999" if isinstance(default, tuple) else
                    "a number" if isinstance(default, float) else "true or false")
        raise InvalidArgumentError(
            f"optimizer {owner}: {name}={given}: expected {expected}") from None


def _with_words(name: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name alone, and all options, of which "NAME,option=value" has some."""
    plain, *words = name.split(",")
    given = dict(options)
    for word in words:
        option, _, value = word.partition("=")
        if not option or "=" not in word:
            raise InvalidArgumentError(f"optimizer {plain}: expected option=value between commas, "
                                       f"found '{word}'")
        if option in given:
            raise InvalidArgumentError(f"optimizer {plain}: the option '{option}' is given twice")
        given[option] = value
    return plain, given


def _adamw(given: dict[str, Any]) -> dict[str, Any]:
    """The options of Optimizer for torch's AdamW, from torch's names and those of the store."""
    rule = RULES["AdamW"]
    _, _, *known = rule.signature.parameters.values()  # without self and params
    defaults = {option.name: option.default for option in known}
    own: dict[str, Any] = {}
    betas = list(defaults["betas"])
    for index, beta in enumerate(("beta1", "beta2")):
        if beta in given:
            betas[index] = float(_read("adamw", beta, given[beta], 0.0))
            own["betas"] = tuple(betas)
    more: dict[str, Any] = {}
    for name, value in given.items():
        torchs = _STORES_NAMES.get(name, name)
        if torchs in own:
            raise InvalidArgumentError(f"optimizer adamw: the option '{torchs}' is given twice")
        if torchs in defaults:
            own[torchs] = _read("adamw", name, value, defaults[torchs])
        elif name == "defaults":  # carries torch's options from here on
            raise InvalidArgumentError("optimizer adamw: unknown option 'defaults'")
        elif name not in ("beta1", "beta2"):
            more[name] = value
    return {**more, "defaults": rule.defaults(**own)}


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
    plain, given = _with_words(name, options)
    for option, default in (("multi_precision", False), ("clip_global_norm", None),
                            ("loss_scale", None)):  # which Optimizer itself looks at
        text = given.get(option)
        if isinstance(text, str) and (default is not None or text.lower() == "none"):
            given[option] = _read(plain, option, text, default)
    if plain.lower() != "adamw":
        return None, plain, given
    return RULES["AdamW"], RULES["AdamW"].name, _adamw(given)
