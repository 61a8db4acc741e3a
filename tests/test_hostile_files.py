"""Files that mean harm: no crash, no bomb, no file outside, no believed lie."""

from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
import stat
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import dflearn as dfl
from dflearn.data.cache import _HEADER
from dflearn.errors import CheckpointError, DataError, DflearnError, ProgramError
from dflearn.files import replacing, write_whole
from dflearn.models import Trees
from dflearn.reading import LEAST, check_sparse, read_npz, unpack
from dflearn.studies.modules import install
from dflearn.studies.store import Store
from dflearn.tables import saving
from dflearn.training import checkpoint
from fuzz.verdicts import BAD
from support.small_problem import PROGRAM, knapsack_data
from support.study_records import made_up, tiny

DATA = knapsack_data(40, 1)
MATRIX = sp.csr_array(np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]))


# -- arrays -----------------------------------------------------------------------------------------------------------


def parts(**changes: Any) -> dict[str, np.ndarray]:
    whole = {name: np.array(getattr(MATRIX, name)) for name in ("data", "indices", "indptr", "shape")}
    return {f"G.{name}": np.asarray(array) for name, array in {**whole, **changes}.items()}


def test_a_sound_matrix_is_read() -> None:
    np.testing.assert_array_equal(check_sparse(parts(), "G").toarray(), MATRIX.toarray())


@pytest.mark.parametrize(
    "changes",
    [
        {"indptr": [0, 10**8, 3]},
        {"indptr": [1, 1, 3]},
        {"indptr": [0, 1, 2]},
        {"indptr": [0, 3]},
        {"indptr": [0.0, 1.0, 3.0]},
        {"indices": [1, 0, 3]},
        {"indices": [1, 0, -1]},
        {"indices": [1, 0]},
        {"data": [1.0, np.nan, 2.0]},
        {"data": [1, 2, 3]},
        {"shape": [2, 2**40]},
        {"shape": [-2, 3]},
        {"shape": [2, 3, 1]},
    ],
)
def test_a_matrix_that_lies_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"its (matrix|array) G"):
        check_sparse(parts(**changes), "G")


def test_a_model_with_a_matrix_that_lies_is_refused(tmp_path: Path) -> None:
    """Before, scipy read memory outside of the array, which ends the process."""
    path = tmp_path / "model.dfl"
    two = dfl.Program(G=np.ones((2, PROGRAM.n)), h=[2.0, 3.0], upper=1)
    dfl.DecisionFocusedRegressor(two, epochs=1).fit(DATA.features.numpy(), DATA.costs.numpy()).save(path)
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    for part, place, number in (("indptr", 1, 10**8), ("indices", 0, 10**7)):
        arrays = read_npz(io.BytesIO(held[saving.PROGRAM]))
        arrays[f"G.{part}"][place] = number
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in {**held, saving.PROGRAM: buffer.getvalue()}.items():
                archive.writestr(name, content)
        with pytest.raises(DataError, match="its matrix G has"):
            dfl.DecisionFocusedRegressor.load(path)


def test_a_model_larger_than_its_file_is_refused_unbuilt(tmp_path: Path) -> None:
    path = tmp_path / "model.dfl"
    model = dfl.DecisionFocusedRegressor(PROGRAM, model="mlp", hidden=(3,), epochs=1)
    model.fit(DATA.features.numpy(), DATA.costs.numpy()).save(path)
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    metadata = json.loads(held[saving.METADATA])
    metadata["parameters"]["hidden"] = [10**6, 10**6]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**held, saving.METADATA: json.dumps(metadata)}.items():
            archive.writestr(name, content)
    with pytest.raises(DataError, match=r"its model has 10\d+ weights, and the file \d+"):
        dfl.DecisionFocusedRegressor.load(path)


