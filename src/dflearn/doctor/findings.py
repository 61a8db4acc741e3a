"""What the measures mean, and what to change."""

from __future__ import annotations

from collections.abc import Iterator

from dflearn.data import DecisionDataset
from dflearn.data.scale import Scale
from dflearn.doctor.diagnosis import Diagnosis, Finding, Severity
from dflearn.errors import DflearnError, SolverError
from dflearn.layers.base import Layer
from dflearn.losses.base import Loss
from dflearn.losses.regret import Regret
from dflearn.losses.squared_decision_error import SquaredDecisionError

CONVERGED = 1e-4  # a residual above this is no solution
OUT_OF_SIZE = 2.5  # predictions so many times as large as costs, or as small, train worse: docs/choosing.md has figures


def failed(error: DflearnError) -> Finding:
    """What kept the doctor from looking further."""
    text = str(error).rstrip(".")
    if isinstance(error, SolverError):
        remedy = "Training would stop here. Check the constraints of this instance and the scale of the costs."
        return Finding("problem", f"A solver failed: {text}.", remedy)
    return Finding("warning", f"The decisions cannot be judged: {text}.")


def findings(found: Diagnosis, loss: Loss, data: DecisionDataset, noted: list[Finding]) -> list[Finding]:
    """Everything worth saying, what was noted before included, the worst first."""
    order: list[Severity] = ["problem", "warning", "fine"]
    return sorted([*noted, *_all(found, loss, data)], key=lambda finding: order.index(finding.severity))


def _all(found: Diagnosis, loss: Loss, data: DecisionDataset) -> Iterator[Finding]:
    if not found.gradients.size:
        return
    yield from _about_gradients(found, loss, data)
    yield from _about_solving(found)
    if found.slopes is not None and found.slopes[0] < found.slopes[1]:
        yield Finding(
            "warning",
            f"Finite differences confirm only {found.slopes[0]} of {found.slopes[1]} gradients.",
            "A Jacobian-free or sampled gradient need not agree. An exact one must, kinks apart: if yours is meant to be "
            "exact, check the layer, or compare with Smoothed.",
        )
    yield from _about_predictions(found)
    yield from _about_regret(found)


def _about_gradients(found: Diagnosis, loss: Loss, data: DecisionDataset) -> Iterator[Finding]:
    name = type(loss).__name__
    if found.better:
        yield Finding(
            "problem",
            f"On {found.better:.0%} of the instances the model's decision is better than the label.",
            "These labels are not optimal for the program that judges: compute them with label(data, solver).",
        )
    elif not found.wrong.any():
        yield Finding("fine", "Every decision is optimal already.")
    if found.stuck < 0.5:
        if found.wrong.any():
            yield Finding("fine", f"{1 - found.stuck:.0%} of the instances with a wrong decision have a gradient.")
        return
    severity: Severity = "problem" if found.stuck >= 0.9 else "warning"
    what = f"{found.stuck:.0%} of the instances with a wrong decision have no gradient: {name} stands still on them."
    if isinstance(loss, (Regret, SquaredDecisionError)):
        remedy = (
            f"{name} sees only decisions that move with the costs, and these do not. Use SCE or SmoothedSPOPlus through "
            "the same layer: their gradient contrasts two decisions and needs none to move."
        )
        mu = _smoothing(loss.layer)
        suggested = Scale.of(loss.layer.objective, data).mu
        if mu is not None and mu < suggested:
            remedy += f" Or smooth more: mu is {mu:.3g}, and about {suggested:.3g} suits costs of this size."
    elif loss.layer is None:
        remedy = "The loss is at its minimum for these instances, or does not depend on the predicted costs."
    else:
        remedy = (
            f"{name} is content with decisions that are not optimal: check that its layer solves the program that judges "
            "(a relaxation may be content where the program itself is not), and that the labels are its decisions."
        )
    yield Finding(severity, what, remedy)


def _smoothing(layer: Layer | None) -> float | None:
    """μ of a layer that smooths."""
    from dflearn.layers.davis_yin import DavisYin
    from dflearn.layers.smoothed import Smoothed

    return layer.mu if isinstance(layer, (Smoothed, DavisYin)) else None


def _about_solving(found: Diagnosis) -> Iterator[Finding]:
    if found.residual is not None and not found.residual <= CONVERGED:
        yield Finding(
            "warning",
            f"The layer's answers are not solutions: the worst residual is {found.residual:.1e}.",
            "Give it more iterations or a tolerance, or use Smoothed, which solves exactly.",
        )
    if found.fallbacks:
        yield Finding(
            "warning" if found.fallbacks > 0.05 else "fine",
            f"{found.fallbacks:.1%} of the instances had to be solved one by one by the slower solver.",
            "Scale costs and constraints to numbers around 1, or raise mu." if found.fallbacks > 0.05 else "",
        )


def _about_predictions(found: Diagnosis) -> Iterator[Finding]:
    if found.ties:
        yield Finding(
            "warning",
            f"{found.ties:.0%} of the predictions leave several decisions optimal; regret then depends on which one the "
            "solver returns.",
            "Judge with evaluate(…, pessimistic=True). If predictions are constant or zero, the model has not learned or "
            "has collapsed: check features, and prefer SCE to its plain variant.",
        )
    if found.size is None or found.spread is None:
        return
    if not 1 / OUT_OF_SIZE <= found.size <= OUT_OF_SIZE:
        yield Finding(
            "warning",
            f"Predicted costs are {found.size:.2g} times as large as true ones.",
            "Smoothing (mu, sigma) is then out of proportion, and so is a known part d of the objective. Let the model "
            "work in units of the costs, models.Scaled(model, mean |y|), train longer, or begin with MSE.",
        )
    elif found.spread < 0.05:
        yield Finding(
            "warning",
            "Predicted costs hardly differ between instances.",
            "The model ignores its features: scale them, train longer, or raise the learning rate.",
        )


def _about_regret(found: Diagnosis) -> Iterator[Finding]:
    if found.regret is None or found.two_stage is None:
        return
    what = f"The model's regret is {found.regret:.1%}, that of least squares {found.two_stage:.1%} ({found.fitted})."
    if found.floor is not None:
        what += f" Deciding with E[y | x] has {found.floor:.1%}, which nothing beats on average."
    if found.behind:
        yield Finding("warning", what, "Train on, or change the loss, its smoothing or the learning rate.")
    else:
        yield Finding("fine", what)
