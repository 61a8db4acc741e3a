"""Any function as a solver: what it gets, what it may answer, and how its mistakes are told."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dflearn.errors import OptionError, ProgramError, ShapeError, SolverError
from dflearn.program import Instance
from dflearn.solvers.base import Status
from dflearn.solvers.callable import from_callable
from dflearn.solvers.wrappers import Parallel, Pooled


def negative(c: np.ndarray) -> np.ndarray:
    """min cᵀw over 0 ≤ w ≤ 1."""
    return (c < 0).astype(float)


def test_the_function_gets_the_whole_objective() -> None:
    solver = from_callable(negative, 3, 2, S=[[1, 0], [0, 2], [1, 1]], d=[0, -3, 0])
    y = torch.tensor([[1.0, 1.0], [-1.0, 0.5]])  # c = (1, −1, 2) and (−1, −2, −0.5)
    answer = solver.solve(y).check((Status.OPTIMAL,))
    assert answer.decision.tolist() == [[0, 1, 0], [1, 1, 1]]
    assert answer.objective.tolist() == [-1, -3.5]
    own = solver.solve(y, Instance(d=torch.zeros(2, 3)))
    assert own.decision.tolist() == [[0, 0, 0], [1, 0, 1]]
    assert "negative" in repr(solver)
    assert solver.identity == "from_callable negative"
    assert from_callable(negative, 3, name="my solver 2.1").identity == "from_callable my solver 2.1"


def test_answers_may_be_anything_like_an_array() -> None:
    for answer in ([0, 1], (0.0, 1.0), np.array([0, 1], np.int32), torch.tensor([0.0, 1.0])):
        solver = from_callable(lambda c, answer=answer: answer, 2)
        assert solver.solve(torch.ones(1, 2)).decision.tolist() == [[0, 1]]


def test_a_function_may_change_what_it_gets() -> None:
    def greedy(c: np.ndarray) -> np.ndarray:
        w = negative(c)
        c[:] = np.nan
        return w

    for batched in (False, True):
        answer = from_callable(greedy, 2, batched=batched).solve(torch.tensor([[1.0, -2.0]]))
        assert answer.objective.tolist() == [-2.0]


def test_nan_means_nothing_was_found() -> None:
    answer = from_callable(lambda c: np.where(c.sum() > 0, c, np.nan), 2).solve(
        torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    )
    assert answer.status.tolist() == [Status.OPTIMAL, Status.FAILED]
    assert answer.decision[1].isnan().all()
    with pytest.raises(SolverError, match="instance 1 is FAILED"):
        answer.check()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([1.0], r"instance 0: .* must return shape \(2,\); it returned \(1,\)"),
        ([[1.0, 2.0]], r"it returned \(1, 2\)"),
        (1.0, r"it returned \(\)"),
        (None, "must return shape|must return numbers"),
        ("path", "must return numbers of shape"),
    ],
)
def test_wrong_answers(answer: object, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        from_callable(lambda c: answer, 2).solve(torch.ones(1, 2))
    with pytest.raises(ShapeError, match=r"the batch: .* must return"):
        from_callable(lambda c: answer, 2, batched=True).solve(torch.ones(3, 2))


def fails_on_negative_sum(c: np.ndarray) -> np.ndarray:
    if c.sum() < 0:
        raise ZeroDivisionError("no such luck")
    return c


def test_errors_name_the_instance() -> None:
    y = torch.ones(6, 2)
    y[4] = -1
    solver = from_callable(fails_on_negative_sum, 2)
    with pytest.raises(
        SolverError, match="instance 4: fails_on_negative_sum raised ZeroDivisionError: no such luck"
    ) as caught:
        solver.solve(y)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(SolverError, match="among the instances 0, 1, 2, 3, 4, 5 that were solved, instance 4: fails"):
        Pooled(solver, ratio=1).solve(y)


def test_processes() -> None:
    """Plain functions run in processes, in order; an error there is told as here."""
    y = torch.rand(9, 3, generator=torch.Generator().manual_seed(0))
    with Parallel(from_callable(fails_on_negative_sum, 3), workers=2) as parallel:
        assert torch.equal(parallel.solve(y).decision, y)
        y[7] = -1
        with pytest.raises(
            SolverError, match=r"counting from instance 7, instance 0: fails_on_negative_sum raised Zero"
        ):
            parallel.solve(y)


def test_what_cannot_be_sent_to_processes() -> None:
    solver = from_callable(lambda c: c, 3)
    with (
        Parallel(solver, workers=2) as parallel,
        pytest.raises(ProgramError, match=r"cannot be sent to other processes .* define its function in a module"),
    ):
        parallel.solve(torch.ones(2, 3))


def test_refusals() -> None:
    with pytest.raises(OptionError, match="needs a function c → w; got a int"):
        from_callable(3, 2)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="p is 3, but n, without S, says 2 predicted costs"):
        from_callable(negative, 2, 3)
    with pytest.raises(OptionError, match="p is 3, but S says 1 predicted costs"):
        from_callable(negative, 2, 3, S=[[1], [1]])
