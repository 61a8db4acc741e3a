"""What HiGHS would read as another model than the one that was written, or never finish to read: refused before it does."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from dflearn.errors import ProgramError
from dflearn.reading import UNREADABLE, unpack

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
    """The lines of a text file, packed or not. What unpacks to too much, and would in HiGHS too, is refused by `unpack`."""
    with open(path, "rb") as plain:
        packed = plain.peek(2).startswith(PACKED)
        if packed and path.suffix != ".gz":  # HiGHS would unpack it all the same
            raise ProgramError(f"{path} is compressed, and its name does not end in .gz: rename it")
        for raw in io.BytesIO(unpack(plain.read(), "gzip")) if path.suffix == ".gz" else plain:
            yield raw.decode(errors="replace").rstrip()


def screen(path: Path, ending: str) -> None:
    """An error where the file holds something that HiGHS would take for something else, without a word."""
    try:
        if ending == "mps":
            _screen_mps(path)
        else:
            _screen_lp(path)
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
            spaces |= (
                len(pairs) % 2 == 1 and pairs[0].upper() != "'MARKER'" and not any(one.startswith("$") for one in pairs)
            )
            for row, value in zip(pairs[::2], pairs[1::2], strict=False):
                if NAN.fullmatch(value):
                    raise ProgramError(
                        f"{place}the coefficient of variable {variable!r} in row {row!r} is NaN, not a number: fill it in, "
                        "or leave it out"
                    )
    if spaces:
        _can_be_read(path)


def _can_be_read(path: Path) -> None:
    """An error where HiGHS does not come to an end: some files with spaces in names send its reader round in circles."""
    reading = (
        "import highspy, sys; h = highspy.Highs(); h.setOptionValue('output_flag', False); h.readModel(sys.argv[1])"
    )
    try:
        subprocess.run([sys.executable, "-c", reading, str(path)], timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired as error:
        raise ProgramError(
            f"{path} has names with spaces, and HiGHS does not come to an end with it: rename these rows and variables, or save "
            "the model in free MPS or LP format"
        ) from error


def _screen_lp(path: Path) -> None:
    for number, line in enumerate(lines_of(path), 1):
        text, place = line.partition("\\")[0], f"{path}, line {number}: "
        if "nan" in text.lower() and (found := NAN_IN_LP.search(text)):
            raise ProgramError(
                f"{place}{found[1]!r} is read as the coefficient NaN, not a number: fill it in, or rename what "
                "begins with these letters"
            )
        for word in WORD.findall(text) if "inf" in text.lower() else ():
            if word.lower().startswith("inf") and word.lower() not in ("inf", "infinity"):
                raise ProgramError(
                    f"{place}HiGHS takes {word!r} for infinity, as it does with all names in LP files that begin with inf: give it "
                    "another name, or save the model as MPS"
                )
        if found := TWO_FACTORS.search(text):
            raise ProgramError(
                f"{place}{found[1]!r} has a number before a factor, of which HiGHS makes a constant: multiply them"
            )


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
            raise ProgramError(
                f"{path}: variable {name!r} is binary and has the bounds {low:g} and {high:g}: which is it?"
            )
