"""A diagnosis: measures, findings, and a readable text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from textwrap import fill
from typing import Any, Literal, NamedTuple

import numpy as np

from dflearn.data import DecisionDataset
from dflearn.data.scale import Scale
from dflearn.errors import DflearnError, SolverError
from dflearn.layers import DavisYin, Smoothed
from dflearn.losses.base import Loss
from dflearn.losses.decision import Regret, SquaredDecisionError

Severity = Literal["problem", "warning", "fine"]

# A gradient that changes the loss by less than this share, when costs change by their own size, counts as zero.
VANISHING = 1e-6


class Finding(NamedTuple):
    """One observation, and what to change if it is not fine.

    Examples:
        >>> from dflearn.doctor import Finding
        >>> Finding("warning", "labels are not optimal", "label the data again").what
        'labels are not optimal'
    """

    severity: Severity
    what: str
    remedy: str = ""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The measures of `diagnose`. Shares lie between 0 and 1; a measure that is not known is `None`.

    Attributes:
        setting: loss, layer and number of instances, in words.
        gradients: ‖∂loss/∂ŷ‖ ‖ŷ‖ / mean |loss|, `(count,)`: free of units; empty where the loss failed.
        wrong: which instances' decisions have regret (or, without a problem, differ from the label), bool `(count,)`.
        residual: worst relative residual of the layer.
        fallbacks: share of instances that the layer's own method did not finish.
        better: share of instances whose decision is better than the label, so that the label is not optimal.
        ties: share of instances with more than one optimal decision for their predicted costs.
        size, spread: mean |ŷ| / mean |y|, and the same for the deviations from the mean over instances.
        slopes: how many gradients finite differences confirm, of how many.
        regret, two_stage, floor: Σ regret / Σ |optimum| of the model, of least squares (each instance by a map
            fitted without it), of E[y | x].
        trained_on: how many instances, none of them among these, the model and least squares were trained on; `None`: unknown,
            so that the model may have seen these, and least squares is cross-validated.
        behind: whether the model's regret is above that of least squares beyond chance (95 % interval of paired differences).
        findings: observations, the worst first.

    Examples:
        >>> model, loss = dfl.models.Linear(10, 12), dfl.losses.SPOPlus(dfl.Exact(problem.solver()))
        >>> diagnosis = dfl.diagnose(model, loss, data)
        >>> diagnosis.gradients.shape, diagnosis.findings[0].severity
        ((40,), 'fine')
    """

    setting: str
    gradients: np.ndarray
    wrong: np.ndarray
    residual: float | None = None
    fallbacks: float | None = None
    better: float | None = None
    ties: float | None = None
    size: float | None = None
    spread: float | None = None
    slopes: tuple[int, int] | None = None
    regret: float | None = None
    two_stage: float | None = None
    floor: float | None = None
    trained_on: int | None = None
    behind: bool = False
    findings: list[Finding] = field(default_factory=list)

    @property
    def without_gradient(self) -> float:
        """Share of all instances whose gradient is (nearly) zero."""
        return float(self._zero.mean()) if self._zero.size else 1.0

    @property
    def stuck(self) -> float:
        """Share of the wrong instances whose gradient is (nearly) zero: nothing pulls them right."""
        if not self._zero.size:
            return 1.0
        return float(self._zero[self.wrong].mean()) if self.wrong.any() else 0.0

    @property
    def _zero(self) -> np.ndarray:
        return self.gradients <= VANISHING

    @property
    def fitted(self) -> str:
        return "cross-validated" if self.trained_on is None else "on the same rows"

    @property
    def healthy(self) -> bool:
        """Whether no finding is a problem."""
        return all(finding.severity != "problem" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Measures and findings as JSON holds them; of the arrays, their shares."""
        shares = ("without_gradient", "stuck", "residual", "fallbacks", "better", "ties", "size", "spread")
        return {
            "setting": self.setting,
            "healthy": self.healthy,
            "wrong": float(self.wrong.mean()) if self.wrong.size else 0.0,
            **{name: getattr(self, name) for name in (*shares, "regret", "two_stage", "floor")},
            "slopes": None if self.slopes is None else dict(zip(("confirmed", "of"), self.slopes, strict=True)),
            "findings": [finding._asdict() for finding in self.findings],
        }

    def __str__(self) -> str:
        lines = [self.setting, "", *(f"  {name:<43} {value}" for name, value in self._measures()), ""]
        for finding in self.findings:
            lines.append(_wrapped(f"  {_MARKS[finding.severity]} ", finding.what))
            if finding.remedy:
                lines.append(_wrapped("       → ", finding.remedy))
        return "\n".join(lines)

    def _measures(self) -> list[tuple[str, str]]:
        share, size, regret = "{:.1%}".format, "{:.3g}".format, "{:.2%}".format
        table: list[tuple[str, Any, Callable[[Any], str]]] = [
            ("decisions that are not optimal", self.wrong.mean() if self.wrong.size else 0.0, share),
            ("instances without gradient", self.without_gradient, share),
            ("  of those with a wrong decision", self.stuck, share),
            ("worst residual of the layer", self.residual, "{:.1e}".format),
            ("instances left to the fallback solver", self.fallbacks, share),
            ("gradients confirmed by finite differences", self.slopes, lambda pair: f"{pair[0]} of {pair[1]}"),
            ("predictions with several optimal decisions", self.ties, share),
            ("size of predicted costs, relative to true", self.size, size),
            ("their spread over instances, likewise", self.spread, size),
            ("regret of the model", self.regret, regret),
            (f"regret of least squares, {self.fitted}", self.two_stage, regret),
            ("regret of E[y | x]", self.floor, regret),
        ]
        return [(name, shown(value)) for name, value, shown in table if value is not None]


_MARKS: dict[Severity, str] = {"problem": "[!!]", "warning": "[! ]", "fine": "[ok]"}  # the worst first


def _wrapped(mark: str, text: str) -> str:
    return fill(text, width=100, initial_indent=mark, subsequent_indent=" " * len(mark))


CONVERGED = 1e-4  # a residual above this is no solution
OUT_OF_SIZE = 2.5  # predictions so many times as large as costs, or as small, train worse (docs/notes/choosing.md)


def failed(error: DflearnError) -> Finding:
    text = str(error).rstrip(".")
    if isinstance(error, SolverError):
        remedy = "Training would stop here. Check the constraints of this instance and the scale of the costs."
        return Finding("problem", f"A solver failed: {text}.", remedy)
    return Finding("warning", f"The decisions cannot be judged: {text}.")


def findings(found: Diagnosis, loss: Loss, data: DecisionDataset, noted: list[Finding]) -> list[Finding]:
    """All findings, those noted before included, the worst first."""
    every = [*noted]
    if found.gradients.size:
        every += [*_about_gradients(found, loss, data), *_about_decisions(found)]
    return sorted(every, key=lambda finding: list(_MARKS).index(finding.severity))


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
        mu = loss.layer.mu if isinstance(loss.layer, (Smoothed, DavisYin)) else None
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


def _about_decisions(found: Diagnosis) -> Iterator[Finding]:
    if found.residual is not None and not found.residual <= CONVERGED:
        yield Finding(
            "warning",
            f"The layer's answers are not solutions: the worst residual is {found.residual:.1e}.",
            "Give it more iterations or a tolerance, or use Smoothed, which solves exactly.",
        )
    if found.fallbacks:
        what = f"{found.fallbacks:.1%} of the instances had to be solved one by one by the slower solver."
        if found.fallbacks > 0.05:
            yield Finding("warning", what, "Scale costs and constraints to numbers around 1, or raise mu.")
        else:
            yield Finding("fine", what)
    if found.slopes is not None and found.slopes[0] < found.slopes[1]:
        yield Finding(
            "warning",
            f"Finite differences confirm only {found.slopes[0]} of {found.slopes[1]} gradients.",
            "A Jacobian-free or sampled gradient need not agree. An exact one must, kinks apart: if yours is meant to be "
            "exact, check the layer, or compare with Smoothed.",
        )
    if found.ties:
        yield Finding(
            "warning",
            f"{found.ties:.0%} of the predictions leave several decisions optimal; regret then depends on which one the "
            "solver returns.",
            "Judge with evaluate(…, pessimistic=True). If predictions are constant or zero, the model has not learned or "
            "has collapsed: check features, and prefer SCE to its plain variant.",
        )
    if found.size is not None and not 1 / OUT_OF_SIZE <= found.size <= OUT_OF_SIZE:
        yield Finding(
            "warning",
            f"Predicted costs are {found.size:.2g} times as large as true ones.",
            "Smoothing (mu, sigma) is then out of proportion, and so is a known part d of the objective. Let the model "
            "work in units of the costs, models.Scaled(model, mean |y|), train longer, or begin with MSE.",
        )
    elif found.spread is not None and found.spread < 0.05:
        yield Finding(
            "warning",
            "Predicted costs hardly differ between instances.",
            "The model ignores its features: scale them, train longer, or raise the learning rate.",
        )
    if found.regret is not None and found.two_stage is not None:
        what = (
            f"The model's regret is {found.regret:.1%}, that of least squares {found.two_stage:.1%} ({found.fitted})."
        )
        if found.floor is not None:
            what += f" Deciding with E[y | x] has {found.floor:.1%}, which nothing beats on average."
        remedy = "Train on, or change the loss, its smoothing or the learning rate."
        yield Finding("warning", what, remedy) if found.behind else Finding("fine", what)
