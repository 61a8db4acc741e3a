"""`from_linprog` and `from_milp` against SciPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

import dflearn as dfl
from support.random_models import COUNT, check, choose, random_model, solve, with_costs


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_milp(seed: int) -> None:
    model = replace(random_model(seed), maximize=False, offset=0.0)
    chosen = choose(model, seed)
    half = len(model.M) // 2
    constraints = [
        LinearConstraint(sp.csr_array(model.M[:half]), model.row_lower[:half], model.row_upper[:half]),
        (model.M[half:], model.row_lower[half:], model.row_upper[half:]),
    ]
    arguments: dict[str, Any] = {
        "integrality": model.integer.astype(int),
        "bounds": Bounds(model.lower, model.upper),
        "constraints": constraints,
    }
    program = dfl.from_milp(model.c, **arguments, costs=chosen)
    model, y = with_costs(model, chosen, seed)
    answer = milp(model.c, **arguments)
    assert answer.success
    check(model, program, y, answer.fun)


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_linprog(seed: int) -> None:
    """Rows stay what and where they are; SciPy's way to say that there is no bound is understood."""
    model = replace(random_model(seed, free_rows=False), maximize=False, offset=0.0)
    chosen = choose(model, seed)
    equal = model.row_lower == model.row_upper
    above, below = np.isfinite(model.row_upper) & ~equal, np.isfinite(model.row_lower) & ~equal
    bounds = [(None if np.isinf(low) else low, high) for low, high in zip(model.lower, model.upper, strict=True)]
    arguments: dict[str, Any] = {
        "A_ub": np.vstack([model.M[above], -model.M[below]]),
        "b_ub": np.concatenate([model.row_upper[above], -model.row_lower[below]]),
        "A_eq": sp.csr_array(model.M[equal]),
        "b_eq": model.row_lower[equal],
        "bounds": bounds,
        "integrality": model.integer.astype(int),
    }
    program = dfl.from_linprog(model.c, **arguments, costs=chosen)
    np.testing.assert_array_equal(program.G.toarray(), arguments["A_ub"])
    np.testing.assert_array_equal(program.h, arguments["b_ub"])
    model, y = with_costs(model, chosen, seed)
    dense = {**arguments, "A_eq": arguments["A_eq"].toarray()}
    answer = linprog(model.c, **dense)
    assert answer.success
    check(model, program, y, answer.fun)


@pytest.mark.parametrize(
    "bounds",
    [(0, 1), [(0, 1)], [(0, 1)] * 3, np.array([[0, 1]] * 3), (None, 1), (0, None), [(0, None), (None, 2), (-1, 1)]],
)
def test_bounds_as_linprog_has_them(bounds: Any) -> None:
    rows = {"A_ub": [[1, 1, 1], [-1, -1, -1]], "b_ub": [2, 5]}
    c = np.array([1.0, -1.0, -2.0])
    value, _ = solve(dfl.from_linprog(**rows, bounds=bounds), c)
    assert value == pytest.approx(linprog(c, **rows, bounds=bounds).fun)


def test_bounds_of_integers_are_integers() -> None:
    """Also where they come from a row, up to rounding errors: 0.3 / 0.1 is not quite 3."""
    program = dfl.from_milp(constraints=([[0.1, 0], [2, 1]], [-1, 0], [0.3, 5]), bounds=(-0.5, 7.5), integrality=[1, 0])
    assert program.lower.tolist() == [0, -0.5]
    assert program.upper.tolist() == [3, 7.5]
    assert dfl.from_linprog([1], bounds=(-0.5, 7.5), integrality=1).upper.tolist() == [7]


ROW = {"A_ub": [[1, 1]], "b_ub": [1]}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dfl.from_linprog(**ROW, costs=[0]), "the rest of it is needed: pass c"),
        (lambda: dfl.from_linprog([1, 2], **ROW, costs=[2]), "outside 0 … 1"),
        (lambda: dfl.from_linprog([1, 2], **ROW, costs=[1, 1]), "holds 1 twice"),
        (lambda: dfl.from_linprog([1, 2], **ROW, costs="x"), "the indices"),
        (lambda: dfl.from_linprog([1, 2, 3], **ROW), "3 entries, but the constraints have 2"),
        (lambda: dfl.from_linprog(**ROW, bounds=[(0, 1)] * 3), "one for each variable"),
        (lambda: dfl.from_linprog(**ROW, integrality=[0, 2]), "semi-continuous"),
        (lambda: dfl.from_milp(constraints=([1, 1], 3, 2)), "row 0 should lie between 3.0 and 2.0"),
        (lambda: dfl.from_milp(constraints=([[1, 0], [1, 0]], [3, 0], [4, 1])), "bounds of variable 0 cross"),
    ],
)
def test_refused(make: Any, message: str) -> None:
    with pytest.raises((dfl.errors.OptionError, dfl.errors.ProgramError), match=message):
        make()
