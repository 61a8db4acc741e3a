"""MPS and LP files, as HiGHS reads them."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from dflearn.errors import ProgramError
from dflearn.frontends.costs import Costs, by_name
from dflearn.frontends.linear_model import SEMI_CONTINUOUS, LinearModel
from dflearn.reading import UNREADABLE, unpack

if TYPE_CHECKING:
    from dflearn.program import Program

File = str | os.PathLike[str]
NAN = re.compile(r"[+-]?nan(\(\w*\))?", re.IGNORECASE)  # as C reads it
# In LP files HiGHS takes the first letters of "nano" for a number; a row may be called nan.
NAN_IN_LP = re.compile(r"(?:^|[\s:+\-<>=])(nan[^\s:+\-<>=]*)(?=[\s+\-<>=]|$)(?!\s*:)", re.IGNORECASE)
TWO_FACTORS = re.compile(r"(?:^|[\s:+\-<>=])((\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s+(\d|\.\d|\[)\S*)", re.IGNORECASE)
WORD = re.compile(r"[^\s+\-*/^<>=:\[\]]+")
SENSES = ("MAX", "MIN")
SECTIONS = {
    "NAME", "OBJSENSE", "OBJNAME", "OBJECT", "REFROW", "ROWS", "COLUMNS", "RHS", "RANGES", "BOUNDS", "ENDATA", "QUADOBJ", "QMATRIX",
    "QSECTION", "QCMATRIX", "CSECTION", "SOS", "SOS1", "SOS2", "SETS", "LAZYCONS", "USERCUTS", "INDICATORS", "GENCONS", "PWLOBJ",
    "SCENARIOS", "MULTIOBJ",
}  # fmt: skip
BINARIES = re.compile(r"\s*(binary|binaries|bin)\s*$", re.IGNORECASE)
ROWS_END = re.compile(r"\s*(bounds?|generals?|gen|integers?|binar(y|ies)|bin|semi.*|sos.*|end)\s*$", re.IGNORECASE)
PACKED = (b"\x1f\x8b", b"x\x01", b"x\x9c", b"x\xda")  # how gzip and zlib begin
PATIENCE = 60.0  # seconds in which HiGHS reads a file whose names have spaces; usually far less than one


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a text file, packed or not; `unpack` refuses a file that unpacks to too much."""
    with open(path, "rb") as plain:
        packed = plain.peek(2).startswith(PACKED)
        if packed and path.suffix != ".gz":  # HiGHS would unpack it all the same
            raise ProgramError(f"{path} is compressed, and its name does not end in .gz: rename it")
        for raw in io.BytesIO(unpack(plain.read(), "gzip")) if path.suffix == ".gz" else plain:
            yield raw.decode(errors="replace").rstrip()


def screen(path: Path, ending: str) -> None:
    """An error if HiGHS would silently misread a part of the file."""
    try:
        (_screen_mps if ending == "mps" else _screen_lp)(path)
    except ProgramError:
        raise
    except UNREADABLE as error:
        raise ProgramError(f"{path} cannot be read: {error}") from error


def _screen_mps(path: Path) -> None:
    section, spaces = "", False
    for number, line in enumerate(lines_of(path), 1):
        place = f"{path}, line {number}: "
        if line and line[0] not in " \t*":
            words = line.upper().split()
            if section == "OBJSENSE" and words[0].startswith(SENSES):
                continue
            section = words[0]
            if section not in SECTIONS:
                raise ProgramError(f"{place}{words[0]!r} is no section of an MPS file that is known here: take it out")
            if section == "OBJSENSE" and len(words) > 1 and words[1] not in SENSES:
                raise ProgramError(f"{place}write {words[0]} {words[1][:3]}, which HiGHS understands on this line")
        elif section == "COLUMNS" and line and line[0] != "*":
            variable, *pairs = line.split() or [""]  # of a row and a coefficient
            comment = any(one.startswith("$") for one in pairs)
            spaces |= len(pairs) % 2 == 1 and pairs[0].upper() != "'MARKER'" and not comment
            for row, value in zip(pairs[::2], pairs[1::2], strict=False):
                if NAN.fullmatch(value):
                    where = f"variable {variable!r} in row {row!r}"
                    raise ProgramError(f"{place}the coefficient of {where} is NaN: fill it in, or leave it out")
    if spaces:
        _can_be_read(path)


def _can_be_read(path: Path) -> None:
    """An error if HiGHS does not finish: names with spaces can put its reader into an endless loop."""
    reading = "import highspy, sys; h = highspy.Highs(); h.silent(); h.readModel(sys.argv[1])"
    try:
        subprocess.run([sys.executable, "-c", reading, str(path)], timeout=PATIENCE, check=True)
    except subprocess.SubprocessError as error:  # it goes on and on, or ends the process
        remedy = "rename these rows and variables, or save the model in free MPS or LP format"
        raise ProgramError(
            f"{path} has names with spaces, and HiGHS does not come to an end with it: {remedy}"
        ) from error


def _screen_lp(path: Path) -> None:
    for number, line in enumerate(lines_of(path), 1):
        text, place = line.partition("\\")[0], f"{path}, line {number}: "
        if "nan" in text.lower() and (found := NAN_IN_LP.search(text)):
            how = "fill it in, or rename what begins with these letters"
            raise ProgramError(f"{place}{found[1]!r} is read as the coefficient NaN, not a number: {how}")
        for word in WORD.findall(text) if "inf" in text.lower() else ():
            if word.lower().startswith("inf") and word.lower() not in ("inf", "infinity"):
                why = "as it does with all names in LP files that begin with inf"
                remedy = "give it another name, or save the model as MPS"
                raise ProgramError(f"{place}HiGHS takes {word!r} for infinity, {why}: {remedy}")
        if found := TWO_FACTORS.search(text):
            raise ProgramError(f"{place}{found[1]!r} is two factors, of which HiGHS makes a constant: multiply them")


