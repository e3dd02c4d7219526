# SPDX-License-Identifier: Apache-2.0
"""Translates the store's states to those of torch's optimizers, and back.

Where an optimizer of torch computes the same, the names, shapes and meanings are torch's, so that
either can continue from a checkpoint. Other rules have "RULE_0", "RULE_1", ... and "step". 16-bit
parameters also have their float32 weight, as "master_weight".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .. import Error, InvalidArgumentError
from ._rates import other_options

if TYPE_CHECKING:
    from ._optimizer import Optimizer

_MASTER = "master_weight"


def _names(optimizer: Optimizer, param: torch.Tensor) -> list[str]:
    rule = optimizer._torch_rule
    if rule is not None:
        names = rule.states_of(optimizer.defaults)
    else:
        names = [f"{optimizer._rule.name}_{index}" for index in range(optimizer._rule._num_states)]
    return [*names, _MASTER] if param.element_size() == 2 else list(names)


def _is_counted(optimizer: Optimizer) -> bool:
    return optimizer._torch_rule is None or optimizer._torch_rule.has_count


def _product_of_momenta(defaults: dict[str, Any], count: int) -> float:
    """NAdam's mu_product after so many updates."""
    product = 1.0
    for t in range(1, count + 1):
        product *= defaults["betas"][0] * (1 - 0.5 * 0.96 ** (t * defaults["momentum_decay"]))
        if product == 0:
            break
    return product


def _scalar(value: float) -> torch.Tensor:
    is_double = torch.get_default_dtype() is torch.float64
    return torch.tensor(value, dtype=torch.float64 if is_double else torch.float32)


def state_of(optimizer: Optimizer, index: int) -> dict[str, Any]:
    """Copies of one parameter's states; before its first update, of their initial values."""
    param, defaults = optimizer._params[index], optimizer.defaults
    count, arrays = optimizer.store._states_of(optimizer._keys[index])
    state: dict[str, Any] = {}
    if _is_counted(optimizer):
        state["step"] = _scalar(float(count))
    rule = optimizer._torch_rule
    if rule is not None and rule.torch_name == "NAdam":
        state["mu_product"] = _scalar(_product_of_momenta(defaults, count))
    start = 0.0
    if rule is not None and rule.torch_name == "Adagrad":
        start = float(defaults["initial_accumulator_value"])
    names = _names(optimizer, param)
    if count:
        state.update((name, torch.from_dlpack(array).clone())
                     for name, array in zip(names, arrays))
        return state
    dtype = torch.float32 if param.element_size() == 2 else param.dtype
    for name in names:
        state[name] = (param.detach().float().clone() if name == _MASTER
                       else torch.full_like(param.detach(), start, dtype=dtype))
    return state


def load_into(optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
    """Carries out Optimizer.load_state_dict()."""
    given = dict(state_dict)
    for hook in optimizer._optimizer_load_state_dict_pre_hooks.values():
        given = hook(optimizer, given) or given
    optimizer._await_pushes()
    optimizer.store._set_states(_read_on_all(optimizer, given))
    for group, saved in zip(optimizer.param_groups, given["param_groups"]):
        group.update({name: value for name, value in saved.items()
                      if name not in ("params", "param_names")})
        group["lr"] = float(group["lr"])
    for done in optimizer._optimizer_load_state_dict_post_hooks.values():
        done(optimizer)


def _read_on_all(optimizer: Optimizer, given: dict[str, Any]) -> dict[Any, Any]:
    """Reads the given states; raises on all ranks if one cannot read them."""
    found: dict[Any, Any] = {}
    own: list[InvalidArgumentError] = []

    def read() -> None:
        try:
            found.update(_states_in(optimizer, given))
        except InvalidArgumentError as error:
            own.append(error)
            raise

    try:
        optimizer.store.agree(read)
    except Error:
        if own:
            raise own[0] from None
        raise
    return found


def _states_in(optimizer: Optimizer, given: dict[str, Any]) -> dict[Any, Any]:
    """The given states by key. Raises InvalidArgumentError."""
    saved, rule = given["param_groups"], optimizer._rule
    expected, sizes = ([len(group["params"]) for group in groups]
                       for groups in (optimizer.param_groups, saved))
    if expected != sizes:
        raise InvalidArgumentError(
            f"Optimizer.load_state_dict: expected groups of {expected} parameters; got {sizes}")
    optimizer._rates.require_possible(
        [{**group, **options} for group, options in zip(optimizer.param_groups, saved)],
        "load_state_dict")
    if rule.schedule is not None and not _is_counted(optimizer):
        raise InvalidArgumentError(
            f"Optimizer.load_state_dict: schedule={rule.schedule} goes by counts of updates, which "
            f"the states of {rule.name} do not have; take save() and load()")
    places = [place for group in saved for place in group["params"]]
    found = {optimizer._keys[index]: _state_from(optimizer, index,
                                                 dict(given["state"].get(place, {})))
             for index, place in enumerate(places)}
    _require_options(optimizer, saved)
    return found


def _require_options(optimizer: Optimizer, saved: list[dict[str, Any]]) -> None:
    """Refuses options that the optimizer was not made with, and would not look at."""
    for group in saved:
        others = [f"{name}={group[name]}"
                  for name in other_options(group, optimizer._options, optimizer.defaults)
                  if name not in optimizer.defaults]
        if others:
            raise InvalidArgumentError(
                f"Optimizer.load_state_dict: expected options of {optimizer._rule.name} as it was "
                f"made; got {', '.join(others)} in a group; load it into the optimizer that has "
                "these")


def _state_from(optimizer: Optimizer, index: int,
                given: dict[str, Any]) -> tuple[int, list[Any]]:
    param = optimizer._params[index]
    given = {name: value for name, value in given.items() if value is not None}
    names = _names(optimizer, param)
    if not given:
        return 0, []
    expected = {*names, *(["step"] if _is_counted(optimizer) else [])}
    product = given.pop("mu_product", None)
    found = set(given) | ({_MASTER} & expected)  # torch's optimizers do not have it
    if found != expected:
        raise InvalidArgumentError(
            f"Optimizer.load_state_dict: parameter {optimizer._keys[index]}: "
            f"{optimizer._rule.name} has {', '.join(sorted(expected))}; got "
            f"{', '.join(sorted(given)) or 'none'}; load it into the optimizer that has these, "
            "such as tutti.torch.AdamW for torch.optim.AdamW, with the same options")
    tensors = [torch.as_tensor(given[name]) for name in names if name in given]
    for name, tensor in zip((name for name in names if name in given), tensors):
        if tensor.shape != param.shape:
            raise InvalidArgumentError(
                f"Optimizer.load_state_dict: parameter {optimizer._keys[index]}: expected {name} "
                f"of {tuple(param.shape)}; got {tuple(tensor.shape)}")
    count = int(given["step"]) if "step" in given else int(any(bool(t.any()) for t in tensors))
    if product is not None:
        _require_product(optimizer, float(product), count)
    dtype = torch.float32 if param.element_size() == 2 else param.dtype
    arrays = [tensor.detach().to("cpu", dtype).contiguous() for tensor in tensors]
    return (count, arrays) if count else (0, [])


def _require_product(optimizer: Optimizer, product: float, count: int) -> None:
    """Requires the mu_product of NAdam that follows from the count of updates."""
    expected = _product_of_momenta(optimizer.defaults, count)
    if abs(product - expected) > 1e-4 * expected + 1e-30:
        raise InvalidArgumentError(
            f"Optimizer.load_state_dict: expected mu_product {expected:g} after {count} updates "
            f"with these betas and momentum_decay; got {product:g}: they were others then")
