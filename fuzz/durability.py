"""Damage: flipped bits in checkpoints, processes that are killed, full disks, two writers of one cache.

Each check takes a seed and gives verdicts. What is killed, or runs out of disk, is this very file, run as a script:

    python -m fuzz.durability (fit|label|study) FOLDER [SECONDS [BYTES]]

which does its work in FOLDER and prints a digest of the result; after SECONDS it kills itself, as `kill -9` would; no
file may grow beyond BYTES.
"""

from __future__ import annotations

import hashlib
import os
import random
import resource
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import dflearn as dfl
from dflearn.errors import CheckpointError, DflearnError
from dflearn.losses import SPOPlus
from dflearn.models import Linear
from dflearn.solvers.base import Status
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
    data, model = small_data(24), Linear(FEATURES, ITEMS)
    data = dfl.label(data, dfl.HiGHS(small_program()), progress=False)
    loss = SPOPlus(dfl.Exact(dfl.HiGHS(small_program(integer=False))))
    dfl.fit(model, loss, data, epochs=epochs, batch_size=8, checkpoint=checkpoint, progress=False)
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


def checkpoint_bits(seed: int) -> list[Verdict]:
    """One flipped bit: a `CheckpointError`, or the same weights in the end."""
    rng, verdicts = random.Random(seed), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.pt"
        train(path, 2)
        whole, wanted = path.read_bytes(), train(None, 4)
        for _ in range(8):
            damaged, place = bytearray(whole), rng.randrange(8 * len(whole))
            damaged[place // 8] ^= 1 << place % 8
            path.write_bytes(damaged)
            try:
                same = train(path, 4) == wanted
            except CheckpointError:
                verdicts.append(Verdict("refused"))
            except Exception as error:
                verdicts.append(Verdict("crash", f"bit {place} of {8 * len(whole)}: {type(error).__name__}: {error}"))
            else:
                text = f"bit {place} of {8 * len(whole)} was flipped: other weights"
                verdicts.append(Verdict("right") if same else Verdict("silent wrong", text))
    return verdicts


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


def full_disk(seed: int) -> list[Verdict]:
    """No room: an error of the library's own, and nothing half-written is left behind that a later run trips over."""
    verdicts = []
    for work in ("fit", "label"):
        with tempfile.TemporaryDirectory() as folder:
            size = random.Random(seed).choice([0, 700, 4096])
            told, errors = script(NAME, work, folder, "", str(size)).communicate(timeout=600)
            last = (errors.strip().splitlines() or [""])[-1]
            kind = last.split(":")[0].split(".")[-1]
            known = {error.__name__ for error in DflearnError.__subclasses__()}
            again, _ = script(NAME, work, folder).communicate(timeout=600)
        if not again:
            verdicts.append(Verdict("silent wrong", f"{work}: what a full disk left breaks the next run"))
        elif not told and kind not in known:
            verdicts.append(Verdict("crash", f"{work} on a full disk: {last}"))
        else:
            verdicts.append(Verdict("right" if told else "refused", last))
    return verdicts


def two_writers(seed: int) -> list[Verdict]:
    """Two processes label into one cache."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as quiet:
        both = [script(NAME, "label", folder) for _ in range(2)]
        told = [child.communicate(timeout=600) for child in both]
        wanted, _ = script(NAME, "label", quiet).communicate(timeout=600)
    if all(out == wanted and out for out, _ in told):
        return [Verdict("right")]
    return [Verdict("crash", f"two writers: {[errors.strip().splitlines()[-1:] for _, errors in told]}")]


CHECKS: dict[str, Callable[[int], list[Verdict]]] = {
    "checkpoints with flipped bits": checkpoint_bits,
    "fit, killed": _killed("fit"),
    "label, killed": _killed("label"),
    "study, killed": _killed("study"),
    "full disk": full_disk,
    "two writers": two_writers,
}


def _work(work: str, folder: Path) -> bytes:
    if work == "fit":
        return train(folder / "run.pt", EPOCHS)
    if work == "label":
        data = dfl.label(
            small_data(400), dfl.HiGHS(small_program()), cache=folder, progress=False, accept=(Status.OPTIMAL,)
        )
        assert data.decisions is not None
        return data.decisions.numpy().tobytes()
    records = run_small_study(folder / "study.sqlite", folder / "study.toml")
    return repr([record and record.metrics for record in records]).encode()


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


def main(work: str, folder: str, seconds: str = "", size: str = "") -> None:
    torch.set_num_threads(1)
    if size:  # of any file: writing beyond it is an error, as on a full disk
        train(None, 1)  # compiled code is loaded, and temporary files are there
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
    if seconds:
        threading.Timer(float(seconds), lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    print(hashlib.sha256(_work(work, Path(folder))).hexdigest(), flush=True)
    os._exit(0)  # not waiting for the timer


if __name__ == "__main__":
    main(*sys.argv[1:])
