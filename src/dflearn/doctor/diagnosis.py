"""What the doctor hands over: numbers, findings, and a text that can be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from textwrap import fill
from typing import Literal, NamedTuple

import numpy as np

Severity = Literal["problem", "warning", "fine"]

VANISHING = (
    1e-6  # a gradient that changes the loss by less than this share, when costs change by their own size, is zero
)


class Finding(NamedTuple):
    """One observation, and what to change if it is not fine."""

    severity: Severity
    what: str
    remedy: str = ""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What `diagnose` measured. Shares lie between 0 and 1; what could not be measured is `None`.

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
        """How least squares was fitted."""
        return "cross-validated" if self.trained_on is None else "trained on the same"

    @property
    def healthy(self) -> bool:
        """Whether no finding is a problem."""
        return all(finding.severity != "problem" for finding in self.findings)

    def __str__(self) -> str:
        lines = [self.setting, "", *(f"  {name:<44}{value}" for name, value in self._measures()), ""]
        for finding in self.findings:
            lines.append(_wrapped(f"  {_MARKS[finding.severity]} ", finding.what))
            if finding.remedy:
                lines.append(_wrapped("       → ", finding.remedy))
        return "\n".join(lines)

    def _measures(self) -> Iterator[tuple[str, str]]:
        yield "decisions that are not optimal", f"{self.wrong.mean() if self.wrong.size else 0:.1%}"
        yield "instances without gradient", f"{self.without_gradient:.1%}"
        yield "  of those with a wrong decision", f"{self.stuck:.1%}"
        if self.residual is not None:
            yield "worst residual of the layer", f"{self.residual:.1e}"
        if self.fallbacks is not None:
            yield "instances left to the fallback solver", f"{self.fallbacks:.1%}"
        if self.slopes is not None:
            yield "gradients confirmed by finite differences", f"{self.slopes[0]} of {self.slopes[1]}"
        if self.ties is not None:
            yield "predictions with several optimal decisions", f"{self.ties:.1%}"
        if self.size is not None and self.spread is not None:
            yield "size of predicted costs, relative to true", f"{self.size:.3g}"
            yield "their spread over instances, likewise", f"{self.spread:.3g}"
        names = {
            "regret": "regret of the model",
            "two_stage": f"regret of least squares, {self.fitted}",
            "floor": "regret of E[y | x]",
        }
        for name, text in names.items():
            value = getattr(self, name)
            if value is not None:
                yield text, f"{value:.2%}"


_MARKS: dict[Severity, str] = {"problem": "[!!]", "warning": "[! ]", "fine": "[ok]"}  # the worst first


def _wrapped(mark: str, text: str) -> str:
    return fill(text, width=100, initial_indent=mark, subsequent_indent=" " * len(mark))
