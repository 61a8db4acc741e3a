"""What `fit` costs beyond the loop one would write by hand, and what `import dflearn` costs beyond `import torch`.

    python benchmarks/speed/training.py [--quick] [--repeats 15] [--json results/bench/training.json]

Both loops train the same linear model on the same data in the same order, and must end with the same weights, but for rounding. Imports are
timed in fresh processes: CPU time from start to end, less that of a process that imports nothing.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from dflearn.data import DecisionDataset
from dflearn.losses import MSE
from dflearn.models import Linear
from dflearn.training import fit
from harness import Rows, in_turns, main

INSTANCES, FEATURES, COSTS, BATCH, EPOCHS = 800, 10, 40, 32, 10
STEPS = EPOCHS * -(-INSTANCES // BATCH)
IMPORTS = {
    "nothing": "",
    "torch": "import torch",
    "dflearn": "import dflearn",
    "torch and dflearn": "import torch, dflearn",
    # `import dflearn` loads a name when it is first used: these are the names of the README's first example.
    "torch and what training uses": "import torch, dflearn as dfl\n"
    "dfl.problems.ShortestPath, dfl.label, dfl.models.Linear, dfl.losses.SCE, dfl.Smoothed, dfl.fit, dfl.evaluate",
    "torch and scipy.sparse": "import torch, scipy.sparse",
}
QUICK = ("nothing", "torch", "torch and what training uses")


def data() -> DecisionDataset:
    rng = np.random.RandomState(0)
    make = lambda *shape: torch.tensor(rng.normal(size=shape), dtype=torch.float32)  # noqa: E731
    return DecisionDataset(make(INSTANCES, FEATURES), make(INSTANCES, COSTS), make(INSTANCES, COSTS))


def by_hand(train: DecisionDataset) -> torch.nn.Module:
    model = Linear(FEATURES, COSTS)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    generator = torch.Generator().manual_seed(0)
    assert train.costs is not None
    for _ in range(EPOCHS):
        for rows in torch.randperm(INSTANCES, generator=generator).split(BATCH):
            loss = (model(train.features[rows]) - train.costs[rows]).square().mean(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


def with_fit(train: DecisionDataset, checkpoint: Path | None = None) -> torch.nn.Module:
    model = Linear(FEATURES, COSTS)
    fit(model, MSE(), train, epochs=EPOCHS, batch_size=BATCH, checkpoint=checkpoint, progress=False)
    return model


def overhead(options: Any) -> Rows:
    """Per step, beyond the loop by hand: medians of the differences within a round."""
    repeats = 5 if options.quick else options.repeats
    train = data()
    with TemporaryDirectory() as folder:
        fresh = iter(Path(folder) / f"{i}.pt" for i in range(repeats))
        ways: dict[str, Callable[[], torch.nn.Module]] = {
            "by hand": lambda: by_hand(train),
            "fit": lambda: with_fit(train),
            "fit, a checkpoint per epoch": lambda: with_fit(train, next(fresh)),
        }
        torch.testing.assert_close(by_hand(train).weight, with_fit(train).weight)  # fit's Adam is fused
        times = in_turns(ways, time.process_time, repeats)
    return [
        {
            "loop": name,
            "ms per step": 1e3 * statistics.median(found) / STEPS,
            "overhead ms": 1e3 * statistics.median(np.subtract(found, times["by hand"])) / STEPS,
            "by hand ratio": statistics.median(np.divide(times["by hand"], found)),
        }
        for name, found in times.items()
    ]


def imports(options: Any) -> Rows:
    """CPU seconds of fresh processes; medians, so a first one that reads from the disk does not count."""
    repeats, names = (3, QUICK) if options.quick else (7, tuple(IMPORTS))

    def children() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def run(code: str) -> Callable[[], Any]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    ways = {name: run(IMPORTS[name]) for name in names}
    times = in_turns(ways, children, repeats)
    return [
        {
            "import": name,
            "s": statistics.median(np.subtract(found, times["nothing"])),
            "beyond torch s": statistics.median(np.subtract(found, times["torch"])),
        }
        for name, found in times.items()
        if name != "nothing"
    ]


if __name__ == "__main__":
    main("Training loop and imports", __doc__, {"fit": overhead, "imports": imports}, 15)
