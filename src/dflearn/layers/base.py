"""The contract of every layer: costs in, decision out, gradient back.

A layer is a differentiable map y → w and a pure function of (y, instance, start). `solve` answers with a `Solution`
whose decision carries the gradient; `forward` is its decision, after every status was checked.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.forward_ad import unpack_dual

from dflearn.errors import OptionError
from dflearn.program import Instance, Objective, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import (
    Solution,
    Solver,
    TakesStart,
    check_costs,
    check_instance,
    check_start_shape,
    numbers_of,
)
from dflearn.solvers.construction import FROM_PROGRAMS, Constructed, Conversion

NUMBERS = (torch.float32, torch.float64)  # that arrays hold as they are


class Layer(nn.Module, TakesStart, metaclass=Constructed):
    """y → w.  Subclasses write `_solve`, whose arguments have fitting shapes and whose costs are finite.

    Attributes:
        objective, program: obj(y, w), and the program behind the layer, where one is known.
        solver: the exact solver inside, where there is one.
        compiles_by_batch: whether kernels are compiled anew for batches of another size.
        annealed: names of the numbers that may be set anew while a model is trained; checkpoints keep them.
        moves_rows: whether the decision is differentiable in right-hand sides, bounds and q too; a program may predict right-hand sides.
        takes_q: whether instances may have a q.

    Examples:
        >>> layer = dfl.Smoothed(program, mu=1.0)
        >>> isinstance(layer, dfl.Layer), layer(predicted).shape, layer.solve(predicted).status.max()
        (True, torch.Size([40, 12]), tensor(0, dtype=torch.int8))
    """

    conversions: ClassVar[Mapping[str, Conversion]] = FROM_PROGRAMS
    program: Program | None = None
    solver: Solver | None = None
    compiles_by_batch: ClassVar[bool] = False
    annealed: ClassVar[tuple[str, ...]] = ()
    moves_rows: bool = False
    takes_q: ClassVar[bool] = False
    _warned: frozenset[str] = frozenset()

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, y: Tensor, instance: Instance | None = None, start: Tensor | None = None) -> Tensor:
        """y `(*batch, p)` → w `(*batch, n)`; an error names the first instance that has no decision."""
        return self.solve(y, instance, start).check().decision

    def solve(self, y: Tensor, instance: Instance | None = None, start: Tensor | None = None) -> Solution:
        """Decision, status, objective and residual of every instance; a new start if one was passed."""
        begun = perf_counter()
        later = isinstance(y, Tensor) and self._checks_later(y.device)
        batch = check_costs(y, self.objective, values=not later)
        check_instance(instance, batch)
        check_start_shape(start, batch, self.start_width)
        if instance is not None:
            self._check_instance(instance)
        if self.program is not None and self.program.predicts_rows:
            instance = self._realize(self.program, y, instance)
        return self._solve(y, instance, start).timed(perf_counter() - begun)

    def _checks_later(self, device: torch.device) -> bool:
        """Whether a NaN among costs on this device is found where they are solved."""
        return False

    def _warn_of_cpu(self, what: str) -> None:
        """Warn, once, that the CPU solves what is on a GPU."""
        if what not in self._warned:
            self._warned |= {what}
            warnings.warn(f"{what} (docs/how-to/gpu.md)", RuntimeWarning, stacklevel=6)

    def unsettled(self) -> bool:
        """Whether the last solve, if its answer is `deferred`, left instances unfinished; it waits for that solve. A new solve, which
        waits too, lets the CPU finish them."""
        return False

    def _check_instance(self, instance: Instance) -> None:
        """An error where the layer does not know what an instance asks for."""
        if instance.q is not None and not self.takes_q:
            raise OptionError(f"{type(self).__name__} takes no q of an instance: use Smoothed or DavisYin")
        lost = [name for name in instance.learned() if not self.moves(name)]
        if lost:
            remedy = "detach them, or use Smoothed with the squared regularizer, or DavisYin with gradient='implicit'"
            raise OptionError(f"{type(self).__name__} gives no gradient in the instance's {', '.join(lost)}: {remedy}")

    def moves(self, field: str) -> bool:
        """Whether the decision has a gradient in this field of an instance."""
        return self.moves_rows or field == "d"

    def _realize(self, program: Program, y: Tensor, instance: Instance | None) -> Instance | None:
        """The instance with the right-hand sides that y predicts; an error where a gradient through them is wanted in vain."""
        if y.requires_grad and torch.is_grad_enabled() and not self.moves_rows:
            raise OptionError(
                f"{program!r} has predicted right-hand sides, and {type(self).__name__} gives no gradient through those: "
                "use Smoothed, or DavisYin with gradient='implicit'; squared, not with the norm"
            )
        return program.realize(y, instance)

    @abstractmethod
    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution: ...

    def regularization(self, w: Tensor) -> Tensor:
        """Ω(w), where the layer minimizes obj(y, w) + Ω(w).  `(*batch, n)` → `(*batch,)`."""
        return w.new_zeros(w.shape[:-1])


def as_rows(x: Tensor, count: int, dtype: Any = None) -> np.ndarray:
    """`(*batch, k)` as a contiguous array `(count, k)` for the kernels: float64 or float32 as it is, or the dtype given."""
    rows = x.detach() if x.ndim == 2 else x.detach().reshape(count, x.shape[-1])
    if x.dtype not in NUMBERS:
        rows = rows.double()
    if not x.is_cpu:
        rows = rows.cpu()
    array = numbers_of(rows)
    return array if dtype is None and array.flags.c_contiguous else np.ascontiguousarray(array, dtype)


def in_shape(rows: np.ndarray, batch: torch.Size) -> Tensor:
    """Arrays of the kernels, `(count, …)`, as a tensor `(*batch, …)` on the same memory."""
    tensor = torch.from_numpy(rows)
    return tensor if len(batch) == 1 else tensor.reshape((*batch, *rows.shape[1:]))


def like(rows: np.ndarray, tensor: Tensor) -> Tensor:
    """Arrays of the kernels in float64, `(count, k)`, as a tensor `(*batch, k)` of the dtype and on the device of that one."""
    if tensor.dtype == torch.float32 and tensor.is_cpu:
        return in_shape(rows.astype(np.float32), tensor.shape[:-1])  # rounds as torch does, in less time
    return in_shape(rows, tensor.shape[:-1]).to(tensor)


def weight(mu: Any, layer: str, wanted: str, accepts: Callable[[float], bool]) -> float:
    """μ as a float that `accepts` takes; an error that says what is wanted otherwise."""
    try:
        value = float(mu)
    except (TypeError, ValueError) as error:
        raise OptionError(f"{layer} needs {wanted}, got {mu!r}") from error
    if not (math.isfinite(value) and accepts(value)):
        raise OptionError(f"{layer} needs {wanted}, got {mu}")
    return value


def one_of(name: str, value: Any, *choices: str) -> Any:
    """The value, which is one of the choices; an error that names them otherwise."""
    if value not in choices:
        raise OptionError(f"{name} is {', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}, got {value!r}")
    return value


class PositiveWeight:
    """A layer's attribute, finite and > 0, that may be set anew between two solves."""

    def __init__(self, symbol: str, remark: str = "") -> None:
        self.__doc__ = f"{symbol}; it may be set anew between two solves."
        self.remark = f" {remark}" if remark else ""

    def __set_name__(self, layer: type, name: str) -> None:
        self.name = name

    def __get__(self, layer: object | None, kind: type) -> Any:
        return self if layer is None else layer.__dict__["_" + self.name]

    def __set__(self, layer: object, value: float) -> None:
        wanted = f"a finite {self.name} > 0{self.remark}"
        layer.__dict__["_" + self.name] = weight(value, type(layer).__name__, wanted, lambda value: value > 0)


