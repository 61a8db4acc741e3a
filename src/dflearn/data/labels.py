"""Labels: exact, cold solves of many instances, each kept on disk as soon as it is known, so that none is paid twice."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dflearn.data.cache import Cache, believable, keys_of, solves_of
from dflearn.data.dataset import Data, DecisionDataset, as_dataset
from dflearn.errors import DataError, OptionError, SolverError
from dflearn.program import Instance
from dflearn.solvers.base import Raw, Solution, Solver, Status, check_costs, check_instance
from dflearn.solvers.task import Decided, DecisionTask

CHUNK = 32  # solves between two writes: what an interruption can cost at most
CHECKED = 1024  # answers of a cache that are checked at once
PROGRESS_DELAY = 2.0  # seconds before a progress bar appears


def label(
    dataset: Data,
    problem: Decided,
    *,
    cache: str | Path | None = None,
    progress: bool = True,
    workers: int = 1,
    accept: Sequence[Status] = (Status.OPTIMAL,),
) -> DecisionDataset:
    """The data set with optimal decisions w*(y) for its costs (replacing any it had).

    Decisions are of the costs' dtype where that holds them exactly, otherwise in float64; batches have the costs' dtype.

    Args:
        dataset: features and true costs.
        problem: what is decided: a `Problem`, a `Program`, an exact `Solver`, or a function from costs to a decision.
        cache: a folder that remembers solves (see `default_cache`), or `None` to remember nothing.
        workers: how many instances are solved side by side.
        accept: the statuses that make a label; add `Status.FEASIBLE` to take decisions that hit a limit.

    Examples:
        >>> labelled = dfl.label(problem.generate(5), problem.solver(), progress=False)
        >>> labelled.decisions.sum(1)  # each path has four edges
        tensor([4., 4., 4., 4., 4.])
    """
    dataset = as_dataset(dataset)
    if dataset.costs is None:
        raise DataError("these data hold no costs, so there is nothing to compute decisions from")
    solver = DecisionTask.of(problem, dataset.costs.shape[1]).solver
    with contextlib.ExitStack() as stack:
        if workers > 1:
            from dflearn.solvers.wrappers import Parallel

            solver = stack.enter_context(Parallel(solver, workers))
        chunk = CHUNK * workers
        costs = dataset.costs.double()
        solution = solve_cached(solver, costs, dataset.instance, cache=cache, progress=progress, chunk=chunk)
    solution.check(accept, name=lambda i: f"id {dataset.ids[i]}", what="decision for a label")
    short = solution.decision.to(dataset.costs.dtype)
    # The rounding of a label would be regret of a perfect prediction.
    return dataset.with_decisions(short if torch.equal(short.double(), solution.decision) else solution.decision)


def solve_cached(
    solver: Solver,
    y: Tensor,
    instance: Instance | None = None,
    *,
    cache: str | Path | None = None,
    progress: bool = True,
    chunk: int = CHUNK,
) -> Solution:
    """`solver.solve(y, instance)`, in chunks, where each instance that `cache` remembers, and `believable` passes, is not solved.

    Always cold. Equal instances are solved once. Every finished chunk is stored at once. y `(*batch, p)`; fields `(*batch, k)`.
    """
    begun = time.perf_counter()
    batch = check_costs(y, solver.objective)
    if solver.get_state():
        raise SolverError(f"the answers of {solver!r} depend on what it solved before; labels need an exact solver")
    if cache is not None and not solver.remembered:
        why = "nothing tells this function from another: give it a name, dflearn.from_callable(function, n, name=…)"
        warnings.warn(f"the answers of {solver!r} are not remembered, since {why}", RuntimeWarning, stacklevel=2)
        cache = None
    check_instance(instance, batch)
    count = batch.numel()  # not −1: a field without columns would not tell
    costs = y.detach().cpu().reshape(count, solver.objective.p)
    if instance is not None:
        instance = instance.map(lambda value: value.detach().cpu().reshape(count, value.shape[-1]))

    def part(rows: list[int]) -> tuple[Tensor, Instance | None]:
        return costs[rows].double(), None if instance is None else instance[rows]

    with contextlib.ExitStack() as stack:
        store = None if cache is None else stack.enter_context(Cache(Path(cache), solver))
        number: dict[Hashable, int] = {}  # of each different instance
        keys = range(count) if store is None else keys_of(solver, costs, instance, chunk)
        place = [number.setdefault(key, len(number)) for key in keys]
        different, first = list(number), np.unique(place, return_index=True)[1].tolist()  # and where it stands first
        answers, missing = Raw.empty(len(different), solver.objective.n), list(range(len(different)))
        if store is not None:
            held = [(i, record) for i in missing if (record := store.get(different[i])) is not None]
            known = set[int]()
            for start in range(0, len(held), CHECKED):
                index, records = zip(*held[start : start + CHECKED], strict=True)
                fine = believable(solver, *part([first[i] for i in index]), records)
                known.update(i for i, passes in zip(index, fine, strict=True) if passes)
            for i, record in held:
                if i in known:
                    answers.status[i], answers.objective[i], answers.bound[i], answers.decision[i] = record
            if len(known) < len(held):
                store.disbelieve(len(held) - len(known))
            missing = [i for i in missing if i not in known]
        bar = stack.enter_context(progress_bar(len(missing), "solving", progress))
        pieces = [missing[start : start + chunk] for start in range(0, len(missing), chunk)]
        batches = (part([first[i] for i in index]) for index in pieces)
        fields = ("decision", "status", "objective", "bound")
        for which, solution in solver.solve_each(batches):
            index = pieces[which]
            for name in fields:
                getattr(answers, name)[index] = getattr(solution, name).numpy()
            if store is not None:
                records = solves_of(solution)
                fine = believable(solver, *part([first[i] for i in index]), records)
                store.put((different[i], one) for i, one, passes in zip(index, records, fine, strict=True) if passes)
            bar.update(len(index))
    rows = torch.tensor(place, dtype=torch.int64)
    decision, *rest = (torch.as_tensor(getattr(answers, name))[rows] for name in fields)
    w = decision.to(y).reshape(*batch, solver.objective.n)
    status, objective, bound = (part.reshape(batch) for part in rest)
    return Solution(w, status, objective, bound, seconds=time.perf_counter() - begun)


def progress_bar(total: int, what: str, show: bool = True):  # type: ignore[no-untyped-def]  # tqdm has no types
    """A bar on a terminal, once the work has taken `PROGRESS_DELAY` seconds; silent otherwise."""
    from tqdm import tqdm

    return tqdm(total=total, desc=what, delay=PROGRESS_DELAY, disable=None if show else True, leave=False)


def label_by_neighbours(
    data: DecisionDataset,
    problem: Decided,
    k: int = 10,
    share: float = 0.5,
    *,
    cache: str | Path | None = None,
    progress: bool = True,
) -> DecisionDataset:
    """Labels that are robust where one observation of the costs says little (Schutte et al., 2024).

    For i and its k nearest neighbours j in feature space, y_ij = share · y_i + (1 − share) · y_j:

        y_i → mean over j of y_ij,   w*_i = mean over j of w*(y_ij)

    Averages of optimal decisions are feasible for linear programs only. Train on them, and judge on the data themselves.

    Args:
        problem: what is decided: a `Problem`, a `Program`, an exact `Solver`, or a function from costs to a decision.
        k: neighbours, fewer than there are instances; nearest by Euclidean distance, so scale features first.
        share: what the instance itself counts; 1 gives the usual labels.
        cache, progress: as of `dflearn.label`.

    Examples:
        >>> robust = dfl.data.label_by_neighbours(data, program, k=5, progress=False)
        >>> robust.decisions.shape
        torch.Size([40, 12])
    """
    if data.costs is None:
        raise DataError("neighbours' labels are averages of costs, and the data hold none")
    if not 1 <= k < len(data) or not 0 <= share <= 1:
        raise OptionError(f"need 1 <= k < {len(data)} (the instances) and 0 <= share <= 1; got {k}, {share}")
    if data.instance is not None and set(data.instance.present()) - {"d"}:
        raise DataError("these instances have constraints of their own, so decisions of neighbours may not be feasible")
    x = data.features.detach().double().reshape(len(data), -1)
    # |x|² − 2 xᵀx' + |x'|² would have no digits left for features far from zero (dates, say).
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    nearest = distances.topk(k, largest=False).indices
    blends = share * data.costs.unsqueeze(1) + (1 - share) * data.costs[nearest]
    own = None if data.instance is None else data.instance.map(lambda value: value.unsqueeze(1).expand(-1, k, -1))
    solver = DecisionTask.of(problem, data.costs.shape[1]).solver
    w = solve_cached(solver, blends, own, cache=cache, progress=progress).check().decision.mean(1)
    return DecisionDataset(data.features, blends.mean(1), w, data.instance, data.ids, data.origin, data.weights)
