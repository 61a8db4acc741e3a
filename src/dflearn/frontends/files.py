"""MPS and LP files, as HiGHS reads them."""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from dflearn.errors import ProgramError
from dflearn.frontends.costs import Costs, by_name
from dflearn.frontends.linear_model import SEMI_CONTINUOUS, LinearModel
from dflearn.frontends.screening import ROWS_END, check_binaries, lines_of, screen

if TYPE_CHECKING:
    from dflearn.program import Program


def from_mps(
    path: str | os.PathLike[str], costs: Costs = "all", *, keep_offset: bool = False, recourse: Sequence[str] = ()
) -> Program:
    """The program of an MPS file (`.mps`, `.mps.gz`), fixed or free format.

    Args:
        path: the file.
        costs: which objective coefficients are predicted, by variable: "all", a name, a beginning and `*`, a compiled
            pattern, a list of these, or `{cost: {variable: factor}}`. The file's coefficients of these variables are
            replaced by the prediction; the others are the known part d. `Program.cost_names` tells the order. Where no
            variable has a name, a row may: then its right-hand side is predicted.
        keep_offset: keep the constant of the objective, by a variable fixed to 1. Regret is the same either way.
        recourse: variables that are decided once the truth is known; names, or beginnings and `*`.

    A file that maximizes keeps its sense: costs are values, S is −I. Free rows are dropped, rows with a single variable
    become bounds. A quadratic objective (QUADOBJ, QMATRIX, [ … ]/2) becomes Q, which must be convex; quadratic rows,
    semi-continuous variables and special ordered sets are refused.
    """
    return read_model(path, costs, (".mps",), recourse).program(keep_offset)


def from_lp(
    path: str | os.PathLike[str], costs: Costs = "all", *, keep_offset: bool = False, recourse: Sequence[str] = ()
) -> Program:
    """The program of a file in LP format (`.lp`, `.lp.gz`). Arguments and rules: see `from_mps`."""
    return read_model(path, costs, (".lp",), recourse).program(keep_offset)


def read_model(
    path: str | os.PathLike[str],
    costs: Costs,
    endings: Sequence[str] = (".mps", ".lp"),
    recourse: Sequence[str] = (),
) -> LinearModel:
    """The file with its rows by name, from which a `Program` is one call away."""
    path = Path(path)
    name, dot, ending = path.name.removesuffix(".gz").rpartition(".")
    if dot + ending not in endings:
        raise ProgramError(f"{path} should end in {' or '.join(endings)}, by which HiGHS knows the format: rename it")
    with open(path, "rb"):  # a missing file is an error of its own
        pass
    screen(path, ending)
    lp, Q = _load(path)
    if ending == "lp":
        check_binaries(path, lp.col_names_, lp.col_lower_, lp.col_upper_)
    kinds = np.array([int(kind) for kind in lp.integrality_] or [0] * lp.num_col_)
    if np.isin(kinds, (2, 3)).any():
        which = lp.col_names_[int(np.flatnonzero(np.isin(kinds, (2, 3)))[0])]
        raise ProgramError(f"{path}: variable {which!r} is {SEMI_CONTINUOUS}")
    a = lp.a_matrix_
    colwise = str(a.format_).endswith("kColwise")
    kind, shape = (sp.csc_array if colwise else sp.csr_array), (lp.num_row_, lp.num_col_)
    return LinearModel.of(
        kind((np.array(a.value_), np.array(a.index_), np.array(a.start_)), shape=shape),
        (lp.row_lower_, lp.row_upper_),
        (lp.col_lower_, lp.col_upper_),
        kinds > 0,
        lp.row_names_ or None,
        coefficients=by_name(costs, lp.col_names_, np.array(lp.col_cost_, np.float64), lp.row_names_ or ()),
        recourse=recourse,
        sense="maximize" if str(lp.sense_).endswith("kMaximize") else "minimize",
        name=name,
        variable_names=lp.col_names_,
        offset=lp.offset_,
        Q=Q,
    )


def _check_lower(path: Path, lp: Any) -> None:
    """An error about an upper bound below 0 where no lower one is written: some tools take −∞ for that, others 0."""
    for name, lower, upper in zip(lp.col_names_, lp.col_lower_, lp.col_upper_, strict=True):
        if lower == 0 > upper:
            how = (
                f"a line MI of {name!r} in BOUNDS"
                if path.name.removesuffix(".gz").endswith(".mps")
                else f"-inf <= {name} <= {upper:g}"
            )
            raise ProgramError(
                f"{path}: the upper bound {upper:g} of {name!r} is below its lower bound 0, which holds where none is written: write "
                f"one, or {how} for none"
            )


