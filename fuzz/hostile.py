"""Hostile files: every kind of file that dflearn reads, changed in its structure by a seed (`fuzz.mutations`).

Each try runs in a process of its own, with limits on time and memory. It is right if the file is read, and refused if it ends in
an error of dflearn's. Anything else is a crash: another error, a signal, no end, or more memory than ten times the file and
`MEMORY`. Labels from a hostile cache must be those without a cache.

    python -m fuzz.hostile KIND SEED TRIES

tries one kind by so many mutations, and prints a verdict for each as a line of JSON.
"""

import contextlib
import gzip
import json
import lzma
import os
import resource
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch

import dflearn as dfl
from dflearn.errors import DflearnError
from dflearn.studies.config import read_study
from dflearn.studies.store import Store, read_records
from dflearn.tables import saving
from dflearn.tables.table_files import read_cost_map, read_predictions
from dflearn.tables.tables import read_mixed, write_table
from dflearn.training import checkpoint
from fuzz import mutations
from fuzz.durability import STUDY, run_small_study, small_data, small_program, train
from fuzz.processes import messages, script
from fuzz.verdicts import Verdict

MEMORY = 400 * 2**20  # bytes beyond those of a try with nothing in hand: twice what may be unpacked, and loaded code
ADDRESSES = 8 * 2**30  # of the whole process
SECONDS = 60.0
TRIES = 8
ROWS = 24
MPS = """NAME small
ROWS
 N cost
 L r
 E s
COLUMNS
    x cost 1 r 2
    y cost -2 r 1
    y s 1
    z cost 3 s 1
RHS
    RHS r 4 s 2
BOUNDS
 UP BND x 1
 UP BND y 1
ENDATA
"""
LP = "Maximize\n cost: x + 2 y + [ - x ^ 2 ] / 2\nSubject To\n r: 3 x + y <= 4\nBounds\n x <= 1\n y <= 1\nGenerals\n y\nEnd\n"


def _table(path: Path) -> None:
    rng = np.random.RandomState(0)
    write_table(path, {"id": np.arange(9), "a": rng.rand(9), "b, b": rng.rand(9), "day": ["Mon", "Tue", "Wed"] * 3})


def _make_model(path: Path) -> None:
    data = small_data(ROWS)
    assert data.costs is not None
    regressor = dfl.DecisionFocusedRegressor(small_program().relax(), model="mlp", start="zero", hidden=(4,), epochs=1)
    regressor.fit(data.features.numpy(), data.costs.numpy()).save(path)


def _read_model(path: Path) -> None:
    regressor = dfl.DecisionFocusedRegressor.load(path)
    regressor.predict(np.zeros((2, regressor.n_features_in_)))


def _change(path: Path, rng: Random) -> None:
    path.write_bytes(mutations.changed(path.read_bytes(), rng))


def _change_model(path: Path, rng: Random) -> None:
    """Who means harm gives the fingerprint of the program that is there."""
    _change(path, rng)
    with contextlib.suppress(Exception):
        parts = mutations.unzipped(path.read_bytes())
        program = saving._unpack(parts[saving.PROGRAM]).fingerprint
        parts[saving.METADATA] = json.dumps({**json.loads(parts[saving.METADATA]), "program": program}).encode()
        path.write_bytes(mutations.zipped(list(parts.items())))


def _change_checkpoint(path: Path, rng: Random) -> None:
    """Its bytes, or its content, sealed as if it were whole."""
    if rng.random() < 0.3:
        _change(path, rng)
        return
    tensors = (torch.zeros(1).expand(10**11), torch.zeros(0), torch.full((6, 3), torch.nan), torch.arange(5))
    content = torch.load(path, weights_only=True)
    key = rng.choice([key for key in content if key != "config"] + ["model", "optimizer"])
    content[key] = mutations.tree(content[key], rng, (*mutations.VALUES[:-1], *tensors))
    checkpoint.save(path, content)


def _label(path: Path) -> None:
    """The cache lies in the folder of `path`."""
    found = dfl.label(small_data(ROWS), small_program(), cache=path.parent / "cache", progress=False).decisions
    wanted = dfl.label(small_data(ROWS), small_program(), progress=False).decisions
    assert found is not None
    assert wanted is not None
    if not torch.equal(found, wanted):
        raise _WrongError("labels from the cache are others than without it")


class _WrongError(Exception):
    pass


def _make_cache(path: Path) -> None:
    _label(path)
    path.touch()


def _change_cache(path: Path, rng: Random) -> None:
    (file,) = (path.parent / "cache" / "solutions").glob("*.sqlite")
    _change(file, rng)


def _make_store(path: Path) -> None:
    run_small_study(path, path.with_suffix(".toml"), export=path.with_suffix(".jsonl"))


def _read_store(path: Path) -> None:
    read_records(path)
    if path.suffix == ".sqlite":
        with Store(path) as store:
            store.progress()


def _make_lines(path: Path) -> None:
    store = path.with_name("study.sqlite")
    _make_store(store)
    content = store.with_suffix(".jsonl").read_bytes()
    path.write_bytes(_packed(path, content))


def _packed(path: Path, content: bytes) -> bytes:
    ending = path.suffix
    return gzip.compress(content) if ending == ".gz" else lzma.compress(content) if ending == ".xz" else content


