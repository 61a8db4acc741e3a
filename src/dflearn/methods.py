"""Losses and layers by name, with μ and σ relative to the data: what the estimator and `dfl` offer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from dflearn.data import DecisionDataset
from dflearn.errors import DataError
from dflearn.layers.base import Exact, Layer
from dflearn.losses.base import Loss
from dflearn.losses.fenchel_young import FenchelYoung
from dflearn.losses.mse import MSE
from dflearn.losses.regret import Regret
from dflearn.losses.sce import SCE
from dflearn.losses.spo_plus import SmoothedSPOPlus, SPOPlus
from dflearn.losses.squared_decision_error import SquaredDecisionError
from dflearn.program import Objective, Program
from dflearn.solvers.base import Solver

if TYPE_CHECKING:
    from dflearn.problems.base import Problem

Amount = float | Literal["auto"]

LAYERS = {
    "smoothed": "the LP relaxation with (μ/2)‖w‖² added, solved exactly, with its exact gradient",
    "davis-yin": "the same by 100 iterations of Davis-Yin splitting, differentiated through all of them",
    "perturbed": "the mean decision of the relaxation under noise of scale σ on the costs",
    "relaxed": "the LP relaxation as it is, with gradient zero: subgradients only",
    "exact": "the true program as it is, with gradient zero: subgradients only, and the slowest",
}

# For each loss that takes a layer: the layer it is used with by default, and how it is made.
_LOSSES: dict[str, tuple[str, Callable[[Layer], Loss]]] = {
    "sce": ("smoothed", SCE),
    "sce-plain": ("smoothed", lambda layer: SCE(layer, variant="plain")),
    "spo+": ("relaxed", SPOPlus),
    "smoothed-spo+": ("smoothed", SmoothedSPOPlus),
    "fenchel-young": ("smoothed", FenchelYoung),
    "pfy": ("perturbed", FenchelYoung),
    "regret": ("smoothed", Regret),
    "sqde": ("smoothed", SquaredDecisionError),
}
LOSSES = ("mse", *_LOSSES, "cave")


class Task(NamedTuple):
    """What is decided: its objective, an exact solver, a cheaper one of the LP relaxation, and the program if known."""

    objective: Objective
    solver: Solver
    relaxed: Solver
    program: Program | None

    @classmethod
    def of(cls, problem: Problem | Program | Solver) -> Task:
        """The task of a `Problem`, of a `Program` (solved by HiGHS), or of any `Solver`."""
        from dflearn.problems.base import Problem
        from dflearn.solvers.highs import HiGHS

        if isinstance(problem, Problem):
            return cls(problem.program.objective, problem.solver(), problem.relaxed_solver(), problem.program)
        if isinstance(problem, Program):
            return cls(problem.objective, HiGHS(problem), HiGHS(problem.relax()), problem)
        if not isinstance(problem, Solver):
            raise DataError(
                f"a Problem, a Program or a Solver says what is decided; got {type(problem).__name__}. "
                "For example: dflearn.problems.problem_named('SP-5')"
            )
        program = problem.program
        relaxed = HiGHS(program.relax()) if program is not None and program.is_integer else problem
        return cls(problem.objective, problem, relaxed, program)


@dataclass(frozen=True)
class Scale:
    """How large the numbers of a data set are.

    Attributes:
        costs: mean |y|.
        objective: mean |S y| over the variables whose cost is predicted.
        decisions: mean over instances of the largest |w*|: 1 for decisions between 0 and 1.
    """

    costs: float
    objective: float
    decisions: float

    @classmethod
    def of(cls, objective: Objective, data: DecisionDataset) -> Scale:
        """Data without costs or without decisions count as if all of them were 1, and so do all-zero ones."""
        y = torch.ones(1, objective.p) if data.costs is None else data.costs
        y = y.detach().cpu().double()
        priced = objective.vector(y) - objective.vector(torch.zeros_like(y))
        some = priced.abs().sum(0) > 0
        w = torch.ones(1, 1) if data.decisions is None else data.decisions
        sizes = (y.abs().mean(), priced[:, some].abs().mean(), w.detach().abs().amax(-1).mean())
        return cls(*(size if 0 < size < torch.inf else 1.0 for size in map(float, sizes)))

    # From a third of these to three times these, the regret on SP-5, KP-100 and CFL-50 differs little; a tenth and ten
    # times are worse: benchmarks/default_smoothing.py prints it.

    @property
    def mu(self) -> float:
        """μ at which smoothing moves a decision by about its own size: mean |S y| / size of the decisions."""
        return self.objective / self.decisions

    @property
    def sigma(self) -> float:
        """σ as large as the costs: mean |y|."""
        return self.costs


def make_loss(
    loss: str | Loss,
    layer: str | Layer,
    task: Task,
    scale: Scale,
    *,
    mu: Amount = "auto",
    sigma: Amount = "auto",
    step: Amount = "auto",
    seed: int = 0,
) -> Loss:
    """The loss of that name through the layer of that name; objects pass through.

    Args:
        loss: one of `LOSSES`.
        layer: one of `LAYERS`, or "auto": the one that suits the loss.
        mu, sigma: in units of the costs, or "auto": those of `scale`.
        step: of "davis-yin"; "auto" leaves it to the layer.
        seed: of the noise of "perturbed".
    """
    if isinstance(loss, Loss):
        return loss
    if loss == "mse":
        return MSE()
    if loss == "cave":
        from dflearn.losses.cave import CaVE

        return CaVE(_program(task, loss))
    if loss not in _LOSSES:
        raise DataError(f"loss is one of {', '.join(LOSSES)}, or a Loss; got {loss!r}")
    default, make = _LOSSES[loss]
    if isinstance(layer, Layer):
        return make(layer)
    name = default if layer == "auto" else layer
    if name == "exact":
        return make(Exact(task.solver))
    if name == "relaxed":
        return make(Exact(task.relaxed))
    if name == "perturbed":
        from dflearn.layers.perturbed import Perturbed

        noise = scale.sigma if sigma == "auto" else sigma
        return make(Perturbed(task.relaxed, noise, generator=torch.Generator().manual_seed(seed)))
    smoothing = scale.mu if mu == "auto" else mu
    if name == "smoothed":
        from dflearn.layers.smoothed import Smoothed

        return make(Smoothed(_program(task, name), smoothing))
    if name == "davis-yin":
        from dflearn.layers.davis_yin import DavisYin

        length = None if step == "auto" else step
        return make(DavisYin(_program(task, name), smoothing, length, gradient="unrolled"))
    raise DataError(f"layer is 'auto', one of {', '.join(LAYERS)}, or a Layer; got {layer!r}")


def _program(task: Task, name: str) -> Program:
    if task.program is None:
        raise DataError(
            f"{name!r} works on the constraints of a program, and {task.solver!r} knows none: "
            "use layer='exact' or 'perturbed' with loss 'spo+', 'sce' or 'pfy'"
        )
    return task.program
