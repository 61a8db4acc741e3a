"""Damage: processes that are killed, two writers of one cache.

Each check takes a seed and gives verdicts. What is killed is this very file, run as a script:

    python -m fuzz.durability (fit|label) FOLDER [SECONDS]

which does its work in FOLDER and prints a digest of the result; after SECONDS it kills itself, as `kill -9` would.
tests/ has flipped bits in checkpoints, studies that are killed, and full disks.
"""

import hashlib
import os
import random
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import dflearn as dfl
from fuzz.processes import script
from fuzz.verdicts import Verdict

NAME, ITEMS, FEATURES, EPOCHS = "fuzz.durability", 6, 3, 30
STUDY = """
problems = ["SP-3"]
methods = ["MSE"]
seeds = [1, 2, 3]

[settings]
points = 60
test = 20
epochs = 2
"""


def small_program(integer: bool = True) -> dfl.Program:
    return dfl.Program(G=[[3, 1, 2, 2, 1, 3], [1, 2, 3, 1, 2, 2]], h=[6, 6], upper=1, integer=integer)


def small_data(count: int, seed: int = 0) -> dfl.DecisionDataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, FEATURES, generator=generator)
    y = -(x @ torch.randn(FEATURES, ITEMS, generator=generator)).abs() - 0.1
    return dfl.DecisionDataset(x, y)


def train(checkpoint: Path | None, epochs: int) -> bytes:
    """The weights after so many epochs."""
    torch.manual_seed(0)
    data, model = small_data(24), dfl.models.Linear(FEATURES, ITEMS)
    data = dfl.label(data, dfl.HiGHS(small_program()), progress=False)
    loss = dfl.losses.SPOPlus(dfl.Exact(dfl.HiGHS(small_program(integer=False))))
    dfl.fit(model, loss, data, epochs=epochs, batch_size=8, checkpoint=checkpoint, progress=False)
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


def _killed(work: str) -> Callable[[int], list[Verdict]]:
    """Killed at any moment and begun again, the end is that of a run that was left alone."""

    def check(seed: int) -> list[Verdict]:
        rng = random.Random(seed)
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as quiet:
            for _ in range(2):
                script(NAME, work, folder, str(rng.uniform(0.0, 0.4))).communicate(timeout=600)
            told, errors = script(NAME, work, folder).communicate(timeout=600)
            wanted, _ = script(NAME, work, quiet).communicate(timeout=600)
        if told and told == wanted:
            return [Verdict("right")]
        last = errors.strip().splitlines()[-1:] if not told else [f"{told.strip()}, undisturbed {wanted.strip()}"]
        return [Verdict("silent wrong" if told else "crash", f"{work} after kill -9: {' '.join(last)}")]

    return check


def two_writers(seed: int) -> list[Verdict]:
    """Two processes label into one cache."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as quiet:
        both = [script(NAME, "label", folder) for _ in range(2)]
        told = [child.communicate(timeout=600) for child in both]
        wanted, _ = script(NAME, "label", quiet).communicate(timeout=600)
    if all(out == wanted and out for out, _ in told):
        return [Verdict("right")]
    return [Verdict("crash", f"two writers: {[errors.strip().splitlines()[-1:] for _, errors in told]}")]


CHECKS: dict[str, Callable[[int], list[Verdict]]] = {f"{work}, killed": _killed(work) for work in ("fit", "label")}
CHECKS["two writers"] = two_writers


def _work(work: str, folder: Path) -> bytes:
    if work == "fit":
        return train(folder / "run.pt", EPOCHS)
    data = dfl.label(
        small_data(400), dfl.HiGHS(small_program()), cache=folder, progress=False, accept=(dfl.Status.OPTIMAL,)
    )
    assert data.decisions is not None
    return data.decisions.numpy().tobytes()


def run_small_study(path: Path, study: Path, export: Path | None = None) -> list[Any]:
    """Run `STUDY` into the store at `path`; its records."""
    from dflearn.studies.config import read_study
    from dflearn.studies.driver import run_study
    from dflearn.studies.executors import InProcess
    from dflearn.studies.store import Store

    study.write_text(STUDY)
    configs = read_study(study).runs()
    with Store(path) as store:
        run_study(configs, store, InProcess(path.parent / "cache"), progress=False)
        if export is not None:
            store.export(export, instances=True)
        return [store.get(config) for config in configs]


def main(work: str, folder: str, seconds: str = "") -> None:
    torch.set_num_threads(1)
    if seconds:
        threading.Timer(float(seconds), lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    print(hashlib.sha256(_work(work, Path(folder))).hexdigest(), flush=True)
    os._exit(0)  # not waiting for the timer


if __name__ == "__main__":
    main(*sys.argv[1:])
