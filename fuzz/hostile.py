"""Hostile files: every kind of file that dflearn reads, changed in its structure by a seed (`fuzz.mutations`).

Each try runs in a process of its own, with limits on time and memory. It is right if the file is read, and refused if it ends in
an error of dflearn's. Anything else is a crash: another error, a signal, no end, or more memory than ten times the file and
`MEMORY`. Labels from a hostile cache must be those without a cache.

    python -m fuzz.hostile KIND SEED TRIES

tries one kind by so many mutations, and prints a verdict for each as a line of JSON.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch

import dflearn as dfl
from dflearn.errors import DflearnError
from dflearn.losses import SPOPlus
from dflearn.models import Linear
from dflearn.tables import saving
from fuzz import mutations
from fuzz.verdicts import Verdict

MEMORY = (
    400 * 2**20
)  # bytes beyond those of a try with nothing in hand: twice what may be unpacked, and code that is loaded
ADDRESSES = 8 * 2**30  # of the whole process
SECONDS = 60.0
TRIES = 8
ROWS, FEATURES, ITEMS = 24, 3, 6
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
STUDY = 'problems = ["SP-3"]\nmethods = ["MSE"]\nseeds = [1, 2]\n\n[settings]\npoints = 60\ntest = 20\nepochs = 2\n'


def _program() -> dfl.Program:
    return dfl.Program(G=[[3, 1, 2, 2, 1, 3], [1, 2, 3, 1, 2, 2]], h=[6, 6], upper=1, integer=True)


def _data() -> dfl.DecisionDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, FEATURES, generator=generator)
    return dfl.DecisionDataset(x, -(x @ torch.randn(FEATURES, ITEMS, generator=generator)).abs() - 0.1)


def _table(path: Path) -> None:
    from dflearn.tables.tables import write_table

    rng = np.random.RandomState(0)
    write_table(path, {"id": np.arange(9), "a": rng.rand(9), "b, b": rng.rand(9), "day": ["Mon", "Tue", "Wed"] * 3})


# -- making, changing and reading each kind ---------------------------------------------------------------------------


def _make_model(path: Path, model: str = "mlp", start: str = "zero") -> None:
    data = _data()
    assert data.costs is not None
    regressor = dfl.DecisionFocusedRegressor(_program().relax(), model=model, start=start, hidden=(4,), epochs=1)
    regressor.fit(data.features.numpy(), data.costs.numpy()).save(path)


def _read_model(path: Path) -> None:
    regressor = dfl.DecisionFocusedRegressor.load(path)
    width = regressor.n_features_in_
    regressor.predict(np.zeros((2, width)))


def _change_model(path: Path, rng: Random) -> None:
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    how = rng.randrange(5)
    if how == 0:
        path.write_bytes(mutations.any_bytes(path.read_bytes(), rng))
        return
    if how == 1:
        parts[saving.METADATA] = mutations.json_bytes(parts[saving.METADATA], rng)
    elif how == 2:
        weights = parts[saving.WEIGHTS]
        size = int.from_bytes(weights[:8], "little")
        head = mutations.json_bytes(weights[8 : 8 + size], rng) if rng.random() < 0.7 else weights[8 : 8 + size]
        length = rng.choice([len(head), 2**62, 0, len(head) + 7])
        parts[saving.WEIGHTS] = length.to_bytes(8, "little") + head + weights[8 + size :]
        if rng.random() < 0.3:
            parts[saving.WEIGHTS] = mutations.any_bytes(weights, rng)
    else:
        parts[saving.PROGRAM] = mutations.npz(parts[saving.PROGRAM], rng)
        try:  # who means harm gives the fingerprint of the program that is there
            known = saving._unpack(parts[saving.PROGRAM]).fingerprint
        except Exception:
            known = ""
        metadata = json.loads(parts[saving.METADATA])
        parts[saving.METADATA] = mutations.as_json({**metadata, "program": known or metadata["program"]})
    path.write_bytes(mutations.zipped(list(parts.items())))


def _train(path: Path, epochs: int = 3) -> None:
    torch.manual_seed(0)
    data, model = dfl.label(_data(), _program(), progress=False), Linear(FEATURES, ITEMS)
    loss = SPOPlus(dfl.Exact(dfl.HiGHS(_program().relax())))
    dfl.fit(model, loss, data, epochs=epochs, batch_size=8, checkpoint=path, progress=False)


def _change_checkpoint(path: Path, rng: Random) -> None:
    from dflearn.training import checkpoint

    if rng.random() < 0.25:
        path.write_bytes(mutations.any_bytes(path.read_bytes(), rng))
        return
    tensors = (torch.zeros(1).expand(10**11), torch.zeros(0), torch.full((6, 3), torch.nan), torch.arange(5))
    content = torch.load(path, weights_only=True)
    key = rng.choice([key for key in content if key != "config"] + ["model", "optimizer"])
    content[key] = mutations.tree(content[key], rng, (*mutations.VALUES[:-1], *tensors))
    checkpoint.save(path, content)
    if rng.random() < 0.1:  # compressed
        with zipfile.ZipFile(path) as archive:
            parts = [(name, archive.read(name)) for name in archive.namelist()]
        path.write_bytes(mutations.zipped([*parts, ("run/data/99", bytes(mutations.BOMB))], zipfile.ZIP_DEFLATED))


def _label(path: Path) -> None:
    """The cache lies in the folder of `path`."""
    found = dfl.label(_data(), _program(), cache=path.parent / "cache", progress=False).decisions
    wanted = dfl.label(_data(), _program(), progress=False).decisions
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
    if rng.random() < 0.3:
        file.write_bytes(mutations.any_bytes(file.read_bytes(), rng))
    else:
        mutations.sqlite(file, "solutions", rng)


def _make_store(path: Path) -> None:
    from dflearn.studies.config import read_study
    from dflearn.studies.driver import run_study
    from dflearn.studies.executors import InProcess
    from dflearn.studies.store import Store

    study = path.with_suffix(".toml")
    study.write_text(STUDY)
    with Store(path) as store:
        run_study(read_study(study).runs(), store, InProcess(path.parent / "cache"), progress=False)
        store.export(path.with_suffix(".jsonl"), instances=True)


def _read_store(path: Path) -> None:
    from dflearn.studies.store import Store, read_records

    read_records(path)
    if path.suffix == ".sqlite":
        with Store(path) as store:
            store.progress()
            store.failures()


def _change_store(path: Path, rng: Random) -> None:
    if rng.random() < 0.3:
        path.write_bytes(mutations.any_bytes(path.read_bytes(), rng))
    else:
        mutations.sqlite(path, rng.choice(["runs", "runs", "wanted"]), rng)


def _make_lines(path: Path) -> None:
    store = path.with_name("study.sqlite")
    _make_store(store)
    content = store.with_suffix(".jsonl").read_bytes()
    path.write_bytes(_packed(path, content))


def _packed(path: Path, content: bytes) -> bytes:
    ending = path.suffix
    return gzip.compress(content) if ending == ".gz" else lzma.compress(content) if ending == ".xz" else content


def _change_text(path: Path, rng: Random) -> None:
    """Text, packed or not; lines of JSON as JSON."""
    packed = path.read_bytes()
    content = (
        gzip.decompress(packed) if path.suffix == ".gz" else lzma.decompress(packed) if path.suffix == ".xz" else packed
    )
    how = rng.randrange(6)
    if how == 0:
        path.write_bytes(mutations.any_bytes(packed, rng))
    elif how == 1:
        bombs = [mutations.gzip_bomb(content), _packed(path, packed), gzip.compress(content)]
        if path.suffix == ".xz":
            bombs = [lzma.compress(bytes(mutations.BOMB), preset=0)]
        path.write_bytes(rng.choice(bombs))
    elif how < 4 and ".json" in path.name:
        lines = content.splitlines()
        place = rng.randrange(len(lines))
        lines[place] = mutations.json_bytes(lines[place], rng)
        path.write_bytes(_packed(path, b"\n".join(lines)))
    else:
        path.write_bytes(_packed(path, mutations.text(content, rng)))


def _change_bytes(path: Path, rng: Random) -> None:
    path.write_bytes(mutations.any_bytes(path.read_bytes(), rng))


def _change_npz(path: Path, rng: Random) -> None:
    change = mutations.any_bytes if rng.random() < 0.2 else mutations.npz
    path.write_bytes(change(path.read_bytes(), rng))


def _read_table(path: Path) -> None:
    from dflearn.tables.tables import read_mixed

    read_mixed(path, "id")


def _read_study(path: Path) -> None:
    from dflearn.studies.config import read_study

    read_study(path).runs()


def _read_map(path: Path) -> None:
    from dflearn.tables.table_files import read_cost_map

    read_cost_map(path)


def _read_predictions(path: Path) -> None:
    from dflearn.cli.judge import read_predictions

    read_predictions(path)


class Kind(NamedTuple):
    """A kind of file: its name, and what makes, changes and reads it."""

    name: str
    make: Callable[[Path], Any]
    change: Callable[[Path, Random], None]
    read: Callable[[Path], Any]


def _write(content: str) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(_packed(path, content.encode())) and None


KINDS: dict[str, Kind] = {
    "models": Kind("model.dfl", _make_model, _change_model, _read_model),
    "models of trees": Kind(
        "model.dfl", partial(_make_model, model="linear", start="boosting"), _change_model, _read_model
    ),
    "checkpoints": Kind("run.pt", partial(_train, epochs=2), _change_checkpoint, _train),
    "label caches": Kind("none", _make_cache, _change_cache, _label),
    "data sets": Kind("data.npz", lambda path: _data().save(path), _change_npz, dfl.DecisionDataset.load),
    "studies": Kind("study.sqlite", _make_store, _change_store, _read_store),
    "exports": Kind("study.jsonl", _make_lines, _change_text, _read_store),
    "exports, gz": Kind("all.jsonl.gz", _make_lines, _change_text, _read_store),
    "exports, xz": Kind("all.jsonl.xz", _make_lines, _change_text, _read_store),
    "MPS": Kind("small.mps", _write(MPS), _change_text, dfl.from_mps),
    "MPS, gz": Kind("small.mps.gz", _write(MPS), _change_text, dfl.from_mps),
    "LP": Kind("small.lp", _write(LP), _change_text, dfl.from_lp),
    "LP, gz": Kind("small.lp.gz", _write(LP), _change_text, dfl.from_lp),
    "CSV": Kind("table.csv", _table, _change_text, _read_table),
    "Parquet": Kind("table.parquet", _table, _change_bytes, _read_table),
    "study files": Kind("study.toml", _write(STUDY), _change_text, _read_study),
    "cost maps": Kind("map.json", _write('{"price": {"x": 1, "y": -2.5}, "wage": {"z": 3}}'), _change_text, _read_map),
    "predictions": Kind(
        "costs.npz",
        lambda path: np.savez(path, costs=np.ones((4, 2)), ids=np.arange(4)),
        _change_npz,
        _read_predictions,
    ),
}


# -- one try ----------------------------------------------------------------------------------------------------------


def _peak() -> int:
    """The most memory so far, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _attempt(work: Callable[[Path], Any], path: Path) -> tuple[str, str, int]:
    """Verdict, detail and bytes of memory of one reading."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak()
    try:
        work(path)
        said = ("right", "")
    except DflearnError as error:
        said = ("refused", f"{type(error).__name__}: {error}")
    except _WrongError as error:
        said = ("silent wrong", str(error))
    except BaseException as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        said = ("crash", f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})")
    return said[0], said[1][:500], _peak() - before


def _forked(work: Callable[[Path], Any], path: Path) -> tuple[str, str, int]:
    """`_attempt` in a process of its own."""
    here, there = os.pipe()
    child = os.fork()
    if not child:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1), os.dup2(quiet, 2)
            os.write(there, json.dumps(_attempt(work, path)).encode())
        finally:
            os._exit(0)
    os.close(there)
    ready, _, _ = select.select([here], [], [], SECONDS)
    said = b"" if not ready else os.read(here, 2**16)
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, code = os.waitpid(child, 0)
    os.close(here)
    if said:
        verdict, detail, memory = json.loads(said)
        return verdict, detail, memory
    ended = f"no end after {SECONDS:.0f} s" if not ready else f"the process ended with signal {os.WTERMSIG(code)}"
    return "crash", ended, 0


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
            subprocess.run(["cp", "-r", str(whole), str(folder)], check=True)
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
            subprocess.run(["rm", "-rf", str(folder)], check=True)
    return found


def _check(name: str) -> Callable[[int], list[Verdict]]:
    def check(seed: int) -> list[Verdict]:
        return tried(name, seed, TRIES)

    return check


def tried(name: str, seed: int, tries: int) -> list[Verdict]:
    """`attempts`, by a process of its own that has no threads."""
    command = [sys.executable, "-m", "fuzz.hostile", name, str(seed), str(tries)]
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = os.pathsep.join([str(Path(dfl.__file__).parents[1]), str(Path(__file__).parents[1])])
    environment = os.environ | {"PYTHONPATH": path} | one
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=tries * SECONDS + 600)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    if done.returncode or len(lines) < min(tries, 1):
        return [Verdict("crash", f"{name}, seed {seed}: {done.stderr.strip()[-300:]}")]
    return [Verdict(*line) for line in lines]


CHECKS: dict[str, Callable[[int], list[Verdict]]] = {name: _check(name) for name in KINDS}


def main(name: str, seed: str, tries: str) -> None:
    import highspy  # noqa: F401  # so that not every try imports them
    import pyarrow.parquet  # noqa: F401
    import safetensors.torch  # noqa: F401

    import dflearn.studies.driver
    import dflearn.studies.store  # noqa: F401

    torch.set_num_threads(1)
    for verdict in attempts(name, int(seed), int(tries)):
        print(json.dumps([verdict.verdict, verdict.detail]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