def test_trees_that_run_in_circles_are_refused() -> None:
    def trees(**changes: list[int]) -> Trees:
        sound = {"feature": [0, 0, 0], "left": [1, 1, 2], "right": [2, 1, 2], "missing_left": [0, 0, 0]}
        whole = {**sound, "threshold": [0.5, 0, 0], "value": [0, 1, 2], "base": [0.0], **changes}
        return Trees(1, {name: torch.tensor(part) for name, part in {"root": [[0]], **whole}.items()})

    trees().check(2)
    assert trees()(torch.tensor([[0.0, 0.0], [1.0, 0.0]])).flatten().tolist() == [1.0, 2.0]
    for wrong in ({"left": [1, 0, 2]}, {"feature": [2, 0, 0]}, {"right": [3, 1, 2]}, {"root": [[-1]]}, {"value": [0]}):
        with pytest.raises(DflearnError, match="its trees"):
            trees(**wrong).check(2)


def test_a_checkpoint_with_a_tensor_without_numbers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    checkpoint.save(path, {"config": {}, "model": {"weight": torch.zeros(1).expand(10**12)}})
    with pytest.raises(CheckpointError, match="without its numbers"):
        checkpoint.load(path, {})


# -- bombs ------------------------------------------------------------------------------------------------------------

ENDLESS = gzip.compress(b" " * 2**24, 1) * 16  # a quarter of a gigabyte


def test_what_unpacks_to_too_much_is_refused() -> None:
    packer = zlib.compressobj(1)
    stream = b"".join(packer.compress(bytes(2**24)) for _ in range(16)) + packer.flush()
    for packed, how in ((ENDLESS, "gzip"), (stream, "zlib")):
        with pytest.raises(DataError, match=rf"would unpack to more than {LEAST}.*with another tool"):
            unpack(packed, how)  # type: ignore[arg-type]
    for content in (b"", b"text" * 1000):
        assert unpack(gzip.compress(content), "gzip") == unpack(zlib.compress(content), "zlib") == content
    for cut in (gzip.compress(b"text" * 99)[:-9], b""):
        with pytest.raises((EOFError, DataError)):
            unpack(cut, "zlib" if not cut else "gzip")


@pytest.mark.parametrize("name", ["model.mps.gz", "model.mps", "model.lp.gz", "model.lp"])
def test_a_packed_program_is_no_bomb(name: str, tmp_path: Path) -> None:
    """HiGHS unpacks what is packed whatever its name."""
    path = tmp_path / name
    path.write_bytes(ENDLESS)
    message = "would unpack to more than" if name.endswith(".gz") else "is compressed, and its name does not end in .gz"
    with pytest.raises(ProgramError, match=message):
        (dfl.from_mps if ".mps" in name else dfl.from_lp)(path)


def test_a_study_with_a_bomb_or_a_view_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.sqlite"
    with Store(path) as store:
        store.put(made_up(tiny()))
    packer = zlib.compressobj(1)
    bomb = b"".join(packer.compress(bytes(2**24)) for _ in range(16)) + packer.flush()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET record = ?", (bomb,))
    connection.close()
    with Store(path) as store, pytest.raises(DataError, match="a run that cannot be read"):
        store.records()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE VIEW more AS SELECT 1")
    connection.close()
    with pytest.raises(DataError, match="it holds more than tables"):
        Store(path)


# -- label caches -----------------------------------------------------------------------------------------------------


def poisoned(folder: Path, w: np.ndarray, objective: float | None = None, bound: float | None = None) -> None:
    """Every entry of the cache says w; objective and bound stay, unless given."""
    (file,) = (folder / "solutions").glob("*.sqlite")
    connection = sqlite3.connect(file)
    with connection:
        for key, packed in connection.execute("SELECT key, packed FROM solutions").fetchall():
            status, old, low = _HEADER.unpack_from(zlib.decompress(packed))
            head = _HEADER.pack(status, old if objective is None else objective, low if bound is None else bound)
            entry = zlib.compress(head + w.astype(np.float64).tobytes())
            connection.execute("UPDATE solutions SET packed = ? WHERE key = ?", (entry, key))
    connection.close()


