"""What `fit` costs beyond the loop one would write by hand, `import dflearn` beyond `import torch`, and the first gradient of all.

    python benchmarks/speed/training.py [--quick] [--repeats 15] [--subjects fit imports first] [--json results/bench/training.json]

Both loops train the same linear model on the same data in the same order, and must end with the same weights, but for rounding. Imports are
timed in fresh processes: CPU time from start to end, less that of a process that imports nothing. The first gradient, of
SCE^smoothed, is timed in a copy of the source in which nothing was compiled, after `dfl compile` there, and from a wheel made then.
"""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import dflearn as dfl
from harness import ROOT, Rows, in_turns, main

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
# Forward and backward of a batch of 32 or of one: CPU seconds.
FIRST = """import sys, time, torch, dflearn as dfl
torch.set_num_threads(1)
problem = dfl.problems.problem_named("SP-5", seed=1)
batch = dfl.label(problem.generate(int(sys.argv[1])), problem).batch()
loss, y = dfl.losses.SCE(dfl.Smoothed(problem.program, 1.0)), torch.ones_like(batch.require("costs")).requires_grad_()
begun = time.process_time()
loss(y, batch).mean().backward()
print(time.process_time() - begun)
"""


def data() -> dfl.DecisionDataset:
    rng = np.random.RandomState(0)
    make = lambda *shape: torch.tensor(rng.normal(size=shape), dtype=torch.float32)  # noqa: E731
    return dfl.DecisionDataset(make(INSTANCES, FEATURES), make(INSTANCES, COSTS), make(INSTANCES, COSTS))


def by_hand(train: dfl.DecisionDataset) -> torch.nn.Module:
    model = dfl.models.Linear(FEATURES, COSTS)
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


def with_fit(train: dfl.DecisionDataset, checkpoint: Path | None = None) -> torch.nn.Module:
    model = dfl.models.Linear(FEATURES, COSTS)
    dfl.fit(model, dfl.losses.MSE(), train, epochs=EPOCHS, batch_size=BATCH, checkpoint=checkpoint, progress=False)
    return model


def overhead(options: Any) -> Rows:
    """Per step, beyond the loop by hand: medians of the differences within a round."""
    repeats, train = 5 if options.quick else options.repeats, data()
    with TemporaryDirectory() as folder:
        fresh = iter(Path(folder) / f"{i}.pt" for i in range(repeats))
        ways: dict[str, Callable[[], torch.nn.Module]] = {
            "by hand": lambda: by_hand(train),
            "fit": lambda: with_fit(train),
            "fit, a checkpoint per epoch": lambda: with_fit(train, next(fresh)),
        }
        torch.testing.assert_close(by_hand(train).weight, with_fit(train).weight)  # fit's Adam is fused
        times = in_turns(ways, time.process_time, repeats)
    rows, base = [], times["by hand"]
    for name, found in times.items():
        each, more = (1e3 * statistics.median(seconds) / STEPS for seconds in (found, np.subtract(found, base)))
        ratio = statistics.median(np.divide(base, found))
        rows.append({"loop": name, "ms per step": each, "overhead ms": more, "by hand ratio": ratio})
    return rows


def children() -> float:
    """CPU seconds of all processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def imports(options: Any) -> Rows:
    """CPU seconds of fresh processes; medians, so a first one that reads from the disk does not count."""
    repeats, names = (3, QUICK) if options.quick else (7, tuple(IMPORTS))
    ways = {name: partial(subprocess.run, [sys.executable, "-c", IMPORTS[name]], check=True) for name in names}
    times = in_turns(ways, children, repeats)
    against = lambda found, base: statistics.median(np.subtract(found, times[base]))  # noqa: E731
    del ways["nothing"]
    return [
        {"import": name, "s": against(times[name], "nothing"), "beyond torch s": against(times[name], "torch")}
        for name in ways
    ]


def first(options: Any) -> Rows:
    """The first gradient where nothing was compiled, of a batch and of one instance; after `dfl compile`; and from a wheel."""
    with TemporaryDirectory() as folder:
        copy, installed = Path(folder) / "src", Path(folder) / "installed"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "compiled", "*.egg-info"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, folder)
        row = {"problem": "SP-5", "batch": BATCH, "s": first_gradient(copy), "batch of one s": first_gradient(copy, 1)}
        before = children()
        python(folder, copy, "-m", "dflearn", "compile")
        row |= {"dfl compile s": children() - before, "after dfl compile s": first_gradient(copy)}
        python(folder, copy, "-m", "build", "--no-isolation", "--wheel")
        (wheel,) = Path(folder, "dist").glob("*.whl")
        python(folder, copy, "-m", "pip", "install", "--no-deps", "--no-index", "--target", installed, wheel)
        return [row | {"from a wheel s": first_gradient(installed)}]


def first_gradient(source: Path, batch: int = BATCH) -> float:
    with TemporaryDirectory() as cache:
        return float(python(cache, source, "-c", FIRST, str(batch), NUMBA_CACHE_DIR=cache).splitlines()[-1])


def python(folder: str, source: Path, *arguments: str | Path, **variables: str) -> str:
    """What a command of this Python's prints, in a folder, with the package of `source`."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"} | variables
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    subjects = {"fit": overhead, "imports": imports, "first": first}
    main("Training loop, imports and the first gradient", __doc__, subjects, 15, quick=["fit", "imports"])
