"""The fresh problems: the contract of problems, optima that are not zero, costs that the features tell something about."""

from __future__ import annotations

import numpy as np
import pytest

from dflearn.problems import problem_named
from dflearn.studies.models import make_model
from dflearn.testing.problems import check_problem
from fresh_problems import FRESH, KNOWN


@pytest.mark.parametrize("name", FRESH)
def test_a_fresh_problem_keeps_the_contract(name: str) -> None:
    problem = problem_named(name, seed=3)
    check_problem(problem, count=2)
    assert problem.program.n <= 120
    known = problem.program.Q is not None or bool(problem.program.d.any())
    assert known == isinstance(problem, KNOWN)


@pytest.mark.parametrize("name", FRESH)
def test_its_features_tell_something_about_the_costs(name: str) -> None:
    problem = problem_named(name, seed=1)
    parts = problem.split(700, 1, 200, 100)
    assert len(parts.train) == getattr(problem, "ROWS", 400)
    optima = problem.relaxed_solver().solve(parts.test.batch().require("costs")[:20]).check().objective
    assert (optima.abs() > 1e-3).all()
    assert len(optima.unique()) > 10, "the optimum does not depend on the costs"
    model = make_model("linear or shared", tuple(parts.train.features.shape[1:]), problem.program.p, seed=0)
    assert model(parts.test.features).shape == parts.test.costs.shape
    (x, y), (u, v) = (_rows(part.features.numpy(), part.costs.numpy()) for part in (parts.train, parts.test))
    weights = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ (y - y.mean(0)))
    explained = 1 - np.square(v - y.mean(0) - u @ weights).sum() / np.square(v - y.mean(0)).sum()
    assert explained > 0.03


def _rows(features: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A row for each vector of features."""
    return (features, costs) if features.ndim == 2 else (features.reshape(-1, features.shape[-1]), costs.reshape(-1, 1))