@pytest.mark.parametrize(
    ("w", "objective"), [(7.0, None), (0.5, None), (0.0, None), (0.0, 0.0), (np.nan, None), (-1.0, None)]
)
def test_a_poisoned_cache_is_not_believed(w: float, objective: float | None, tmp_path: Path) -> None:
    """Infeasible, not integral, of another objective, or worse than its bound."""
    wanted = dfl.label(DATA, PROGRAM, cache=tmp_path, progress=False)
    poisoned(tmp_path, np.full(PROGRAM.n, w), objective)
    with pytest.warns(RuntimeWarning, match="entries of the cache file .* are no answers"):
        found = dfl.label(DATA, PROGRAM, cache=tmp_path, progress=False)
    assert torch.equal(found.decisions, wanted.decisions)
    assert torch.equal(dfl.label(DATA, PROGRAM, cache=tmp_path, progress=False).decisions, wanted.decisions)  # replaced


def test_a_long_entry_is_solved_again(tmp_path: Path) -> None:
    few = DATA.subset(slice(0, 3))
    wanted = dfl.label(few, PROGRAM, cache=tmp_path, progress=False)
    poisoned(tmp_path, np.zeros(2**22))
    tracemalloc.start()
    with pytest.warns(RuntimeWarning, match="an entry of the cache file .* is damaged"):
        found = dfl.label(few, PROGRAM, cache=tmp_path, progress=False)
    assert tracemalloc.get_traced_memory()[1] < 2**24  # an entry unpacks to 32 MB
    tracemalloc.stop()
    assert torch.equal(found.decisions, wanted.decisions)


# -- writing ----------------------------------------------------------------------------------------------------------


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    path, victim = tmp_path / "model.dfl", tmp_path / "victim"
    victim.write_text("mine")
    path.with_name(f".{path.name}.{os.getpid()}.tmp").symlink_to(victim)
    write_whole(path, b"new")
    assert victim.read_text() == "mine"
    assert path.read_bytes() == b"new"
    with replacing(path) as first, replacing(path) as second:
        assert first != second


def test_threads_save_one_path(tmp_path: Path) -> None:
    path, texts = tmp_path / "notes.txt", [bytes([65 + k]) * 10_000 for k in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda content: [write_whole(path, content) for _ in range(50)], texts))
    assert path.read_bytes() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_the_umask_or_of_the_file_before(tmp_path: Path) -> None:
    path, plain = tmp_path / "notes.txt", tmp_path / "plain.txt"
    plain.write_text("as open() makes it")
    write_whole(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    path.chmod(0o600)
    write_whole(path, b"newer")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["../outside.py", "/tmp/outside.py", "inner/../../outside.py", "notes.txt"])
def test_modules_stay_in_their_folder(name: str) -> None:
    before = list(sys.path)
    with pytest.raises(DataError, match=r"no .py file inside of its folder"):
        install({"good.py": "", name: "raise SystemExit"})
    assert sys.path == before


# -- a sample of the fuzz ---------------------------------------------------------------------------------------------


KINDS = ("data sets", "models", "label caches", "MPS, gz")
TRIES = """
import json, sys
import highspy, pyarrow.parquet, safetensors.torch, sklearn.ensemble, torch
import dflearn.engine.exact.few_row_binary, dflearn.engine.smoothed.cpu, dflearn.layers.smoothed, dflearn.problems
import dflearn.solvers.oracles, dflearn.tables.regressor
from fuzz.hostile import attempts
torch.set_num_threads(1)
print(json.dumps({kind: [verdict.verdict for verdict in attempts(kind, 1000, 2)] for kind in sys.argv[1:]}))
"""


def test_hostile_files() -> None:
    """Two of each kind, in forks of one process without threads that has imported everything."""
    path = os.pathsep.join([str(Path(dfl.__file__).parents[1]), str(Path(__file__).parents[1])])
    command = [sys.executable, "-c", TRIES, *KINDS]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {kind: len(verdicts) for kind, verdicts in found.items()} == dict.fromkeys(KINDS, 2)
    assert not set(BAD) & {verdict for verdicts in found.values() for verdict in verdicts}
