"""MPS and LP files, as HiGHS reads them."""

from __future__ import annotations

import gzip
import os
import re
import tempfile
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from dflearn.errors import ProgramError
from dflearn.frontends.costs import Costs, by_name
from dflearn.frontends.linear_model import SEMI_CONTINUOUS, LinearModel

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
    _refuse_nan(path, ending)
    lp, Q = _load(path)
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


NAN = re.compile(r"[+-]?nan(\(\w*\))?", re.IGNORECASE)  # as C reads it
# In LP files HiGHS takes the first letters of "nano" for a number; a row may be called nan.
NAN_IN_LP = re.compile(r"(?:^|[\s:+\-<>=])(nan[^\s:+\-<>=]*)(?=[\s+\-<>=]|$)(?!\s*:)", re.IGNORECASE)


def _refuse_nan(path: Path, ending: str) -> None:
    """An error where a coefficient is NaN: HiGHS would leave it out, and the row with it mean something else."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            section = ""
            for number, raw in enumerate(file, 1):
                if ending == "mps" and raw[:1] not in b" \t\r\n*":
                    section = raw.split()[0].decode(errors="replace").upper()
                if b"nan" not in raw.lower():
                    continue
                line = raw.decode(errors="replace").rstrip()
                place = f"{path}, line {number}: "
                if ending == "lp" and (found := NAN_IN_LP.search(line.partition("\\")[0])):
                    raise ProgramError(
                        f"{place}{found[1]!r} is read as the coefficient NaN, not a number: fill it in, or rename what "
                        "begins with these letters"
                    )
                if section == "COLUMNS" and line[:1] in " \t":
                    variable, *pairs = line.split()  # of a row and a coefficient
                    for row, value in zip(pairs[::2], pairs[1::2], strict=False):
                        if NAN.fullmatch(value):
                            raise ProgramError(
                                f"{place}the coefficient of variable {variable!r} in row {row!r} is NaN, not a number: "
                                "fill it in, or leave it out"
                            )
    except (OSError, EOFError, zlib.error) as error:
        raise ProgramError(f"{path} cannot be read: {error}") from error


WORD = re.compile(r"[^\s+\-*/^<>=:\[\]]+")
UNNAMED = re.compile(r"HiGHS_R\d+$")  # what HiGHS calls a row that has no name
RELATION = re.compile(r"[<>]=?|=[<>]?")
ROWS_BEGIN = re.compile(r"\s*(subject\s+to|such\s+that|s\.?t\.?)\s*:?\s*$", re.IGNORECASE)
ROW_ENDS = re.compile(r"[<>=]\s*[+-]?\s*[\d.]+(e[+-]?\d+)?\s*$", re.IGNORECASE)
ROWS_END = re.compile(r"\s*(bounds?|generals?|gen|integers?|binar(y|ies)|bin|semi.*|sos.*|end)\s*$", re.IGNORECASE)


def _lp_lines(path: Path) -> list[str]:
    """The lines of an LP file without comments; none of an MPS file."""
    if path.name.removesuffix(".gz").endswith(".mps"):
        return []
    with gzip.open(path, "rt", errors="replace") if path.suffix == ".gz" else open(path, errors="replace") as file:
        return [line.partition("\\")[0] for line in file]


def _check_names(path: Path) -> None:
    """Refuse an LP file with a name that HiGHS takes for a number: of "inflow" it makes infinity times "low"."""
    for number, line in enumerate(_lp_lines(path), 1):
        for word in WORD.findall(line):
            if word.lower().startswith("inf") and word.lower() not in ("inf", "infinity"):
                raise ProgramError(
                    f"{path}, line {number}: HiGHS takes {word!r} for infinity, as it does with all names in LP files that begin "
                    "with inf: give it another name, or save the model as MPS"
                )


def _two_limits(path: Path) -> str:
    """What to say about the first row of an LP file that HiGHS does not read, for its limits; "" where there is none."""
    lines = _lp_lines(path)
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

    _check_names(path)
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
    if said:  # an undefined row that was ignored, say
        warnings.warn(f"HiGHS on {path}: {said}", stacklevel=4)
    return model.lp_, _hessian(model.hessian_)
