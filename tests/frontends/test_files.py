"""`from_mps` and `from_lp`: files that Gurobi wrote, and Gurobi's optimum; files by hand for what is rare."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import dflearn as dfl
from dflearn.errors import OptionError, ProgramError
from dflearn.frontends import files
from dflearn.frontends.linear_model import Rows
from support.gurobi_models import build, optimum
from support.random_models import COUNT, check, choose, random_model, solve, with_costs

READERS = {"mps": dfl.from_mps, "lp": dfl.from_lp}


@pytest.mark.parametrize("ending", READERS)
@pytest.mark.parametrize("seed", range(COUNT))
def test_random_models(seed: int, ending: str, tmp_path: Path, gurobi_environment: Any) -> None:
    model = random_model(seed)
    chosen = choose(model, seed)
    path = tmp_path / f"model.{ending}"
    build(model, gurobi_environment, ranges=True).write(str(path))
    kept = ending == "lp" and bool(model.offset)  # in LP files, Gurobi itself writes the constant as a fixed variable
    keep = seed % 5 == 0
    program = READERS[ending](path, [model.names[i] for i in chosen], keep_offset=keep)
    model, y = with_costs(model, chosen, seed)
    check(model, program, y, optimum(build(model, gurobi_environment)), offset=kept or keep)
    assert program.cost_names == tuple(model.names[i] for i in chosen)
    assert program.name == "model"


PLAN = """\
NAME plan
OBJSENSE
    MAX
ROWS
 N  profit
 N  weight
 L  hours
 G  demand
 E  balance
 L  band
 L  nothing
COLUMNS
    M1        'MARKER'                 'INTORG'
    x         profit    1.0            hours     1.0
    x         demand    1.0            weight    3.0
    M2        'MARKER'                 'INTEND'
    y         profit    2.0            hours     1.0
    y         balance   -1.0           band      2.0
    z         profit    -1.0           balance   1.0
    z         demand    1.0            band      1.0
RHS
    RHS       hours     4.0            demand    1.0
    RHS       balance   1.0            band      8.0
    RHS       profit    -10.0          nothing   3.0
RANGES
    RNG       band      5.0
BOUNDS
 UP BND       x         4.0
 LO BND       y         -1.0
 UP BND       y         1.0
 FR BND       z
ENDATA
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.mps"
    path.write_text(PLAN)
    return path


def test_an_upper_bound_below_zero_without_a_lower_one(plan: Path, tmp_path: Path) -> None:
    """Some tools take −∞ for the lower bound, others 0: it is to be written."""
    negative = PLAN.replace("x         4.0", "x         -4.0")
    plan.write_text(negative)
    with pytest.raises(ProgramError, match=r"upper bound -4 of 'x' is below its lower bound 0.* MI of 'x' in BOUNDS"):
        dfl.from_mps(plan)
    plan.write_text(negative.replace("BOUNDS\n", "BOUNDS\n MI BND       x\n"))
    assert (dfl.from_mps(plan).lower[0], dfl.from_mps(plan).upper[0]) == (-np.inf, -4)


def test_a_file_by_hand(plan: Path) -> None:
    """Maximization, an offset, a second free row, a range, an empty row, an integer, a free variable: all as written."""
    program = dfl.from_mps(plan)
    assert program.sense == "maximize"
    assert program.variable_names == program.cost_names == ("x", "y", "z")
    assert program.integer.tolist() == [True, False, False]
    np.testing.assert_array_equal(program.S.toarray(), -np.eye(3))
    np.testing.assert_array_equal(program.d, 0)
    np.testing.assert_array_equal(program.A.toarray(), [[0, -1, 1]])
    np.testing.assert_array_equal(program.b, [1])
    rows = {(tuple(row), side) for row, side in zip(program.G.toarray().tolist(), program.h, strict=True)}
    assert rows == {((1, 1, 0), 4), ((-1, 0, -1), -1), ((0, 2, 1), 8), ((0, -2, -1), -3)}
    np.testing.assert_array_equal(program.lower, [0, -1, -np.inf])
    np.testing.assert_array_equal(program.upper, [4, 1, np.inf])
    value, w = solve(program, np.array([1.0, 2.0, -1.0]))
    assert value == pytest.approx(3)  # x + 2y − z, where z = y + 1, is x + y − 1, and x + y ≤ 4
    np.testing.assert_allclose(w, [3, 1, 2])


