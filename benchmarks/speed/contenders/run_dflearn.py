"""dflearn as a contender, and the layers of the literature that live in it.

run_dflearn.py epochs DATA METHOD     one epoch of `fit` a turn
run_dflearn.py layer DATA WAY         forward and backward of a layer
run_dflearn.py labels DATA            `label` of all instances
run_dflearn.py growth DATA PART       one part at one size: its time, and the memory that it adds
"""

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from turns import Turns, peak_megabytes, reset_peak, run, threads

import dflearn as dfl
from dflearn.losses.base import Loss
from dflearn.problems.base import Problem
from dflearn.studies.paper.as_published import AsPublished, DenseJacobianFree

STEP = 0.01  # of every Davis-Yin layer, as published

# Each takes the problem, the published τ, and the μ of the exact smoothed layer.
METHODS: dict[str, Callable[[Problem, float, float], Loss]] = {
    "SPO+": lambda problem, tau, mu: dfl.losses.SPOPlus(dfl.Exact(problem.relaxed_solver())),
    "PFY": lambda problem, tau, mu: dfl.losses.FenchelYoung(dfl.Perturbed(problem.relaxed_solver(), 1.0, 1, 135)),
    "SCE^DYS": lambda problem, tau, mu: dfl.losses.SCE(dfl.DavisYin(problem.program, tau, STEP, gradient="unrolled")),
    "SCE^DYS jfb": lambda problem, tau, mu: dfl.losses.SCE(dfl.DavisYin(problem.program, tau, STEP, gradient="jfb")),
    "SCE^DYS as published": lambda problem, tau, mu: dfl.losses.SCE(AsPublished(problem, tau, STEP)),
    "SCE^DYS dense jfb": lambda problem, tau, mu: dfl.losses.SCE(DenseJacobianFree(problem, tau, STEP)),
    "SCE^smoothed": lambda problem, tau, mu: dfl.losses.SCE(dfl.Smoothed(problem.program, mu)),
}


