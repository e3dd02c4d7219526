# SPDX-License-Identifier: Apache-2.0
"""Rates and decays that param_groups change from step to step, for the store's optimizer."""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import Any, Iterator

from .. import InvalidArgumentError, optimizer
from .._core import Optimizer as Rule

_Groups = list[dict[str, Any]]
# Options of optimizers, here or in torch, that must be equal in all groups. Other items of a group,
# such as its name, are the program's own.
_OF_ALL_GROUPS = {
    "alpha", "amsgrad", "beta", "beta1", "beta2", "betas", "bias_correction", "centered",
    "clip_global_norm", "clip_gradient", "dampening", "decoupled_weight_decay", "eps", "epsilon",
    "eta", "initial_accumulator_value", "lambda", "lambda1", "learning_rate", "loss_scale",
    "lr_decay", "maximize", "momentum", "momentum_decay", "multi_precision", "nesterov",
    "rescale_grad", "rho", "schedule", "schedule_decay", "seed", "wd_lh"}


def other_options(group: Any, options: dict[str, Any], defaults: dict[str, Any]) -> list[str]:
    """The options of all groups that this group has otherwise than an optimizer that was made with
    `options`, and whose groups begin with `defaults`."""
    names = _OF_ALL_GROUPS & set(group) if isinstance(group, dict) else set()
    return [name for name in sorted(names)
            if (group[name] or options.get(name) or name in defaults)
            and group[name] != defaults.get(name)]


class Rates:
    """The rates of an optimizer's groups.

    options: those that the rule was made with. keys: those of all parameters, group after group.
    fixed: the options that no group of torch's optimizer may change; `betas` without the first of
        them.
    """

    def __init__(self, rule: Rule, options: dict[str, Any], keys: list[int | str],
                 defaults: dict[str, Any], fixed: dict[str, Any]):
        self._rule = rule
        self._options = options
        self._keys = keys
        self._fixed = fixed
        self._is_nadam = "momentum_decay" in defaults
        self._momentum = self._first_momentum = self._momentum_of(defaults)
        self._factors: list[tuple[float, float]] = []
        self._rates: list[tuple[float, float]] = []

    @staticmethod
    def _momentum_of(group: dict[str, Any]) -> float | None:
        if "betas" in group:
            return float(group["betas"][0])
        return float(group["momentum"]) if "momentum" in group else None

    def _asked(self, groups: _Groups) -> list[tuple[float, float]]:
        """The rate and the weight decay of each group, as they are now."""
        return [(float(group["lr"]), float(group.get("weight_decay", self._rule.weight_decay)))
                for group in groups]

    def update(self, groups: _Groups) -> None:
        """Sets the options that have changed since the last step. Raises InvalidArgumentError."""
        self._require_fixed(groups, "step")
        asked = self._asked(groups)
        if asked != self._rates:
            base, factors = self._factors_for(asked, "Optimizer")
            if base != self._rule.learning_rate:
                self._rule.learning_rate = base
            self._set_factors(groups, factors)
            self._rates = asked
        momentum = self._momentum_for(groups, "step")
        if momentum is not None and momentum != self._momentum:
            self._rule.set_momentum(momentum)
            self._momentum = momentum

    def require_possible(self, groups: _Groups, what: str) -> None:
        """Raises InvalidArgumentError, in the name of the method `what`, if update() would; changes
        nothing."""
        self._require_fixed(groups, what)
        base, _ = self._factors_for(self._asked(groups), f"Optimizer.{what}")
        changed = {"learning_rate": base}
        momentum = self._momentum_for(groups, what)
        if momentum is not None and momentum != self._momentum:
            changed["beta1" if "beta1" in self._options else "momentum"] = momentum
        rule = optimizer(self._rule.name, **{**self._options, **changed})
        if rule._num_states != self._rule._num_states:
            raise InvalidArgumentError(
                f"Optimizer.{what}: expected momentum={self._momentum:g}, as the optimizer was "
                f"made with; got {momentum:g} in a group, and one of 0 has no state; make another "
                "optimizer")

    def _require_fixed(self, groups: _Groups, what: str) -> None:
        for group in groups:
            for name, value in self._fixed.items():
                now = group.get(name, value)
                if name == "betas" and now is not value:
                    now = tuple(now[1:])
                if now != value:
                    raise InvalidArgumentError(
                        f"Optimizer.{what}: expected {name}={_text(name, value)}, as the optimizer "
                        f"was made with; got {_text(name, now)} in a group; all groups have it "
                        "alike, and it stays: make another optimizer")

    def _momentum_for(self, groups: _Groups, what: str) -> float | None:
        """The momentum that the groups ask for; None if they ask for none."""
        if self._momentum is None:
            return None
        asked = {self._momentum_of(group) for group in groups} - {None}
        if len(asked) > 1:
            raise InvalidArgumentError(
                f"Optimizer.{what}: expected one momentum (the first of betas) for all groups; got "
                f"{sorted(map(str, asked))}")
        if self._is_nadam and asked and asked != {self._momentum}:
            raise InvalidArgumentError(
                f"Optimizer.{what}: NAdam's betas stay as they are here, because its momenta "
                "follow from the count of updates; take cycle_momentum=False")
        return asked.pop() if asked else None

    def _factors_for(self, asked: list[tuple[float, float]],
                     owner: str) -> tuple[float, list[tuple[float, float]]]:
        """The rate of the rule, and each group's factors of it and of the weight decay."""
        rule = self._rule
        base = max(rate for rate, _ in asked)  # not zero unless all are
        if rule.schedule is not None:
            base = rule.learning_rate
            if any(rate != base for rate, _ in asked):
                raise InvalidArgumentError(
                    f"{owner}: schedule={rule.schedule} decides the rate of all groups, from "
                    f"learning_rate={base:g} on; got groups with lr={[rate for rate, _ in asked]}; "
                    "leave lr as it is, or take a schedule of torch")
        decay = rule.weight_decay
        if decay == 0 and any(own != 0 for _, own in asked):
            raise InvalidArgumentError(
                f"{owner}: the weight decay of groups is a factor of the option weight_decay, "
                f"which is 0; got groups with {[own for _, own in asked]}; give that option when "
                "it is made")
        return base, [(rate / base if base else 1.0, own / decay if decay else 1.0)
                      for rate, own in asked]

    def _set_factors(self, groups: _Groups, factors: list[tuple[float, float]]) -> None:
        keys = iter(self._keys)
        known = self._factors or [(1.0, 1.0)] * len(groups)
        self._factors = [(math.nan, math.nan)] * len(known)  # sets all anew if a call raises
        for group, before, now in zip(groups, known, factors):
            for key in itertools.islice(keys, len(group["params"])):
                if now[0] != before[0]:
                    self._rule.set_lr_mult(key, now[0])
                if now[1] != before[1]:
                    self._rule.set_wd_mult(key, now[1])
        self._factors = factors

    @contextlib.contextmanager
    def left_out(self, groups: _Groups) -> Iterator[None]:
        """A context without the factors of rates and a cycled momentum, which are no part of a
        checkpoint, just as the rate itself."""
        factors, momentum = self._factors, self._momentum
        try:
            self._set_factors(groups, [(1.0, decay) for _, decay in factors])
            if momentum != self._first_momentum and self._first_momentum is not None:
                self._rule.set_momentum(self._first_momentum)
            yield
        finally:
            self._set_factors(groups, factors)
            if momentum != self._first_momentum and momentum is not None:
                self._rule.set_momentum(momentum)


def _text(name: str, value: Any) -> str:
    return f"(..., {', '.join(map(str, value))})" if name == "betas" else str(value)