# -- gradients --------------------------------------------------------------------------------------------------------


class _Attached(torch.autograd.Function):
    """The one autograd function of all layers: a value whose gradient goes on to inputs."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, backward: Any, *inputs: Tensor) -> Tensor:
        out = value.view_as(value)
        ctx.own = backward
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (value,) = ctx.saved_tensors
        return gradient, None, *ctx.own(gradient, value)


def attached(value: Tensor, backward: Callable[[Tensor, Tensor], tuple[Tensor | None, ...]], *inputs: Tensor) -> Tensor:
    """The value, differentiable in the inputs too: `backward` turns a gradient in it, and itself, into those in the inputs; with
    gradients enabled where second derivatives are wanted."""
    same: Tensor = _Attached.apply(value, backward, *inputs)  # type: ignore[no-untyped-call]
    return same


def with_gradient(costs: Tensor, w: Tensor, backward: Callable[[Tensor, Tensor], Tensor], why: str = "") -> Tensor:
    """The decision w that belongs to the costs, differentiable.

    backward: turns a gradient in w, and w, into that in the costs, in differentiable operations; or else `why` is the error for
        second derivatives.
    """
    if not (costs.requires_grad and torch.is_grad_enabled()):
        refuse_tangent(costs)
        return w

    def in_costs(gradient: Tensor, decision: Tensor) -> tuple[Tensor]:
        slope = backward(gradient, decision)
        return (refusing(slope, decision, why) if why and torch.is_grad_enabled() else slope,)

    return attached(w.detach(), in_costs, costs)


def refuse_tangent(costs: Tensor) -> None:
    """An error where derivatives are carried forward (`torch.autograd.forward_ad`): the decision would silently have none."""
    if unpack_dual(costs).tangent is not None:
        remedy = "use backward(), torch.autograd.grad or torch.autograd.functional.jacobian"
        raise OptionError(f"layers have no derivatives in forward mode: {remedy}")


def symmetric(v: Tensor, decision: Tensor, matrix: Callable[[Tensor], Tensor]) -> Tensor:
    """J v with `matrix` for v → J v, J symmetric and constant near the decision: its derivative there is zero."""
    with torch.no_grad():
        product = matrix(v)
    if not torch.is_grad_enabled():
        return product
    return attached(
        product, lambda gradient, _: (symmetric(gradient, decision, matrix), torch.zeros_like(decision)), v, decision
    )


def applied(function: Callable[[np.ndarray], np.ndarray], v: Tensor) -> Tensor:
    """A function of arrays `(count, n)` for v `(*batch, n)`."""
    return like(function(as_rows(v, v.shape[:-1].numel(), np.float64)), v)


class FaceGradient(NamedTuple):
    """The gradient of a batch of solutions on their face, as stated in `Smoothed`.

    face: as of `dflearn.engine.smoothed.cpu.Face`. sides: of the instances. norm: whether the norm is the regularizer. objective:
    whose S leads on from the costs c to y; `None` where gradients end at c.
    """

    face: Any
    sides: Sides
    norm: bool = False
    objective: Objective | None = None

    def backward(self, gradient: Tensor, decision: Tensor) -> Tensor:
        """(dw/dy)ᵀ gradient, `(*batch, n)` → `(*batch, p)`, in differentiable operations: on a face its projection is constant."""
        if self.norm:
            slope = self._with_norm(gradient, decision)
        else:
            slope = symmetric(gradient, decision, partial(applied, self.face.project))
        return slope if self.objective is None else self.objective.transpose(slope)

    def _with_norm(self, gradient: Tensor, decision: Tensor) -> Tensor:
        """With the norm as regularizer: 1/κ = ‖w‖/μ."""
        v, w, projection = gradient.double(), decision.double(), partial(applied, self.face.along)
        out = -w.norm(dim=-1, keepdim=True) / float(self.face.mu[0]) * symmetric(v, w, projection)
        along = symmetric(w, w, projection)
        room = (w - along).square().sum(-1, keepdim=True)  # ‖w‖² − wᵀP w, without its rounding
        there = room > 0
        share = torch.where(there, (w * out).sum(-1, keepdim=True) / torch.where(there, room, 1.0), 0.0)
        return (out + share * along).to(gradient)  # type: ignore[no-any-return]

    def side_gradients(self, gradient: Tensor, decision: Tensor) -> dict[str, np.ndarray]:
        """By name, (dw/d side)ᵀ gradient, `(count, k)`."""
        w, v = (as_rows(part, part.shape[:-1].numel(), np.float64) for part in (decision, gradient))
        found: dict[str, np.ndarray] = self.face.side_gradients(self.sides, w, v)
        return found

    def tensors(self) -> tuple[Tensor, ...]:
        """What the engine makes the face of."""
        return tuple(map(torch.from_numpy, self.face.arrays()))


def with_sides(
    decision: Tensor, instance: Instance | None, slopes: Callable[[Tensor, Tensor], Mapping[str, Any]]
) -> Tensor:
    """The decision `(*batch, n)`, differentiable in its instance's right-hand sides, bounds and q too, where that is wanted.

    slopes: turns a gradient in w, and w, into the gradients in the sides, by name.
    """
    if not (wanted := wanted_sides(instance)):
        return decision

    def backward(gradient: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        found = slopes(gradient.detach(), w)
        parts = [torch.as_tensor(found[name]).reshape(side.shape).to(side) for name, side in wanted.items()]
        why = "gradients in an instance's sides have no second derivatives"
        return tuple(refusing(part, w, why) if torch.is_grad_enabled() else part for part in parts)

    return attached(decision, backward, *wanted.values())


def wanted_sides(instance: Instance | None) -> dict[str, Tensor]:
    """The right-hand sides, bounds and q that a gradient is wanted for."""
    learned = {} if instance is None or not torch.is_grad_enabled() else instance.learned()
    return {name: value for name, value in learned.items() if name != "d"}


def refusing(value: Tensor, depends_on: Tensor, why: str) -> Tensor:
    """The value; an error, `why`, for whoever asks for its derivative."""

    def refuse(gradient: Tensor, value: Tensor) -> tuple[Tensor]:
        raise OptionError(why)

    return attached(value.detach(), refuse, depends_on)


def held_fixed(value: Tensor, depends_on: Tensor, why: str) -> Tensor:
    """The value, a constant for first derivatives; an error, `why`, for whoever asks for second ones."""

    def backward(gradient: Tensor, value: Tensor) -> tuple[Tensor | None]:
        return (refusing(torch.zeros_like(depends_on), depends_on, why) if torch.is_grad_enabled() else None,)

    return attached(value.detach(), backward, depends_on)


# -- around a solver --------------------------------------------------------------------------------------------------


class AroundSolver(Layer):
    """A layer whose decision is an exact solver's; what it is differentiated by is the subclass's.

    known_rows: whether right-hand sides may not depend on what is predicted.
    """

    solver: Solver
    known_rows: ClassVar[bool] = True
    takes_q = True  # as far as the solver does

    def __init__(self, solver: Solver) -> None:
        super().__init__(solver.objective)
        if self.known_rows and solver.program is not None and solver.program.predicts_rows:
            raise OptionError(
                f"{solver.program!r} has predicted right-hand sides: other costs would move them, and with them what is "
                f"feasible, which {type(self).__name__} does not know; use TaskLoss(Smoothed(program)) or "
                "ScoreFunction(Exact(solver), sigma)"
            )
        self.solver, self.program = solver, solver.program
        self.start_width, self.start_dtype = solver.start_width, solver.start_dtype
        self.start_blank = solver.start_blank

    def solve(self, y: Tensor, instance: Instance | None = None, start: Tensor | None = None) -> Solution:
        if isinstance(y, Tensor) and y.is_cuda and not self.solver.on_devices:
            self._warn_of_cpu(
                f"{type(self.solver).__name__} solves on the CPU, to which costs on {y.device} are copied"
            )
        return super().solve(y, instance, start)

    def extra_repr(self) -> str:
        return repr(self.solver)

    def moves(self, field: str) -> bool:
        return False

    def get_extra_state(self) -> dict[str, Any]:
        """The solver's state becomes part of `state_dict`."""
        return self.solver.get_state()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.solver.set_state(state)

    def _realize(self, program: Program, y: Tensor, instance: Instance | None) -> Instance | None:
        return instance  # the solver does that


class Exact(AroundSolver):
    """The exact solver as a layer: w*(y), with Jacobian zero, as it is almost everywhere for a linear objective.

    With it, every loss gives the subgradient of the paper's "no differentiable solver" rows. With Q, or predicted right-hand sides,
    decisions move with y: losses that differentiate through them (SCE, regret, errors of decisions) want `Smoothed` then.

    Examples:
        >>> layer = dfl.Exact(problem.solver())
        >>> layer(data.costs).equal(data.decisions)
        True
    """

    known_rows = False  # the Jacobian is zero, by definition

    def moves(self, field: str) -> bool:
        return True  # by zero, as y does

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        return self.solver.solve(y.detach(), instance, start)


def raised(objective: Objective, instance: Instance | None, by: Tensor) -> Instance:
    """The instance at costs c + `by` `(*batch, n)`: its d is raised, so that by need not be S y for any y."""
    d = instance.d if instance is not None and instance.d is not None else torch.tensor(objective.d)
    return replace(instance or Instance(), d=d.to(by) + by.detach())
