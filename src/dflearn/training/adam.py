"""An optimizer's step, with less around it where it is Adam's: torch's own numbers, bit for bit, in half of the time.

torch looks at every step, and for every parameter, for what most runs do not have. A step of Adam without any of that is
seven operations on the lists of parameters and moments: those of torch, in its order and with its rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.optim import optimizer as hooks

# What the short way does not know; a group that asks for one of them goes torch's.
OPTIONS = ("amsgrad", "maximize", "foreach", "fused", "capturable", "differentiable", "weight_decay")
SMALL = 32768  # numbers that torch does not share out among threads
DTYPES = (torch.float32, torch.float64)  # that numpy has too


class Steps:
    """The steps of an optimizer, as long as its state and its `step` stay the same objects: an epoch, say."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self._adam = type(optimizer) is torch.optim.Adam and _bare(optimizer.step) is STEP
        self._clears = getattr(optimizer.zero_grad, "__func__", None) is torch.optim.Optimizer.zero_grad
        self._groups: list[_Group] | None = None  # known from the second step on, when there are moments

    def clear(self) -> None:
        """`optimizer.zero_grad()`."""
        if self._clears:
            for group in self.optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
        else:
            self.optimizer.zero_grad()

    def take(self) -> None:
        """`optimizer.step()`."""
        if not self._adam or _asks_for_more(self.optimizer):
            self.optimizer.step()
            return
        if self._groups is None or len(self._groups) != len(self.optimizer.param_groups):
            self._groups = _groups_of(self.optimizer)
        gradients = None if self._groups is None else _gradients(self._groups)
        if gradients is None:
            self._groups = None
            self.optimizer.step()
            return
        assert self._groups is not None
        for group, own in zip(self._groups, gradients, strict=True):
            group.step(own)
        self.optimizer._opt_called = True  # type: ignore[attr-defined]  # what a scheduler looks for


class _Group(NamedTuple):
    """A group of parameters: its options, the parameters and what they are without autograd, moments and numbers of steps.

    counts: views of the optimizer's state, in its memory. small: whether torch would not share its operations out among threads.
    """

    options: dict[str, Any]
    parameters: list[Tensor]
    values: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]
    counts: list[np.ndarray]
    small: bool

    def step(self, gradients: list[Tensor]) -> None:
        options, first, second = self.options, self.first, self.second
        number, (beta1, beta2) = self.counts[0].item() + 1.0, options["betas"]
        for count in self.counts:
            count.fill(number)
        root, eps = (1 - beta2**number) ** 0.5, options["eps"]  # torch's root: `math.sqrt` may round otherwise
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        # What IEEE 754 says how to round is quicker to call in numpy; square roots and sums of products round as torch likes.
        if self.small:
            for part in second:
                np.multiply(part.numpy(), beta2, out=part.numpy())
        else:
            torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        sizes = list(torch._foreach_sqrt(second))
        if self.small:
            for part in sizes:
                size = part.numpy()
                size /= root
                size += eps
        else:
            torch._foreach_div_(sizes, root)
            torch._foreach_add_(sizes, eps)
        torch._foreach_addcdiv_(self.values, first, sizes, -(options["lr"] / (1 - beta1**number)))


def _gradients(groups: list[_Group]) -> list[list[Tensor]] | None:
    """The gradients of each group; `None` where one is missing or sparse, or a parameter has moved to another place."""
    found = []
    for group in groups:
        own = []
        for parameter, value in zip(group.parameters, group.values, strict=True):
            gradient = parameter.grad
            if gradient is None or gradient.is_sparse or parameter.data_ptr() != value.data_ptr():
                return None
            own.append(gradient)
        found.append(own)
    return found


def _groups_of(optimizer: torch.optim.Optimizer) -> list[_Group] | None:
    """The groups as the short way wants them; `None` where they are not all so."""
    groups = []
    for options in optimizer.param_groups:
        parameters = options["params"]
        states: list[dict[str, Tensor]] = [optimizer.state.get(parameter, {}) for parameter in parameters]
        if not all(states) or not all(p.is_cpu and p.is_floating_point() and p.numel() for p in parameters):
            return None
        counts = [state["step"].numpy() for state in states]
        if len({float(count) for count in counts}) != 1:  # parameters that joined later
            return None
        first, second = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        small = sum(p.numel() for p in parameters) <= SMALL and {p.dtype for p in parameters} <= set(DTYPES)
        groups.append(_Group(options, parameters, [p.detach() for p in parameters], first, second, counts, small))
    return groups


def _asks_for_more(optimizer: torch.optim.Optimizer) -> bool:
    """Whether Adam has options that the short way does not know, or somebody wants to be told of its steps."""
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return True
    if hooks._global_optimizer_pre_hooks or hooks._global_optimizer_post_hooks:
        return True
    for group in optimizer.param_groups:
        for name in OPTIONS:
            if group.get(name):
                return True
        first, second = group["betas"]
        if isinstance(group["lr"], Tensor) or isinstance(first, Tensor) or isinstance(second, Tensor):
            return True
    return False


def _bare(step: Any) -> Any:
    """The function behind a `step`, out of what a scheduler and torch's profiler put around it: once each, so that what somebody
    else puts between them or around them is found."""
    step = getattr(step, "__func__", step)
    for mark in ("_wrapped_by_lr_sched", "hooked"):
        step = step.__wrapped__ if hasattr(step, mark) else step
    return step


STEP = _bare(torch.optim.Adam.step)
