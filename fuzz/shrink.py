"""Make a failure small, and print it as a test."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fuzz.cases import Case
from fuzz.references import Truth, truth_of
from fuzz.run import try_subject
from fuzz.subjects import Subject
from fuzz.verdicts import Verdict

MOST_TRIALS = 400  # of one failure

# How a subject is called in a test: the answer, and what is minimized.
CALLS: dict[str, tuple[str, str]] = {
    "Smoothed squared, cold": ("Smoothed(program, {mu}).solve(y)", "squared"),
    "Smoothed squared, warm": ("Smoothed(program, {mu}).solve(y, start=start)", "squared"),
    "Smoothed norm, cold": ('Smoothed(program, {mu}, regularizer="norm").solve(y)', "norm"),
    "Smoothed norm, warm": ('Smoothed(program, {mu}, regularizer="norm").solve(y, start=start)', "norm"),
    "Smoothed by the pattern of Q": ("Smoothed(program, {mu}).solve(y)", "squared"),
    "DavisYin": ("DavisYin(program, {mu}, iterations=3000, tolerance=1e-9).solve(y{start})", "squared"),
    "default": ("best_solver(program).solve(y)", "none"),
    "FewRowLP in torch": ("InTorch(program.relax()).solve(y{start})", "relaxed"),
    "SCIP": ("SCIP(program).solve(y)", "none"),
    "CvxpySmoothed": ("CvxpySmoothed(program, {mu}).solve(y)", "squared"),
    "HiGHS": ("HiGHS(program).solve(y{start})", "none"),
    "HiGHS, presolve": ("HiGHS(program, presolve=True).solve(y{start})", "none"),
    "Gurobi": ("Gurobi(program).solve(y{start})", "none"),
    "FewRowLP": ("FewRowLP(program.relax()).solve(y{start})", "relaxed"),
    "FewRowBinary": ("FewRowBinary(program).solve(y)", "none"),
    "SmallLP": ("SmallLP(program.relax()).solve(y)", "relaxed"),
    "TopK": ("TopK.of(program).solve(y)", "none"),
    "DagShortestPath": ("DagShortestPath.of(program).solve(y)", "none"),
    "Parallel": ("Parallel(HiGHS(program), 2).solve(y)", "none"),
    "Pooled": ("Pooled(HiGHS(program), 0.5).solve(y)", "none"),
}


def failure(case: Case, subject: Subject, verdict: str) -> Verdict | None:
    """The first verdict of this kind, if there is one."""
    try:
        return next((v for v in try_subject(subject, case) if v.verdict == verdict), None)
    except Exception:  # a shrunken case that can no longer be judged is no failure
        return None


def shrink(case: Case, subject: Subject, verdict: str, tell: Callable[[Case], None] = lambda case: None) -> Case:
    """A smaller case with the same verdict: greedy, until no step helps; `tell` hears of every step that did."""
    trials = 0
    while True:
        for smaller in _smaller(case):
            trials += 1
            if trials > MOST_TRIALS:
                return case
            try:
                smaller.program  # noqa: B018  # a program that cannot be is not smaller
            except Exception:
                continue
            if failure(smaller, subject, verdict):
                case = smaller
                tell(case)
                break
        else:
            return case


def _smaller(case: Case) -> Iterator[Case]:
    yield from _fewer(case)
    yield from _plainer(case)


def _fewer(case: Case) -> Iterator[Case]:
    """Fewer instances, variables, rows."""
    if case.count > 1:
        for i in range(min(case.count, 4)):
            own = {name: case.given(name, i) for name in ("b", "h", "lower", "upper", "d")}
            yield case.changed(y=case.y[i : i + 1], **own)
    if case.S is not None and case.count == 1 and not case.predicts_rows:
        yield case.changed(S=None, y=case.c(0)[None], d=np.zeros(case.n))
    me = len(case.A)
    lines = ("lower", "upper", "d")
    for j in range(case.n if case.n > 1 and case.S is None and not case.predicts_rows else 0):
        cut: dict[str, Any] = {name: np.delete(getattr(case, name), j, axis=-1) for name in lines}
        cut |= {name: np.delete(getattr(case, name), j, axis=1) for name in ("A", "G", "y")}
        if case.Q is not None:
            cut["Q"] = np.delete(np.delete(case.Q, j, 0), j, 1)
        for name in ("column", "integer", "sizes", "block"):
            if getattr(case, name) is not None:
                cut[name] = np.delete(getattr(case, name), j)
        yield case.changed(**cut)
    for i in range(me):
        B = None if case.B is None else np.delete(case.B, i, 0)
        yield case.changed(A=np.delete(case.A, i, 0), b=np.delete(case.b, i, -1), B=B, row=np.delete(case.row, i))
    for i in range(len(case.G)):
        H = None if case.H is None else np.delete(case.H, i, 0)
        yield case.changed(G=np.delete(case.G, i, 0), h=np.delete(case.h, i, -1), H=H, row=np.delete(case.row, me + i))
    for name in ("Q", "B", "H", "recourse"):
        if getattr(case, name) is not None:
            yield case.changed(**{name: None})


def _plainer(case: Case) -> Iterator[Case]:
    """Plainer units and numbers."""
    for name, plain in (("cost", 1.0), ("row", np.ones_like(case.row)), ("column", np.ones_like(case.column))):
        if np.any(getattr(case, name) != plain):
            yield case.changed(**{name: plain})
    if (case.column != case.size).any():
        yield case.changed(column=np.full(case.n, case.size))
    for name in ("row", "column"):
        for i, unit in enumerate(getattr(case, name)):
            if unit != 1:
                units = getattr(case, name).copy()
                units[i] = 1.0
                yield case.changed(**{name: units})
    if case.integer.any():
        yield case.changed(integer=np.zeros(case.n, bool))
    if case.mu != 1:
        yield case.changed(mu=1.0)
    for name in ("A", "G", "y", "b", "h", "lower", "upper", "d"):
        values = getattr(case, name)
        for rounded in (np.round(values), np.round(values, 1)):
            if np.isfinite(values).any() and (rounded != values).any():
                yield case.changed(**{name: rounded})
        for place in np.ndindex(values.shape):
            for plain in (0.0, 1.0, np.round(values[place])):
                if np.isfinite(values[place]) and abs(plain) < abs(values[place]):
                    other = values.copy()
                    other[place] = plain
                    yield case.changed(**{name: other})


# -- as a test ------------------------------------------------------------------------------------------------------


def as_test(case: Case, name: str, verdict: Verdict) -> str:
    """Source of a pytest test that fails as this case did (for one instance without sides of its own)."""
    call, kind = CALLS.get(name, ("", "none"))
    program = case.program
    parts = []
    for matrix, side in (("A", "b"), ("G", "h")):
        if getattr(program, matrix).shape[0]:
            parts.append(
                f"{matrix}={_text(getattr(program, matrix).toarray())}, {side}={_text(getattr(program, side))}"
            )
    for part in ("lower", "upper"):
        values = getattr(program, part)
        parts.append(f"{part}={_text(values)}")
    if program.S is not None:
        parts.append(f"S={_text(program.S.toarray())}")
    if program.d.any():
        parts.append(f"d={_text(program.d)}")
    if case.integer.any():
        parts.append(f"integer={case.integer.tolist()}")
    if case.Q is not None and program.Q is not None:
        parts.append(f"Q={_text(program.Q.matrix.toarray())}")
    parts += [
        f"{part}={_text(getattr(program, part).toarray())}" for part in ("B", "H") if getattr(case, part) is not None
    ]
    if case.recourse is not None:
        parts.append(f"recourse={case.recourse.tolist()}")
    mu = repr(case.user_mu(kind)) if kind in ("squared", "norm") else "0"
    lines = [
        f"def test_{re.sub('[^a-z]+', '_', name.lower()).strip('_')}_{case.family}_{case.seed}() -> None:",
        f'    """{verdict.detail}"""',
        f"    program = Program({', '.join(parts)}, n={case.n})",
        f"    y = torch.tensor({case.y.tolist()}, dtype=torch.{case.dtype})",
    ]
    starts = ""
    if verdict.start is not None:
        dtype = "int8" if isinstance(verdict.start[0], int) else "float32" if name == "DavisYin" else "float64"
        lines.append(f"    start = torch.tensor([{_text(np.array(verdict.start))}], dtype=torch.{dtype})")
        starts = ", start=start"
    if not call:  # no solver and no layer: the program, for a test by hand
        return "\n".join([*lines, f"    # {name}, of family {case.family}, seed {case.seed}"])
    lines.append(f"    answer = {call.format(mu=mu, start=starts)}")
    lines += _claims(case, kind, mu)
    return "\n".join(lines)


def _claims(case: Case, kind: str, mu: str) -> list[str]:
    truth: Truth = truth_of(case, kind, 0) if case.count else Truth("unknown")
    status = "    status = Status(int(answer.status[0]))"
    if truth.status in ("INFEASIBLE", "UNBOUNDED", "infeasible", "unbounded"):
        other = "UNBOUNDED" if truth.status == "infeasible" else "INFEASIBLE"
        return [status, f"    assert status not in (Status.OPTIMAL, Status.{other})  # it is {truth.status}"]
    if truth.status != "optimal" or truth.w is None:
        return [status]
    optimum, size = truth.objective * case.cost, truth.scale * case.cost
    omega = "" if mu == "0" else f', mu={mu}, regularizer="{kind}"'
    lines = [
        status,
        f"    # optimal at {_text(truth.w * case.column)}",
        "    assert status not in (Status.INFEASIBLE, Status.UNBOUNDED)",
        f"    if status is Status.OPTIMAL:\n        assert float(answer.objective[0]) <= {optimum!r} + 1e-6 * {size!r}",
    ]
    if not (kind == "none" and case.integer.any()):
        lines.append(f"        check_optimal(answer, y, program{omega})")
    return lines


def _text(values: Any) -> str:
    text = str(np.asarray(values).tolist()).replace(".0,", ",").replace(".0]", "]")
    return text.replace("inf", "np.inf").replace("nan", "np.nan")
