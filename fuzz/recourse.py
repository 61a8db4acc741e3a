"""What a decision costs once the truth is known: evaluation and `TaskLoss`, against exact arithmetic and Clarabel."""

import warnings

import clarabel
import numpy as np
import torch

import dflearn as dfl
from dflearn.errors import DflearnError
from fuzz.cases import Case
from fuzz.exact import exact_lp
from fuzz.pipeline import slopes, smoothed_layer
from fuzz.references import by_clarabel, scale_of, truth_of
from fuzz.verdicts import Verdict, refusals

ROOM, MOST_ROOM = 1e-9, 1e-5  # relative: what a reference lets rows be broken by, and where "infeasible" begins


def after_recourse(case: Case) -> list[Verdict]:
    """Post-hoc regrets of predictions, and `TaskLoss` through a smoothed layer with its gradient."""
    if not (case.predicts_rows or case.recourse is not None) or case.dtype != "float64" or not case.count:
        return []
    truths = [truth_of(case, "none", i) for i in range(case.count)]
    if any(truth.status != "optimal" for truth in truths):
        return []
    data = dfl.DecisionDataset(torch.zeros(case.count, 1), case.costs)
    predicted = torch.tensor(case.other.copy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows without recourse
        try:
            judged = dfl.evaluate(predicted, case.program, data, progress=False)
        except DflearnError as error:
            return refusals(case.changed(y=case.other), "none", error)
    verdicts = []
    assert judged.decisions is not None
    for i, truth in enumerate(truths):
        cost, scale = cost_of(case, i, judged.decisions[i].double().numpy() / case.column)
        wanted, told = case.cost * (cost - truth.objective), float(judged.regrets[i])
        text = f"regret {told:.9g} after recourse, by reference {wanted:.9g}"
        verdicts.append(_compared(told, wanted, case.cost * max(scale, truth.scale), text, i))
    return verdicts + ([] if case.integer.any() else _task_loss(case, predicted))


def _compared(told: float, wanted: float, scale: float, text: str, i: int) -> Verdict:
    if np.isnan(wanted):
        return Verdict("unsure")
    same = told == wanted if np.isinf(wanted) or np.isinf(told) else abs(told - wanted) <= 2e-6 * scale
    return Verdict("right", "", i) if same else Verdict("silent wrong", text, i)


def _task_loss(case: Case, predicted: torch.Tensor) -> list[Verdict]:
    try:
        layer = smoothed_layer(case)
    except DflearnError as error:
        return [Verdict("declared", str(error))]
    loss = dfl.losses.TaskLoss(layer)
    batch = dfl.Batch(torch.zeros(case.count, 1), case.costs)
    # Off the kinks that round numbers make.
    predicted = predicted + 0.03 * torch.tensor(np.random.default_rng(case.starts).normal(size=case.y.shape))
    at = predicted.clone().requires_grad_()
    try:
        value = loss(at, batch)
    except DflearnError as error:
        found = layer.solve(predicted)
        if bool((found.status == int(dfl.Status.OPTIMAL)).all()):
            decided = found.decision.detach().double().numpy() / case.column
            if not np.isfinite([cost_of(case, i, w)[0] for i, w in enumerate(decided)]).all():
                return [Verdict("refused", f"{error}")]  # no recourse helps
        return refusals(case.changed(y=predicted.numpy()), "squared", error)
    decisions = layer(predicted).detach().numpy() / case.column
    sizes, verdicts = np.zeros(case.count), []
    for i in range(case.count):
        cost, sizes[i] = cost_of(case, i, decisions[i])
        sizes[i] *= case.cost
        found = float(value[i].detach())
        text = f"TaskLoss {found:.9g}, by reference {case.cost * cost:.9g}"
        verdicts.append(_compared(found, case.cost * cost, sizes[i], text, i))
    if any(verdict.verdict != "right" for verdict in verdicts) or not torch.isfinite(value).all():
        return verdicts
    (slope,) = torch.autograd.grad(value.sum(), at)
    return verdicts + slopes(case, "TaskLoss", loss, predicted, value.detach(), batch, slope, sizes)


def cost_of(case: Case, i: int, w: np.ndarray) -> tuple[float, float]:
    """cost(w, y_i) in base units, infinite where no recourse helps and NaN where tolerances decide that; the size of its terms."""
    again = np.zeros(case.n, bool) if case.recourse is None else case.recourse
    c, b, h, lower, upper = (case.c(i), *(case.line(name, i) for name in ("b", "h", "lower", "upper")))
    w = np.clip(np.where(case.integer, np.round(w), w), lower, upper)
    rows, right = np.vstack([case.A, -case.A, case.G]), np.concatenate([b, -b, h])
    held = np.where(again, 0.0, w)
    left = right - rows @ held
    around = np.abs(right) + np.abs(rows) @ np.maximum(np.abs(held), 1.0)
    own, ends = rows[:, again], (lower[again], upper[again])
    Q = np.zeros((case.n, case.n)) if case.Q is None else case.Q
    costs = (c + Q @ held)[again]
    nothing = np.zeros((0, int(again.sum()))), np.zeros(0)
    if not again.any():
        worst = (-left / around).max(initial=0.0)
        status = "optimal" if worst <= ROOM else "unknown" if worst <= MOST_ROOM else "infeasible"
        v = np.zeros(0)
    else:
        found = exact_lp(costs, *nothing, own, left + ROOM * around, *ends)
        status = found.status
        if status == "infeasible":
            if exact_lp(0 * costs, *nothing, own, left + MOST_ROOM * around, *ends).status != "infeasible":
                status = "unknown"
        elif Q[np.ix_(again, again)].any():
            status, v = _curved(Q[np.ix_(again, again)], costs, own, left + ROOM * around, *ends)
        elif found.w is not None:
            v = np.array([float(value) for value in found.w])
    if status != "optimal":
        return (np.inf if status == "infeasible" else np.nan), 1.0
    whole = held.copy()
    whole[again] = v
    bent = float(case.bent(whole))
    room = np.abs(c).max(initial=0.0) + np.abs(Q @ whole).max(initial=0.0)  # what it is worth, at the prices at hand
    return float(c @ whole) + bent, scale_of(c, whole, bent) + float(room)


def _curved(
    Q: np.ndarray, c: np.ndarray, rows: np.ndarray, right: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[str, np.ndarray]:
    unit, low, high = np.eye(len(c)), np.isfinite(lower), np.isfinite(upper)
    matrix = np.vstack([rows, -unit[low], unit[high]])
    side = np.concatenate([right, -lower[low], upper[high]])
    found = by_clarabel(Q, c, matrix, side, [clarabel.NonnegativeConeT(len(side))])
    w = np.array(found.x)
    gap = abs(found.obj_val - found.obj_val_dual) / max(1.0, abs(found.obj_val))
    return ("optimal" if str(found.status) == "Solved" and gap <= 1e-7 else "unknown"), w
