"""Make a failure small, and print it as a test."""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fuzz.cases import Case
from fuzz.references import Truth, truth_of
from fuzz.run import try_subject
from fuzz.subjects import SUBJECTS, Check
from fuzz.verdicts import Verdict

MOST_TRIALS = 400  # of one failure
LAST, SECOND, FIRST = (-1,), (1,), (0,)  # axes along which variables or rows lie
VARIABLE = dict.fromkeys(("lower", "upper", "d", "column", "integer", "sizes", "block"), LAST)
VARIABLE |= {"A": SECOND, "G": SECOND, "y": SECOND, "Q": (0, 1)}
EQUATION, INEQUALITY = {"A": FIRST, "b": LAST, "B": FIRST}, {"G": FIRST, "h": LAST, "H": FIRST}


def failure(case: Case, subject: Check, verdict: str) -> Verdict | None:
    """The first verdict of this kind, if there is one."""
    try:
        return next((v for v in try_subject(subject, case) if v.verdict == verdict), None)
    except Exception:  # a shrunken case that can no longer be judged is no failure
        return None


def shrink(case: Case, subject: Check, verdict: str, tell: Callable[[Case], None] = lambda case: None) -> Case:
    """A smaller case with the same verdict: greedy, until no step helps; `tell` hears of every step that did."""
    trials = 0
    while True:
        for smaller in itertools.chain(_fewer(case), _plainer(case)):
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


def _fewer(case: Case) -> Iterator[Case]:
    """Fewer instances, variables, rows."""
    if case.count > 1:
        for i in range(min(case.count, 4)):
            own = {name: case.given(name, i) for name in ("b", "h", "lower", "upper", "d")}
            yield case.changed(y=case.y[i : i + 1], **own)
    if case.S is not None and case.count == 1 and not case.predicts_rows:
        yield case.changed(S=None, y=case.c(0)[None], d=np.zeros(case.n))
    if case.n > 1 and case.S is None and not case.predicts_rows:
        yield from (_without(case, VARIABLE, j) for j in range(case.n))
    yield from (_without(case, EQUATION, i, row=i) for i in range(len(case.A)))
    yield from (_without(case, INEQUALITY, i, row=len(case.A) + i) for i in range(len(case.G)))
    for name in ("Q", "B", "H", "recourse"):
        if getattr(case, name) is not None:
            yield case.changed(**{name: None})


def _without(case: Case, axes: dict[str, tuple[int, ...]], k: int, row: int | None = None) -> Case:
    """Without the k-th of what lies along these axes."""
    cut = {} if row is None else {"row": np.delete(case.row, row)}
    for name, own in axes.items():
        part = getattr(case, name)
        for axis in own if part is not None else ():
            cut[name] = np.delete(cut.get(name, part), k, axis)
    return case.changed(**cut)


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


def as_test(case: Case, name: str, verdict: Verdict) -> str:
    """Source of a pytest test that fails as this case did (for one instance without sides of its own)."""
    call, kind = SUBJECTS[name].way(case).call, SUBJECTS[name].kind
    program, always = case.program, ("A", "b", "G", "h", "lower", "upper", "S")
    named = {name: getattr(program, name) for name in (*always, "d", "integer", "B", "H", "recourse")}
    named["Q"] = program.Q and program.Q.matrix
    dense = {name: part.toarray() if hasattr(part, "toarray") else part for name, part in named.items()}
    told = {name: part for name, part in dense.items() if part is not None and part.size}
    parts = [f"{name}={_text(part)}" for name, part in told.items() if name in always or part.any()]
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
