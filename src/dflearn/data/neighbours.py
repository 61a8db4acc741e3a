"""Labels that listen to the neighbours: robust where one observation of the costs says little (Schutte et al., 2024)."""

from __future__ import annotations

from pathlib import Path

import torch

from dflearn.data.dataset import DecisionDataset
from dflearn.data.labels import solve_cached
from dflearn.errors import DataError, OptionError
from dflearn.solvers.task import Decided, DecisionTask


def label_by_neighbours(
    data: DecisionDataset,
    problem: Decided,
    k: int = 10,
    share: float = 0.5,
    *,
    cache: str | Path | None = None,
    progress: bool = True,
) -> DecisionDataset:
    """The data with, for i and its k nearest neighbours j in feature space, y_ij = share · y_i + (1 − share) · y_j:

        y_i → mean over j of y_ij,   w*_i = mean over j of w*(y_ij)

    Decisions are then averages of optimal ones, feasible for linear programs only. Every loss takes them; train on them,
    and judge on the data themselves.

    Args:
        problem: what is decided: a `Problem`, a `Program`, an exact `Solver`, or a function from costs to a decision.
        k: neighbours, fewer than there are instances; nearest by Euclidean distance, so scale features first.
        share: what the instance itself counts; 1 gives the usual labels.
        cache, progress: as of `dflearn.label`.
    """
    if data.costs is None:
        raise DataError("neighbours' labels are averages of costs, and the data hold none")
    if not 1 <= k < len(data) or not 0 <= share <= 1:
        raise OptionError(f"need 1 <= k < {len(data)} (the instances) and 0 <= share <= 1; got {k}, {share}")
    if data.instance is not None and set(data.instance.present()) - {"d"}:
        raise DataError("these instances have constraints of their own, so decisions of neighbours may not be feasible")
    x = data.features.detach().double().reshape(len(data), -1)
    # Not as |x|² − 2 xᵀx' + |x'|², which has no digits left for features far from zero (dates, say).
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    nearest = distances.topk(k, largest=False).indices
    blends = share * data.costs.unsqueeze(1) + (1 - share) * data.costs[nearest]
    own = None
    if data.instance is not None:
        own = data.instance.map(lambda value: value.unsqueeze(1).expand(-1, k, -1))
    solution = solve_cached(
        DecisionTask.of(problem, data.costs.shape[1]).solver, blends, own, cache=cache, progress=progress
    ).check()
    return DecisionDataset(
        data.features, blends.mean(1), solution.decision.mean(1), data.instance, data.ids, data.origin, data.weights
    )
