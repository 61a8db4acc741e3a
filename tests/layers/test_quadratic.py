"""The way that is left when the kernels do not finish. Its answers are compared in tests/kernels and tests of `Smoothed`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dflearn.layers.quadratic import no_feasible_point, solve_with_highs
from dflearn.layers.smoothed import Smoothed
from dflearn.program import Instance, Program
from dflearn.solvers.base import Status

SUM = Program(A=np.ones((1, 3)), b=[1.0], upper=1)
C = np.array([1.0, 2.0, 6.0])


def instances(*sums: float) -> Instance:
    return Instance(b=torch.tensor(sums, dtype=torch.float64)[:, None])


def test_a_sum_that_the_bounds_allow() -> None:
    result = solve_with_highs(SUM, C, 2.0, SUM.sides(instances(1.0), 1).row(0))
    assert result.status is Status.OPTIMAL
    np.testing.assert_allclose(result.w, [0.75, 0.25, 0.0], atol=1e-7)  # c + 2w + λ = 0 inside: λ = −2.5


@pytest.mark.parametrize("b", [5.0, 1e21])
def test_no_decision_where_the_bounds_do_not_allow_the_sum(b: float) -> None:
    """The second would be infinite for HiGHS in the user's units."""
    result = solve_with_highs(SUM, C, 2.0, SUM.sides(instances(b), 1).row(0))
    assert result.status is not Status.OPTIMAL
    assert np.isnan(result.w).all()


def test_which_instances_have_no_feasible_point() -> None:
    sums = (1.0, 5.0, 3.0, -1e-3, 0.0)
    assert no_feasible_point(SUM, SUM.sides(instances(*sums), 5), 5).tolist() == [False, True, False, True, False]


def test_what_the_kernels_leave_is_first_asked_for_a_feasible_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that finish nothing: statuses and decisions are those of kernels that do."""
    from dflearn.layers import rows

    layer, y, instance = Smoothed(SUM, 2.0), torch.as_tensor(C).expand(3, 3), instances(1.0, 5.0, 2.0)
    expected = layer.solve(y, instance)
    run = rows.SmoothedRows.run

    def unfinished(self: rows.SmoothedRows, *args: object, **options: object) -> None:
        run(self, *args, **options)  # type: ignore[arg-type]
        answer = args[5]
        answer.residual[:], answer.infeasible[:] = np.inf, 0  # type: ignore[attr-defined]

    monkeypatch.setattr(rows.SmoothedRows, "run", unfinished)
    found = Smoothed(SUM, 2.0).solve(y, instance)
    assert found.status.tolist() == expected.status.tolist() == [Status.OPTIMAL, Status.INFEASIBLE, Status.OPTIMAL]
    assert found.fallback is not None
    assert found.fallback.tolist() == [True, False, True]
    torch.testing.assert_close(found.decision, expected.decision, equal_nan=True, atol=1e-7, rtol=0)