def check_binaries(path: Path, names: Sequence[str], lower: Sequence[float], upper: Sequence[float]) -> None:
    """An error where a variable that an LP file calls binary has other bounds there, which HiGHS lets win."""
    inside, binary = False, set()
    for line in lines_of(path):
        text = line.partition("\\")[0]
        if ROWS_END.match(text):
            inside = bool(BINARIES.match(text))
        elif inside:
            binary.update(text.split())
    for name, low, high in zip(names, lower, upper, strict=True):
        if name in binary and (low < 0 or high > 1):
            raise ProgramError(f"{path}: binary variable {name!r} has the bounds {low:g} and {high:g}: which is it?")


def from_mps(path: File, costs: Costs = "all", *, keep_offset: bool = False, recourse: Sequence[str] = ()) -> Program:
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

    Examples:
        >>> from pathlib import Path
        >>> rows = "ROWS\\n N cost\\n G demand\\nCOLUMNS\\n x cost 3 demand 1\\n y cost 2 demand 1\\nRHS\\n r demand 1\\nENDATA\\n"
        >>> _ = Path("model.mps").write_text("NAME model\\n" + rows)
        >>> dfl.from_mps("model.mps", costs=["x"]).cost_names
        ('x',)
    """
    return read_model(path, costs, (".mps",), recourse).program(keep_offset)


def from_lp(path: File, costs: Costs = "all", *, keep_offset: bool = False, recourse: Sequence[str] = ()) -> Program:
    """The program of a file in LP format (`.lp`, `.lp.gz`). Arguments and rules: as of `from_mps`.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("model.lp").write_text("minimize 3 x + 2 y subject to demand: x + y >= 1 end")
        >>> dfl.from_lp("model.lp", costs=["x"]).cost_names
        ('x',)
    """
    return read_model(path, costs, (".lp",), recourse).program(keep_offset)


def read_model(
    path: str | os.PathLike[str], costs: Costs, endings: Sequence[str] = (".mps", ".lp"), recourse: Sequence[str] = ()
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
    return LinearModel.of(
        _matrix(lp),
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
            mps = path.name.removesuffix(".gz").endswith(".mps")
            how = f"a line MI of {name!r} in BOUNDS" if mps else f"-inf <= {name} <= {upper:g}"
            why = f"the upper bound {upper:g} of {name!r} is below its lower bound 0, which holds where none is written"
            raise ProgramError(f"{path}: {why}: write one, or {how} for none")


UNNAMED = re.compile(r"HiGHS_R\d+$")  # what HiGHS calls a row that has no name
RELATION = re.compile(r"[<>]=?|=[<>]?")
ROWS_BEGIN = re.compile(r"\s*(subject\s+to|such\s+that|s\.?t\.?)\s*:?\s*$", re.IGNORECASE)
ROW_ENDS = re.compile(r"[<>=]\s*[+-]?\s*[\d.]+(e[+-]?\d+)?\s*$", re.IGNORECASE)


def _two_limits(path: Path) -> str:
    """The message about the first row with two limits in an LP file, which HiGHS does not read; "" if there is none."""
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
            remedy = "write two rows, one with each limit, or save the model as MPS"
            return f"{path}, line {number}: {called} has two limits, which HiGHS does not read in LP files: {remedy}"
    return ""


def _matrix(lp: Any) -> sp.csr_array:
    a = lp.a_matrix_
    kind = sp.csc_array if str(a.format_).endswith("kColwise") else sp.csr_array
    return sp.csr_array(kind((a.value_, a.index_, a.start_), shape=(lp.num_row_, lp.num_col_)))


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
    """The file as HiGHS reads it, and Q; the messages of HiGHS become errors or warnings."""
    import highspy

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        highs: Any = highspy.Highs()
        highs.setOptionValue("log_to_console", False)
        highs.setOptionValue("log_file", str(log))
        highs.setOptionValue("small_matrix_value", 1e-12)  # the least that it takes: smaller entries are left out
        status = highs.readModel(str(path))
        highs.setOptionValue("log_file", "")
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    said = "; ".join(line.partition(":")[2].strip() for line in lines if line.startswith(("ERROR", "WARNING")))
    if status == highspy.HighsStatus.kError:
        raise ProgramError(_two_limits(path) or f"HiGHS cannot read {path}: {said or 'no reason given'}")
    model = highs.getModel()
    if not model.lp_.num_col_:
        raise ProgramError(f"{path} holds no variables: it is empty, or not what its name says")
    try:
        names, _ = model.lp_.col_names_, model.lp_.row_names_
    except UnicodeDecodeError as error:
        raise ProgramError(f"{path} holds names that are not UTF-8: {error}; save it as UTF-8") from error
    if len(names) != model.lp_.num_col_:
        raise ProgramError(f"{path} does not name each variable once, and costs are told by name: {said}")
    rows = model.lp_.row_names_
    empty = np.flatnonzero(np.diff(_matrix(model.lp_).indptr) == 0) if rows else ()
    if any(UNNAMED.match(rows[i]) for i in empty):  # of "x + y >= 2 <= 10" HiGHS makes "0 <= 10"
        raise ProgramError(_two_limits(path) or f"{path} holds a row without variables and without a name: take it out")
    _check_lower(path, model.lp_)
    if said:  # an undefined row that was ignored, say
        warnings.warn(f"HiGHS on {path}: {said}", stacklevel=4)
    return model.lp_, _hessian(model.hessian_)