def test_known_part_and_offset(plan: Path) -> None:
    program = dfl.from_mps(plan, ["z", "x"])
    assert program.cost_names == ("z", "x")
    np.testing.assert_array_equal(program.S.toarray(), [[0, -1], [0, 0], [-1, 0]])
    np.testing.assert_array_equal(program.d, [0, -2, 0])
    kept = dfl.from_mps(plan, ["z", "x"], keep_offset=True)
    assert kept.variable_names == ("x", "y", "z", "constant")
    assert solve(kept, np.array([-1.0, 1.0]))[0] == solve(program, np.array([-1.0, 1.0]))[0] + 10


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("small.lp", "Minimize\n x + 5 y\nSubject To\n 0.000000001 x + 0.000000002 y >= 1\nEnd\n"),
        (
            "small.mps",
            "ROWS\n N cost\n G need\nCOLUMNS\n x cost 1 need 1e-9\n y cost 5 need 2e-9\nRHS\n RHS need 1\nENDATA\n",
        ),
    ],
)
def test_small_entries(name: str, text: str, tmp_path: Path) -> None:
    """Unless told otherwise, HiGHS leaves out entries of at most 1e-9, and with them a row in large units."""
    (tmp_path / name).write_text(text)
    program = READERS[name[6:]](tmp_path / name, "all")
    assert dfl.HiGHS(program).solve(torch.tensor([1.0, 5.0])).decision.tolist() == pytest.approx([1e9, 0])


def test_compressed_file(plan: Path) -> None:
    packed = plan.with_name("plan.mps.gz")
    packed.write_bytes(gzip.compress(plan.read_bytes()))
    assert dfl.from_mps(packed).fingerprint == dfl.from_mps(plan).fingerprint