class Kind(NamedTuple):
    """A kind of file: its name, and what makes, reads and changes it."""

    name: str
    make: Callable[[Path], Any]
    read: Callable[[Path], Any]
    change: Callable[[Path, Random], None] = _change


def _write(content: str) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(_packed(path, content.encode()))


def _predictions(path: Path) -> None:
    np.savez(path, costs=np.ones((4, 2)), ids=np.arange(4))


KINDS: dict[str, Kind] = {
    "models": Kind("model.dfl", _make_model, _read_model, _change_model),
    "checkpoints": Kind("run.pt", partial(train, epochs=2), partial(train, epochs=3), _change_checkpoint),
    "label caches": Kind("none", _make_cache, _label, _change_cache),
    "data sets": Kind("data.npz", lambda path: small_data(ROWS).save(path), dfl.DecisionDataset.load),
    "studies": Kind("study.sqlite", _make_store, _read_store),
    "exports": Kind("study.jsonl", _make_lines, _read_store),
    "exports, gz": Kind("all.jsonl.gz", _make_lines, _read_store),
    "exports, xz": Kind("all.jsonl.xz", _make_lines, _read_store),
    "MPS": Kind("small.mps", _write(MPS), dfl.from_mps),
    "MPS, gz": Kind("small.mps.gz", _write(MPS), dfl.from_mps),
    "LP": Kind("small.lp", _write(LP), dfl.from_lp),
    "LP, gz": Kind("small.lp.gz", _write(LP), dfl.from_lp),
    "CSV": Kind("table.csv", _table, lambda path: read_mixed(path, "id")),
    "Parquet": Kind("table.parquet", _table, lambda path: read_mixed(path, "id")),
    "study files": Kind("study.toml", _write(STUDY), lambda path: read_study(path).runs()),
    "cost maps": Kind("map.json", _write('{"price": {"x": 1, "y": -2.5}, "wage": {"z": 3}}'), read_cost_map),
    "predictions": Kind("costs.npz", _predictions, read_predictions),
}


def _peak() -> int:
    """The most memory so far, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _attempt(pipe: Any, task: tuple[Callable[[Path], Any], Path]) -> None:
    """Sends verdict, detail and bytes of memory of one reading."""
    work, path = task
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(2, 1)
    Path("/proc/self/clear_refs").write_text("5")
    before, verdict, detail = _peak(), "right", ""
    try:
        work(path)
    except DflearnError as error:
        verdict, detail = "refused", f"{type(error).__name__}: {error}"
    except _WrongError as error:
        verdict, detail = "silent wrong", str(error)
    except BaseException as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        verdict, detail = "crash", f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"
    pipe.send((verdict, detail[:500], _peak() - before))


def _forked(work: Callable[[Path], Any], path: Path) -> tuple[str, str, int]:
    """`_attempt` in a process of its own."""
    with contextlib.closing(messages(_attempt, (work, path), SECONDS, "fork")) as answers:
        answer = next(answers)
    return ("crash", answer, 0) if isinstance(answer, str) else answer


def attempts(name: str, seed: int, tries: int) -> list[Verdict]:
    """So many changed files of one kind, and what became of them. The process forks: it must not have threads."""
    kind, found = KINDS[name], []
    with tempfile.TemporaryDirectory() as held:
        whole = Path(held, "whole")
        whole.mkdir()
        verdict, detail, _ = _forked(kind.make, whole / kind.name)
        if verdict == "right":
            verdict, detail, _ = _forked(kind.read, whole / kind.name)
        if verdict != "right":
            return [Verdict("crash", f"{name}: the file as it should be: {detail}")]
        for number in range(tries):
            folder = Path(held, str(number))
            shutil.copytree(whole, folder)
            path = folder / kind.name
            changed, why, _ = _forked(lambda one, n=number: kind.change(one, Random(f"{name} {seed} {n}")), path)
            if changed != "right":
                found.append(Verdict("crash", f"{name}, seed {seed}, try {number}: cannot be changed: {why}"))
                continue
            size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            verdict, detail, memory = _forked(kind.read, path)
            if memory > max(MEMORY, 10 * size):
                verdict, detail = "crash", f"{memory >> 20} MB for {size} bytes ({detail})"
            found.append(Verdict(verdict, f"{name}, seed {seed}, try {number}: {detail}"))
            shutil.rmtree(folder)
    return found


def tried(name: str, seed: int, tries: int = TRIES) -> list[Verdict]:
    """`attempts`, by a process of its own that has no threads."""
    process = script("fuzz.hostile", name, str(seed), str(tries))
    out, errors = process.communicate(timeout=tries * SECONDS + 600)
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("[")]
    if process.returncode or len(lines) < min(tries, 1):
        return [Verdict("crash", f"{name}, seed {seed}: {errors.strip()[-300:]}")]
    return [Verdict(*line) for line in lines]


CHECKS: dict[str, Callable[[int], list[Verdict]]] = {name: partial(tried, name) for name in KINDS}


def main(name: str, seed: str, tries: str) -> None:
    import highspy  # noqa: F401  # so that not every try imports them
    import pyarrow.parquet  # noqa: F401
    import safetensors.torch  # noqa: F401

    torch.set_num_threads(1)
    for verdict in attempts(name, int(seed), int(tries)):
        print(json.dumps([verdict.verdict, verdict.detail]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