class Pace(dfl.Callback):
    """Each epoch is a turn."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def on_start(self, run: Any) -> None:
        self.turns.begin()

    def on_epoch_end(self, run: Any, row: dict[str, Any]) -> None:
        found = {name: value.detach().numpy() for name, value in run.model.state_dict().items()}
        self.turns.end(loss=np.array(row["loss"]), **found)
        self.turns.begin()


def epochs(data: Any, turns: Turns, method: str) -> None:
    name, _, start = method.partition(", ")
    problem = dfl.problems.problem_named(str(data["problem"]), seed=1)
    loss = METHODS[name](problem, float(data["tau"]), float(data["mu"]))
    train = dfl.DecisionDataset(*(torch.tensor(data[part]) for part in ("features", "costs", "decisions")))
    model = nn.Linear(train.features.shape[1], problem.program.p)
    model.load_state_dict({part: torch.tensor(data[part]) for part in ("weight", "bias")})
    dfl.fit(
        model, loss, train, epochs=10**6, batch_size=int(data["batch"]), lr=float(data["lr"]), seed=int(data["seed"]),
        warm_start=start == "warm", callbacks=[Pace(turns)], progress=False,
    )  # fmt: skip


class Known(torch.autograd.Function):
    """In place of a layer: the decision is known and the gradient zero, which leaves what torch takes around any layer."""

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, decision: np.ndarray) -> torch.Tensor:
        ctx.zero = np.zeros(y.shape)
        return torch.from_numpy(decision)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return torch.from_numpy(ctx.zero), None


def layer(data: Any, turns: Turns, way: str) -> None:
    torch.set_num_threads(threads())
    program, mu = dfl.problems.problem_named(str(data["problem"]), seed=1).program, float(data["mu"])
    costs, near, weight = (torch.tensor(data[part]) for part in ("costs", "near", "incoming"))
    made: Any = dfl.CvxpySmoothed(program, mu) if way == "cvxpylayers" else dfl.Smoothed(program, mu)
    start = made.solve(costs, None, made.no_start(len(costs))).start if way == "warm" else None
    known = made.solve(near) if way == "nothing" else None

    def solve(y: torch.Tensor) -> dfl.Solution:
        if known is not None:
            return replace(known, decision=Known.apply(y, known.decision.numpy()))
        return made.solve(y, None, start)

    def call() -> dict[str, np.ndarray]:
        y = near.clone().requires_grad_()
        decision = solve(y).decision
        (decision * weight).sum().backward()
        assert y.grad is not None
        return {"decision": decision.detach().numpy(), "gradient": y.grad.numpy()}

    turns.serve(call)


def labels(data: Any, turns: Turns) -> None:
    solver = dfl.problems.problem_named(str(data["problem"]), seed=1).solver()
    dataset = dfl.DecisionDataset(torch.tensor(data["features"]), torch.tensor(data["costs"]))
    found = partial(dfl.label, dataset, solver, progress=False, workers=threads())
    turns.serve(lambda: {"decisions": found().batch().require("decisions").numpy()})


def arithmetic(data: Any, turns: Turns) -> None:
    from dflearn.engine.linear_algebra.lanes import jit
    from dflearn.engine.linear_algebra.threads import run_tiles

    @jit
    def roots(number: int) -> float:
        total = 0.0
        for i in range(number):
            total += np.sqrt(i)
        return total

    def call() -> dict[str, np.ndarray]:
        run_tiles(lambda _: roots(20_000_000) and None, range(4))
        return {}

    turns.serve(call)


MU, BATCH, LABELS, TIME_LIMIT = 1.0, 32, 4, 20.0  # of growth
LAYERS: dict[str, Callable[[Problem], dfl.Layer]] = {
    "DavisYin unrolled": lambda problem: dfl.DavisYin(problem.program, MU, STEP, gradient="unrolled"),
    "DavisYin jfb": lambda problem: dfl.DavisYin(problem.program, MU, STEP, gradient="jfb"),
    "Smoothed": lambda problem: dfl.Smoothed(problem.program, MU),
}


def work(name: str, part: str) -> Callable[[], dict[str, np.ndarray]]:
    """A call of the part on a batch of the problem, and what it says about itself."""
    problem = dfl.problems.problem_named(name, seed=1)
    about = {"variables": problem.program.n, "instances": LABELS if part == "labels" else BATCH}
    dtype = torch.float32 if part.startswith("DavisYin") else torch.float64
    costs: torch.Tensor = problem.generate(about["instances"], dtype=dtype).batch().require("costs")
    if part in LAYERS:
        layer = LAYERS[part](problem)
        factor = layer.rows.factor  # type: ignore[union-attr]
        about["entries"] = factor.matrix.nnz + factor.entries

        def backward() -> dict[str, Any]:
            layer.solve(costs.clone().requires_grad_()).check().decision.sum().backward()
            return about

        return backward
    solver = problem.solver() if part == "labels" else problem.relaxed_solver()
    if isinstance(solver, dfl.HiGHS) and problem.program.is_integer and part == "labels":
        solver = dfl.HiGHS(problem.program, time_limit=TIME_LIMIT)
    return lambda: {**about, "solved": (solver.solve(costs).status == 0).float().mean().numpy()}


def growth(data: Any, turns: Turns, part: str) -> None:
    """What is compiled or loaded once was used on a small problem before, so the peak is that of the size itself: program, data,
    factor, work space, gradients."""
    name = str(data["problem"])
    torch.set_num_threads(1)
    work(f"{name.partition('-')[0]}-{'6x3' if name.startswith('CFL') else 6}", part)()
    gc.collect()
    reset_peak()
    turns.imports = peak_megabytes()
    turns.serve(work(name, part))


if __name__ == "__main__":
    run({"epochs": epochs, "layer": layer, "labels": labels, "arithmetic": arithmetic, "growth": growth})