@pytest.mark.parametrize("number", ["nan", "NaN", "-nan", "nan(0x1)"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_nan_in_a_matrix_is_refused_with_its_place(number: str, packed: bool, tmp_path: Path) -> None:
    entry = "    z         profit    -1.0           balance   "
    text = PLAN.replace(f"{entry}1.0", f"{entry}{number}")
    assert number in text
    path = tmp_path / ("plan.mps.gz" if packed else "plan.mps")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    line = text[: text.index(number)].count("\n") + 1
    with pytest.raises(dfl.errors.ProgramError, match=rf"line {line}: .*'z' in row 'balance' is NaN.*fill it in"):
        dfl.from_mps(path)


def test_names_may_hold_these_letters(tmp_path: Path) -> None:
    path = tmp_path / "a.lp"
    path.write_text("\\ nan nan\nMinimize\n o: x + banana\nSubject To\n nan: x + 2 banana + 3 xnan >= 1\nEnd\n")
    assert dfl.from_lp(path).variable_names == ("x", "banana", "xnan")
    path = tmp_path / "plan.mps"
    path.write_text(PLAN.replace(" balance", " nan    "))
    assert "nan" in dfl.from_mps(path).constraint_names


def test_a_damaged_archive(tmp_path: Path) -> None:
    path = tmp_path / "plan.mps.gz"
    path.write_bytes(gzip.compress(PLAN.encode())[:-20])
    with pytest.raises(dfl.errors.ProgramError, match="cannot be read"):
        dfl.from_mps(path)


ROWS = """maximize
 profit: 3 x + 2 y + 1 z - 9 s
subject to
 capacity: x + y <= 7
 least: x + z >= 2
 balance: y - z + s = 1
 alone: x <= 4
bounds
 s >= 0
end
"""


def test_rows_are_predicted_where_no_variable_has_the_name(tmp_path: Path) -> None:
    """What is predicted takes the place of the file's right-hand side, with the sign in which the row is held."""
    path = tmp_path / "rows.lp"
    path.write_text(ROWS)
    costs = {"supply": {"capacity": 2.0, "alone": 1.0}, "need": {"least": 1.0, "balance": 3.0}, "price": {"x": 1.0}}
    program = dfl.from_lp(path, costs, recourse=["s"])
    assert program.cost_names == ("supply", "need", "price")
    y = torch.tensor([[5.0, 4.0, 3.0]], dtype=torch.float64)
    truth = program.realize(y)
    assert truth is not None
    solved = dfl.HiGHS(program).solve(y).check()
    plain = dfl.from_lp(tmp_path / "rows.lp", "all")
    changed = (
        ROWS.replace("<= 7", "<= 10").replace("x <= 4", "x <= 5").replace(">= 2", ">= 4").replace("= 1\n", "= 12\n")
    )
    path.write_text(changed)
    same = dfl.from_lp(path, "all")
    wanted = dfl.HiGHS(same).solve(torch.tensor([[3.0, 2.0, 1.0, -9.0]], dtype=torch.float64)).check()
    torch.testing.assert_close(solved.objective, wanted.objective)
    assert plain.G.shape[0] == program.G.shape[0] - 1  # a predicted row stays one, though it holds one variable
    assert program.recourse is not None
    assert program.recourse.tolist() == [name == "s" for name in program.variable_names or ()]
    limits, whole = (np.array([1.0]), np.array([2.0])), np.zeros(2, bool)
    with pytest.raises(ProgramError, match="two limits or none"):
        Rows(np.ones((1, 2)), *limits, whole, predicted=sp.csr_array([[1.0]]))
    with pytest.raises(OptionError, match="no variable 't'"):
        dfl.from_lp(path, ["x"], recourse=["t"])
    assert dfl.from_lp(path, ["capacity", "least"]).H is not None


PLAIN = "NAME T\n{}ROWS\n N COST\n L L1\nCOLUMNS\n X COST 1.0 L1 1.0\nRHS\n RHS L1 4.0\nENDATA\n"
SMALL = "Minimize\n obj: x + y\nSubject To\n c1: x + y >= 1\n{rows}Bounds\n x <= 4\n y <= 3\n{sections}End\n"
SHORT = "Minimize\n o: x + y\nSubject To\n c: {}\nEnd\n"
TWO = "Minimize\n o: x + y\nSubject To\n c: x + y >= 1\n{}\n d: x <= 3\nBounds\n 0 <= x <= 4\nEnd\n"
NAN = r"line 4: '.*' is read as the coefficient NaN"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.lp", SMALL.format(rows="", sections="SOS\n s: S1:: x:1 y:2\n"), "SOS not supported"),
        ("a.lp", SMALL.format(rows="", sections="Semi-continuous\n x\n"), "'x' is semi-continuous.*binary"),
        ("a.lp", SMALL.format(rows="", sections="").replace("x + y\n", "x + [ - x^2 ] / 2\n"), "positive semidefinite"),
        ("a.lp", SMALL.format(rows=" c2: 0 x <= -1\n", sections=""), "row 'c2' holds no variable.*nothing satisfies"),
        ("a.lp", SMALL.format(rows=" inflow: x >= -inf\n", sections=""), "line 5: HiGHS takes 'inflow' for infinity"),
        ("a.lp", SMALL.format(rows="", sections="").replace("x + y\n", "x + Influx\n"), "'Influx' for infinity.*MPS"),
        ("a.lp", SHORT.format("nan x + y >= 1"), NAN),
        ("a.lp", SHORT.format("x +NaN y >= 1"), NAN),
        ("a.lp", SHORT.format("x + y >= -nan"), NAN),
        ("a.lp", SHORT.format("x + 2 nano >= 1"), NAN),  # to HiGHS, 2 · NaN · o
        ("a.lp", TWO.format(" band: 2 <= x + 2 y <= 10"), "line 5: row 'band' has two limits.*two rows"),
        ("a.lp", TWO.format(" band: x +\n 2 y >= 2\n <= 10"), "line 7: row 'band' has two limits"),
        ("a.lp.gz", TWO.format(" band: x + 2 y >= 2 <= 10"), "line 5: row 'band' has two limits"),  # HiGHS would drop one
        ("a.lp.gz", TWO.format(" 2 <= x + 2 y <= 10"), "line 5: a row, '2 <= x"),
        ("a.lp", "Max\n o: 2 3 x\nSubject To\n c: x <= 1\nEnd\n", "'2 3' is two factors"),
        ("a.lp", "Min\n o: x + 2 [ x^2 ] / 2\nSubject To\n c: x <= 1\nEnd\n", "two factors"),
        ("a.lp", "Max\n o: x\nSubject To\n c: x <= 9\nBounds\n x <= 5\nBinaries\n x\nEnd\n", "binary variable 'x' has the bounds 0"),
        ("a.lp", "nonsense", "no variables"),
        ("a.mps", "nonsense", "no section of an MPS file"),
        ("a.mps", PLAN.replace("    z         profit    -1.0 ", "    x         profit    -1.0 "), "name each variable once"),
        ("a.mps", PLAN.replace("    5.0\n", "    5.0\n    RNG       nothing   1.0\n"), "'nothing'"),
        ("a.mps", PLAIN.format("OBJSENSE MAXIMIZE\n"), "line 2: write OBJSENSE MAX"),
        ("a.mps", PLAIN.format("MAX\n"), "line 2: 'MAX' is no section"),
        ("a.txt", PLAN, r"should end in \.mps"),
    ],
)  # fmt: skip
def test_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    """What no program can say, and what HiGHS would take for something else."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    with pytest.raises((OptionError, ProgramError), match=message):
        (dfl.from_lp if ".lp" in name else dfl.from_mps)(path)


@pytest.mark.parametrize("line", ["OBJSENSE MAX\n", "OBJSENSE\n MAXIMIZE\n", "OBJSENSE\nMAX\n"])
def test_senses(line: str, tmp_path: Path) -> None:
    path = tmp_path / "model.mps"
    path.write_text(PLAIN.format(line))
    assert dfl.from_mps(path).objective.sense == "maximize"


def test_a_file_that_highs_never_finishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.mps"
    path.write_text(
        "NAME          T\nROWS\n N  COST\n L  L1\nCOLUMNS\n    X 1       COST         1.0   L1           1.0\n"
        "RHS\n    RHS       L1           4.0\n\nENDATA\n"
    )
    monkeypatch.setattr(files, "PATIENCE", 0.5)
    with pytest.raises(ProgramError, match="names with spaces"):
        dfl.from_mps(path)
