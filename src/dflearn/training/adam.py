"""An optimizer's step, with less around it where it is Adam's: torch's own numbers, bit for bit, in half of the time.

torch looks at every step, and for every parameter, for what most runs do not have. A step of Adam without any of that is
seven operations on the lists of parameters and moments: those of torch, in its order.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim import optimizer as hooks

# What the short way does not know; a group that asks for one of them goes torch's.
OPTIONS = ("amsgrad", "maximize", "foreach", "fused", "capturable", "differentiable", "weight_decay")


def zero_grad(optimizer: torch.optim.Optimizer) -> None:
    """`optimizer.zero_grad()`; its parameters lose their gradients."""
    if type(optimizer).zero_grad is not torch.optim.Optimizer.zero_grad or "zero_grad" in optimizer.__dict__:
        optimizer.zero_grad()
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def take_step(optimizer: torch.optim.Optimizer) -> None:
    """`optimizer.step()`."""
    plan = _plan(optimizer)
    if plan is None:
        optimizer.step()
        return
    for group, number, parameters, gradients, first, second in plan:
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        size = torch._foreach_sqrt(second)
        torch._foreach_div_(size, math.sqrt(1 - beta2**number))
        torch._foreach_add_(size, group["eps"])
        with torch.no_grad():
            torch._foreach_addcdiv_(parameters, first, size, -(group["lr"] / (1 - beta1**number)))
    optimizer._opt_called = True  # type: ignore[attr-defined]  # what a scheduler looks for


def _plan(optimizer: torch.optim.Optimizer) -> list[Any] | None:
    """Per group: itself, the number of this step, parameters, gradients, first and second moments. None: torch's way."""
    if type(optimizer) is not torch.optim.Adam or _watched(optimizer):
        return None
    state, plan, counts = optimizer.state, [], []
    for group in optimizer.param_groups:
        if any(group.get(name) for name in OPTIONS) or isinstance(group["lr"], Tensor):
            return None
        parameters, gradients, first, second = group["params"], [], [], []
        numbers = set()
        for parameter in parameters:
            gradient, own = parameter.grad, state.get(parameter)
            if gradient is None or not own or not parameter.is_cpu or gradient.is_sparse or parameter.is_complex():
                return None
            gradients.append(gradient)
            first.append(own["exp_avg"])
            second.append(own["exp_avg_sq"])
            counts.append(own["step"].numpy())
            numbers.add(float(counts[-1]))
        if len(numbers) != 1:  # parameters that joined later
            return None
        plan.append((group, numbers.pop() + 1.0, parameters, gradients, first, second))
    for count in counts:
        count += 1  # in the tensor's memory
    return plan


def _watched(optimizer: torch.optim.Optimizer) -> bool:
    """Whether somebody wants to be told of a step: hooks, or a `step` that was put in place of its own, but for a scheduler's."""
    own = optimizer.__dict__.get("step")
    return bool(
        (own is not None and not getattr(own, "_wrapped_by_lr_sched", False))
        or optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or hooks._global_optimizer_pre_hooks
        or hooks._global_optimizer_post_hooks
    )
