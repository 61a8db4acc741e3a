"""The authors' Davis-Yin iteration by our sparse kernel against their dense matrices.

    python benchmarks/speed/as_published.py [--problems KP-400 CFL-200 …] [--quick] [--repeats 7] [--json results/bench/as_published.json]

`layer`: forward and backward of a batch of 32, 100 iterations and one more, τ as printed; sparse in float32, which is what the
authors compute in, and in float64, against dense in float32. `epochs`: a whole epoch of SCE^DYS with `fit`, 800 instances in
batches of 32, Adam; labels are random, since time does not depend on them. CPU time, in turns; medians; the dense layer is timed
three times and for two epochs, of which the second counts. With --problems, the other problems keep what the JSON file has of them.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch import Tensor

from dflearn.data import DecisionDataset
from dflearn.layers.base import Layer
from dflearn.losses import SCE
from dflearn.models import Linear
from dflearn.problems import PROBLEMS, problem_named
from dflearn.problems.base import Problem
from dflearn.studies.paper.as_published import AsPublished, SparseAsPublished
from dflearn.studies.paper.methods import PredictedPart, dys_printed
from dflearn.training import Callback, fit
from harness import by_place, command_line, earlier, medians, parser, report, step

QUICK = ("KP-400", "CFL-200")
TRAIN, BATCH = 800, 32


def layer(problem: Problem, repeats: int) -> dict[str, Any]:
    """Milliseconds, and how often each sparse one goes into the dense one."""
    costs = problem.generate(BATCH).batch().require("costs")
    options = dys_printed(problem.name)
    kinds: dict[str, Layer] = {
        "sparse": SparseAsPublished(problem, **options),  # type: ignore[arg-type]
        "sparse float64": SparseAsPublished(problem, **options, dtype=torch.float64),  # type: ignore[arg-type]
        "dense": AsPublished(problem, **options),  # type: ignore[arg-type]
    }

    def forward(kind: Layer) -> Tensor:
        with torch.no_grad():
            return kind(costs)

    few = min(repeats, 3)
    ahead = medians({name: lambda kind=kind: forward(kind) for name, kind in kinds.items()}, few)  # type: ignore[misc]
    both = medians({name: step(kind, costs) for name, kind in kinds.items()}, few)
    both |= medians({name: step(kinds[name], costs) for name in kinds if name != "dense"}, repeats)
    return {
        "problem": problem.name,
        **{f"{name} forward ms": 1e3 * seconds for name, seconds in ahead.items()},
        **{f"{name} both ms": 1e3 * seconds for name, seconds in both.items()},
        "forward ratio": ahead["dense"] / ahead["sparse"],
        "ratio": both["dense"] / both["sparse"],
        "ratio float64": both["dense"] / both["sparse float64"],
    }


class Clock(Callback):
    """CPU seconds of every epoch."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_start(self, run: Any) -> None:
        self.begun = time.process_time()

    def on_epoch_end(self, run: Any, row: dict[str, Any]) -> None:
        now = time.process_time()
        self.seconds.append(now - self.begun)
        self.begun = now


def epochs(problem: Problem, repeats: int) -> dict[str, Any]:
    """Seconds of a whole epoch, and the ratio."""
    data = problem.generate(TRAIN)
    objective = problem.program.objective
    parts = torch.rand(TRAIN, objective.p, generator=torch.Generator().manual_seed(1))
    train = DecisionDataset(data.features, data.costs, parts)

    def trained(kind: type[AsPublished | SparseAsPublished], count: int) -> list[float]:
        clock, model = Clock(), Linear(data.features.shape[1], objective.p, seed=1)
        loss = SCE(PredictedPart(kind(problem, **dys_printed(problem.name))))  # type: ignore[arg-type]
        fit(model, loss, train, epochs=count, batch_size=BATCH, lr=0.005, seed=1, callbacks=[clock], progress=False)
        return clock.seconds[1:]

    half = repeats // 2 + 1
    before, dense, after = trained(SparseAsPublished, half), trained(AsPublished, 2), trained(SparseAsPublished, half)
    sparse, dense_seconds = statistics.median(before + after), dense[0]
    return {"problem": problem.name, "sparse s": sparse, "dense s": dense_seconds, "ratio": dense_seconds / sparse}


SUBJECTS = {"layer": layer, "epochs": epochs}


def main() -> None:
    arguments = parser(__doc__, repeats=7)
    arguments.add_argument("--problems", nargs="+", help="default: the paper's twelve")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    kept = earlier(options.json, options.problems)
    order = list(dict.fromkeys([*PROBLEMS, *(options.problems or ())]))
    rows = {name: by_place(kept, name, order, "problem") for name in SUBJECTS}
    for name in options.problems or (QUICK if options.quick else PROBLEMS):
        problem = problem_named(name, seed=1)
        for subject, measure in SUBJECTS.items():
            rows[subject][0][name] = measure(problem, options.repeats)
            print(subject, rows[subject][0][name], flush=True)
    ordered = {subject: those() for subject, (_, those) in rows.items()}
    report("The authors' iteration, sparse and dense", ordered, options.json, command_line(kept))


if __name__ == "__main__":
    main()
