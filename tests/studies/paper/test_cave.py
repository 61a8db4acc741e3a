"""CaVE as published: the same steps as CVXPY's, and the same cone as ours."""

from __future__ import annotations

import warnings

import cvxpy
import numpy as np
import pytest
import torch

from dflearn.data import Batch
from dflearn.losses import CaVE
from dflearn.problems import problem_named
from dflearn.studies.paper.cave import CaVEAsPublished


def example(name: str) -> tuple[CaVEAsPublished, torch.Tensor, torch.Tensor]:
    """The loss, costs of three instances to predict with, and the optimal decisions of others."""
    problem = problem_named(name, seed=1)
    costs = problem.generate(3).costs
    assert costs is not None
    decisions = problem.solver().solve(costs.double()).check().decision
    noise = torch.randn(costs.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return CaVEAsPublished(problem.program), costs.double() + 3 * noise, decisions


@pytest.mark.parametrize("name", ["SP-4", "KP-12", "CFL-6x2"])
def test_three_steps_are_those_of_cvxpy(name: str) -> None:
    loss, predicted, decisions = example(name)
    for y, w in zip(predicted, decisions.numpy(), strict=True):
        v = -loss.program.objective.vector(y).numpy()
        multipliers = cvxpy.Variable(loss.normals(w).shape[0], nonneg=True)
        distance = cvxpy.sum_squares(v - multipliers @ loss.normals(w).toarray())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the solution may be inaccurate
            cvxpy.Problem(cvxpy.Minimize(distance)).solve(solver=cvxpy.CLARABEL, max_iter=3)
        expected = multipliers.value @ loss.normals(w).toarray()
        np.testing.assert_allclose(loss.project(v, w), expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["SP-4", "KP-12", "CFL-6x2"])
def test_many_steps_lead_to_the_exact_projection(name: str) -> None:
    _, predicted, decisions = example(name)
    batch = Batch(predicted, None, decisions)
    program = problem_named(name, seed=1).program
    values = [loss(predicted, batch) for loss in (CaVEAsPublished(program, 100), CaVE(program))]
    torch.testing.assert_close(*values, rtol=1e-4, atol=1e-5)


def test_the_gradient_holds_the_target_fixed() -> None:
    loss, predicted, decisions = example("KP-12")
    predicted.requires_grad_(True)
    loss(predicted, Batch(predicted.detach(), None, decisions)).sum().backward()
    assert predicted.grad is not None
    v = predicted.detach().clone().requires_grad_(True)  # values are maximized: v = ŷ
    target = np.stack([loss.project(*pair) for pair in zip(v.detach().numpy(), decisions.numpy(), strict=True)])
    (-torch.nn.functional.cosine_similarity(v, torch.as_tensor(target), dim=-1)).sum().backward()
    torch.testing.assert_close(predicted.grad, v.grad)