UNNAMED = re.compile(r"HiGHS_R\d+$")  # what HiGHS calls a row that has no name
RELATION = re.compile(r"[<>]=?|=[<>]?")
ROWS_BEGIN = re.compile(r"\s*(subject\s+to|such\s+that|s\.?t\.?)\s*:?\s*$", re.IGNORECASE)
ROW_ENDS = re.compile(r"[<>=]\s*[+-]?\s*[\d.]+(e[+-]?\d+)?\s*$", re.IGNORECASE)


def _two_limits(path: Path) -> str:
    """What to say about the first row of an LP file that HiGHS does not read, for its limits; "" where there is none."""
    if path.name.removesuffix(".gz").endswith(".mps"):
        return ""
    lines = [line.partition("\\")[0] for line in lines_of(path)]
    inside, name, row = False, "", ""
    for number, line in enumerate(lines, 1):
        if ROWS_BEGIN.match(line) or ROWS_END.match(line):
            inside, row = bool(ROWS_BEGIN.match(line)), ""
            continue
        label, colon, rest = line.rpartition(":")
        if colon or (ROW_ENDS.search(row) and not re.match(r"\s*[<>=]", line)):
            name, row = label.strip(), ""
        row += rest
        if inside and len(RELATION.findall(row)) > 1:
            called = f"row {name!r}" if name else f"a row, {' '.join(row.split())!r},"
            return (
                f"{path}, line {number}: {called} has two limits, which HiGHS does not read in LP files: write two rows, one "
                "with each limit, or save the model as MPS"
            )
    return ""


def _empty_rows(lp: Any) -> list[str]:
    """The names of the rows without variables."""
    a = lp.a_matrix_
    if str(a.format_).endswith("kColwise"):
        entries = np.bincount(np.array(a.index_, np.int64), minlength=lp.num_row_)
    else:
        entries = np.diff(np.array(a.start_))
    return [name for name, number in zip(lp.row_names_, entries, strict=False) if not number]


def _hessian(hessian: Any) -> sp.csr_array | None:
    """HiGHS's matrix of the quadratic part, of which it holds the lower triangle or all; `None` where there is none."""
    n = hessian.dim_
    if not n or not len(hessian.value_):
        return None
    part = sp.csc_array((np.array(hessian.value_), np.array(hessian.index_), np.array(hessian.start_)), shape=(n, n))
    if str(hessian.format_).endswith("kSquare"):
        return sp.csr_array(part)
    return sp.csr_array(part + part.T - sp.diags_array(part.diagonal()))


def _load(path: Path) -> tuple[Any, sp.csr_array | None]:
    """The file as HiGHS reads it, and Q; what HiGHS says about it becomes an error or a warning."""
    import highspy

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        highs: Any = highspy.Highs()
        highs.setOptionValue("log_to_console", False)
        highs.setOptionValue("log_file", str(log))
        status = highs.readModel(str(path))
        highs.setOptionValue("log_file", "")
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    said = "; ".join(line.partition(":")[2].strip() for line in lines if line.startswith(("ERROR", "WARNING")))
    if status == highspy.HighsStatus.kError:
        raise ProgramError(_two_limits(path) or f"HiGHS cannot read {path}: {said or 'no reason given'}")
    model = highs.getModel()
    if not model.lp_.num_col_:
        raise ProgramError(f"{path} holds no variables: it is empty, or not what its name says")
    if len(model.lp_.col_names_) != model.lp_.num_col_:
        raise ProgramError(f"{path} does not name each variable once, and costs are told by name: {said}")
    if any(UNNAMED.match(name) for name in _empty_rows(model.lp_)):  # of "x + y >= 2 <= 10" HiGHS makes "0 <= 10"
        raise ProgramError(_two_limits(path) or f"{path} holds a row without variables and without a name: take it out")
    _check_lower(path, model.lp_)
    if said:  # an undefined row that was ignored, say
        warnings.warn(f"HiGHS on {path}: {said}", stacklevel=4)
    return model.lp_, _hessian(model.hessian_)
