"""Subjects beyond solvers and layers: losses by their formulas and differences, labels and evaluation by plain numpy."""

from collections.abc import Callable
from typing import Any, Literal
from unittest import mock

import numpy as np
import torch
from torch import Tensor

import dflearn as dfl
from dflearn.errors import DflearnError, OptionError
from dflearn.losses import MSE, SCE, FenchelYoung, Loss, Regret, SmoothedSPOPlus, SPOPlus, SquaredDecisionError
from dflearn.solvers.task import best_solver
from fuzz.cases import Case
from fuzz.references import truth_of
from fuzz.verdicts import Kind, Verdict, refusals

Regularizer = Literal["squared", "norm"]
NORM_OF_FAR = 5  # the norm of parts in units far apart is that of one of them, and takes long: every so-manieth seed
STEPS = tuple(10.0**-k for k in range(5, 12))  # of differences

LAYERS: dict[str, Callable[[Case], dfl.Layer]] = {
    "Exact": lambda case: dfl.Exact(highs(case)[0]),
    "squared": lambda case: smoothed_layer(case),
    "norm": lambda case: smoothed_layer(case, "norm"),
}
LOSSES: dict[str, Callable[[dfl.Layer], Loss]] = {
    "regret": Regret,
    "squared decision error": SquaredDecisionError,
    "SPO+": SPOPlus,
    "smoothed SPO+": SmoothedSPOPlus,
    "SCE": SCE,
    "plain SCE": lambda layer: SCE(layer, variant="plain"),
    "Fenchel-Young": FenchelYoung,
    "MSE": lambda layer: MSE(),
}
# Where decisions move with y, and not from vertex to vertex, `Exact` has no gradient of its own to give to these.
MOVED = ("regret", "squared decision error", "SCE")


def highs(case: Case) -> tuple[dfl.Solver, dfl.Solution]:
    """HiGHS and its answer."""
    key = (dfl.HiGHS, True)
    subject: dfl.Solver = case.once(("solver", *key), lambda: dfl.HiGHS(case.program))
    answer: dfl.Solution = case.once(("answer", *key), lambda: subject.solve(case.costs, case.instance))
    return subject, answer


def best(case: Case) -> dfl.Solver:
    """The exact solver that suits the program."""
    solver: dfl.Solver = case.once("best", lambda: best_solver(case.program))
    return solver


def smoothed_layer(case: Case, regularizer: Regularizer = "squared") -> dfl.Smoothed:
    """The layer of a regularizer. The factor of the rows is that of the other's, if this has one."""

    def make() -> dfl.Smoothed:
        layer = dfl.Smoothed(case.program, case.user_mu(regularizer), regularizer=regularizer)
        other = case.remembered.get(("layer", "norm" if regularizer == "squared" else "squared"))
        if other is not None and "rows" in vars(other):
            layer.rows = other.rows
        return layer

    found: dfl.Smoothed = case.once(("layer", regularizer), make)
    return found


