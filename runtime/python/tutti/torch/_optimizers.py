# SPDX-License-Identifier: Apache-2.0
"""The optimizers of torch.optim, run by the store: torch's arguments, formulas and states."""

from __future__ import annotations

import inspect
from typing import Any, Callable

from ._optimizer import Optimizer
from ._rules import RULES, TorchRule


def _init(rule: TorchRule) -> Callable[..., None]:
    def __init__(self: Any, params: Any, *args: Any, **options: Any) -> None:
        own, more = rule.split(options)
        Optimizer.__init__(self, params, rule.name, defaults=rule.defaults(*args, **own), **more)

    return __init__


def _like(name: str) -> Any:
    rule = RULES[name]
    text = (f"torch.optim.{name} over all ranks: its arguments, formula and states, and those of "
            "Optimizer beside (store, overlap, clip_global_norm, ...). Collective.")
    made = type(name, (Optimizer,), {"__doc__": text, "__module__": "tutti.torch",
                                     "__init__": _init(rule), "_torch_rule": rule})
    _, *known = rule.signature.parameters.values()  # without self
    more = inspect.Parameter("more", inspect.Parameter.VAR_KEYWORD)
    made.__signature__ = inspect.Signature([*known, more])  # type: ignore[attr-defined]
    return made


SGD = _like("SGD")
Adam = _like("Adam")
AdamW = _like("AdamW")
NAdam = _like("NAdam")
RMSprop = _like("RMSprop")
Adagrad = _like("Adagrad")
Adadelta = _like("Adadelta")
Adamax = _like("Adamax")
