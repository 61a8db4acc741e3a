"""The row system against dense linear algebra on the program's own rows."""

from __future__ import annotations

import numpy as np
import pytest

from dflearn.engine.smoothed.cpu import SmoothedRows
from dflearn.engine.smoothed.norm import origin_is_feasible
from dflearn.program import Program
from support.reference import random_case

SEEDS = range(12)


def dense(program: Program) -> np.ndarray:
    """The kept equalities and the inequalities, `(m, n)`."""
    return np.vstack([program.A.toarray()[program.equality_form().kept], program.G.toarray()])


@pytest.mark.parametrize("seed", SEEDS)
def test_projection_onto_a_face(seed: int) -> None:
    """factor · P v by the pseudo-inverse of the rows in force over the variables inside; dependent rows do not matter."""
    program, rng = random_case(seed).program.relax(), np.random.RandomState(seed)
    rows, matrix, count = SmoothedRows(program), dense(program), 11
    inside = (rng.uniform(size=(count, program.n)) < 0.7).astype(np.uint8)
    in_force = (rng.uniform(size=(count, len(matrix))) < 0.6).astype(np.uint8)
    v, factor = rng.normal(size=(count, program.n)), rng.normal(size=count)
    wanted = []
    for i in range(count):
        face = matrix[in_force[i] == 1] * inside[i]
        x = v[i] * inside[i]
        wanted.append(factor[i] * (x - np.linalg.pinv(face, rcond=1e-10) @ (face @ x)))
    found = rows.face(inside, rows.ordered(in_force), np.ones(1)).on(v, factor)[0]
    np.testing.assert_allclose(found, np.array(wanted).reshape(v.shape), atol=1e-8)


@pytest.mark.parametrize(("b", "feasible"), [(-1.0, False), (0.0, True), (1.0, False)])
def test_an_equation_forbids_the_origin_on_either_side(b: float, feasible: bool) -> None:
    program = Program(A=[[1.0, 1.0]], b=[b], lower=-2, upper=2)
    assert origin_is_feasible(SmoothedRows(program), program.own_sides, 2).tolist() == [feasible] * 2