def losses(case: Case) -> list[Verdict]:
    """One loss through one layer, by turns."""
    turn = case.seed // 4
    layer = list(LAYERS)[turn % len(LAYERS)]
    if layer == "norm" and case.far and case.seed % NORM_OF_FAR:
        layer = "squared"
    return one_loss(case, layer, list(LOSSES)[turn // len(LAYERS) % len(LOSSES)])


def one_loss(case: Case, layer_name: str, loss_name: str) -> list[Verdict]:
    """Its value is the formula's, its gradient lies between the slopes."""
    if case.dtype != "float64" or not 0 < case.count < 30:
        return []
    rng = np.random.default_rng(case.starts)
    truths = [truth_of(case, "none", i) for i in range(case.count)]
    if (case.Q is not None and case.integer.any()) or any(truth.w is None for truth in truths):
        return []
    label = torch.tensor(np.stack([truth.w for truth in truths if truth.w is not None]) * case.column)
    try:
        layer = LAYERS[layer_name](case)
        loss = LOSSES[loss_name](layer)
    except DflearnError as error:
        return [Verdict("declared", str(error))]
    step = rng.normal(size=case.y.shape) * (1.0 if case.factor is None else case.factor[case.block])
    predicted = torch.tensor(case.y + step, requires_grad=True)
    batch = dfl.Batch(torch.zeros(case.count, 1), case.costs, label, case.instance)
    decisions: dict[bytes, np.ndarray] = {}
    solve = layer.solve

    def told(y: Tensor, *rest: Any) -> dfl.Solution:
        found = solve(y, *rest)
        decisions[y.detach().numpy().tobytes()] = found.decision.detach().numpy()
        return found

    try:
        with mock.patch.object(layer, "solve", told):
            value = loss(predicted, batch)
    except OptionError as error:  # this loss is not for predicted right-hand sides
        return [Verdict("declared", str(error))]
    except DflearnError as error:
        asked = 2 * predicted.detach() - batch.costs if "SPO+" in loss_name else predicted.detach()
        kind: Kind = {"Exact": "none", "squared": "squared", "norm": "norm"}[layer_name]  # type: ignore[assignment]
        return refusals(case.changed(y=asked.numpy()), kind, error)
    name = f"{loss_name} through {layer_name}"
    wanted, size = _formula(case, loss_name, layer, predicted.detach(), label, decisions)
    verdicts = []
    for i in np.flatnonzero(~(np.abs(value.detach().numpy() - wanted) <= 1e-6 * size)):
        told = f"{name}: {float(value[i]):.9g}, by its formula {wanted[i]:.9g}"
        verdicts.append(Verdict("silent wrong", told, int(i)))
    (slope,) = torch.autograd.grad(value.sum(), predicted) if value.requires_grad else (torch.zeros_like(predicted),)
    if layer_name == "Exact" and loss_name in MOVED and (case.Q is not None or case.predicts_rows):
        return verdicts or [Verdict("right", "", i) for i in range(case.count)]
    return verdicts or slopes(case, name, loss, predicted.detach(), value.detach(), batch, slope, size)


def slopes(
    case: Case, name: str, loss: Loss, at: Tensor, value: Tensor, batch: dfl.Batch, slope: Tensor, size: np.ndarray
) -> list[Verdict]:
    """Along one direction, against differences on either side, where these tell a slope at all: where costs are much smaller than
    a step, it leads over kinks, and a shorter one is tried. A gradient is wrong only by differences that two steps agree on."""
    way = torch.tensor(np.random.default_rng(case.starts + 1).normal(size=case.y.shape))
    along, told = (slope * way).sum(-1).numpy(), np.zeros(case.count, bool)
    right, text, before = np.zeros_like(told), [""] * case.count, np.full((2, case.count), np.nan)
    twice = torch.arange(case.count).repeat(2)  # steps to both sides in one call
    both = dfl.Batch(**{name: part[twice] for name, part in vars(batch).items() if part is not None})
    for step in STEPS:
        try:
            with torch.no_grad():
                down, up = loss(torch.cat([at - step * way, at + step * way]), both).numpy().reshape(2, -1)
        except DflearnError as error:  # where decisions run off on one side
            return [Verdict("unsure", f"{type(error).__name__}: {error}")]
        sides = np.stack([value.numpy() - down, up - value.numpy()]) / step
        noise = 1e-3 * np.maximum(np.abs(sides).max(0), np.abs(along)) + 1e-4 * size
        agree = (np.abs(sides - before) <= noise).all(0)
        between = (sides.min(0) - noise <= along) & (along <= sides.max(0) + noise)
        right |= between & (agree | (step == STEPS[0]))
        for i in np.flatnonzero(agree & ~told):
            text[i] = f"{name}: gradient along a direction {along[i]:.6g}, differences {sides[:, i]}"
        told, before = told | agree, sides
        if right.all():
            break
    return [
        Verdict("right") if right[i] else Verdict("silent wrong" if told[i] else "unsure", text[i], i)
        for i in range(case.count)
    ]


def _formula(
    case: Case, name: str, layer: dfl.Layer, predicted: Tensor, label: Tensor, decisions: dict[bytes, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The loss by its equation, from the layer's decisions, by costs; and the size of its terms."""
    y_hat, y, truth = predicted.numpy(), case.y, label.numpy()

    def costs(values: np.ndarray) -> np.ndarray:
        S = case.program.S
        d = np.stack([case.line("d", i) * case.cost / case.column for i in range(case.count)])
        return (values if S is None else (S @ values.T).T) + d

    def decide(values: np.ndarray) -> np.ndarray:
        known = decisions.get(values.tobytes())
        return layer(torch.tensor(values), case.instance).detach().numpy() if known is None else known

    def omega(w: np.ndarray) -> np.ndarray:
        regularizer = getattr(layer, "regularizer", "none")
        if regularizer == "squared":
            return 0.5 * case.user_mu() * (w**2).sum(1)
        return case.user_mu("norm") * np.linalg.norm(w, axis=1) if regularizer == "norm" else np.zeros(len(w))

    def bent(w: np.ndarray) -> np.ndarray:
        return case.cost * case.bent(w / case.column)

    def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a * b).sum(1)

    if name == "smoothed SPO+":  # its label is the layer's own
        truth = decide(y)
    at = 2 * y_hat - y if "SPO+" in name else y_hat
    w = decide(at) if name != "MSE" else truth
    total = dot(np.abs(costs(at)) + np.abs(costs(y)), np.abs(w) + np.abs(truth)) + omega(w) + omega(truth)
    total = total + bent(w) + bent(truth)
    if name == "regret":
        value = dot(costs(y), w - truth) + bent(w) - bent(truth)
    elif name == "squared decision error":
        value, total = dot(w - truth, w - truth), dot(w, w) + dot(truth, truth)
    elif name == "SCE":
        value = dot(costs(y_hat) - costs(y), truth - w)
    elif name == "MSE":
        value, total = ((y_hat - y) ** 2).mean(1), (y_hat**2 + y**2).mean(1)
    elif name in ("plain SCE", "SPO+"):
        value = dot(costs(at), truth - w) + bent(truth) - bent(w)
    else:
        value = dot(costs(at), truth - w) + bent(truth) - bent(w) + omega(truth) - omega(w)
    unit = 1.0 if name == "MSE" else case.size**2 if name == "squared decision error" else case.cost
    return value, np.maximum(total, 1e-6 * unit)


def evaluation(case: Case) -> list[Verdict]:
    """Labels have the true optimum; by turns, a perfect prediction has no regret, and another has what numpy says."""
    if case.predicts_rows or case.recourse is not None:
        return []  # see `recourse`
    truths = [truth_of(case, "none", i) for i in range(case.count)]
    if case.dtype != "float64" or not 0 < case.count < 30 or any(truth.status != "optimal" for truth in truths):
        return []
    data = dfl.DecisionDataset(torch.zeros(case.count, 1), case.costs, instance=case.instance)
    perfect = case.starts % 2 == 0
    predicted = case.y if perfect else case.other + (1.0 if case.factor is None else case.factor[case.block])
    try:
        labelled = dfl.label(data, best(case), progress=False)
    except DflearnError as error:
        return refusals(case, "none", error)
    try:
        told = dfl.evaluate(torch.tensor(predicted), case.program, labelled, best(case), progress=False)
    except DflearnError as error:
        return refusals(case.changed(y=predicted), "none", error)
    assert told.decisions is not None
    verdicts = []
    for i, truth in enumerate(truths):
        scale, text = truth.scale * case.cost, ""
        optimum = truth.objective * case.cost
        c, w = case.user_c(i), told.decisions[i].double().numpy()
        bent = case.cost * float(case.bent(w / case.column))
        regret = float(c @ w) + bent - optimum
        size = max(scale, float(np.abs(c) @ np.abs(w)) + bent)
        if abs(told.optima[i] - optimum) > 1e-6 * scale:
            text = f"label with objective {told.optima[i]:.9g}, the optimum is {optimum:.9g}"
        elif perfect and abs(told.regrets[i]) > 1e-6 * scale:
            text = f"a perfect prediction has regret {told.regrets[i]:.3g}"
        elif abs(told.regrets[i] - regret) > 2e-6 * size:
            text = f"regret {told.regrets[i]:.9g}, by numpy {regret:.9g}"
        verdicts.append(Verdict("silent wrong", text, i) if text else Verdict("right", "", i))
    return verdicts
