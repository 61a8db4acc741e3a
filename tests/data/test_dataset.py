"""Data sets: what they refuse, how they split, batch, move, and survive a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, Subset

from dflearn.data import Batch, DecisionDataset, as_dataset, collate
from dflearn.data.dataset import FORMAT
from dflearn.errors import DataError, OptionError
from dflearn.problems import problem_named, problem_of_origin
from dflearn.program import Instance


def dataset(count: int = 12, **changes: object) -> DecisionDataset:
    rng = torch.Generator().manual_seed(0)
    numbers = lambda *shape: torch.randn(count, *shape, generator=rng)  # noqa: E731
    held = {
        "features": numbers(3),
        "costs": numbers(4),
        "decisions": numbers(5),
        "instance": Instance(b=numbers(2), upper=torch.full((count, 5), torch.inf)),
        "ids": torch.arange(count) + 100,
    }
    return DecisionDataset(**{**held, **changes})  # type: ignore[arg-type]


def assert_equal(first: DecisionDataset, second: DecisionDataset) -> None:
    one, other = first._tensors(), second._tensors()
    assert list(one) == list(other)
    for name, value in one.items():
        assert value.dtype == other[name].dtype, name
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"features": np.zeros((12, 3))}, "features must be a torch tensor, got ndarray"),
        ({"features": np.full((12, 3), "wet")}, "got ndarray that holds more than numbers: encode text and dates"),
        ({"features": torch.zeros(12)}, r"features must have one row per instance.*\(12,\)"),
        ({"features": torch.zeros(12, 3, dtype=torch.int64)}, "features must be floating-point, got torch.int64"),
        ({"features": torch.tensor([[1.0]] * 11 + [[float("nan")]])}, "features holds a NaN.* in row 11"),
        ({"costs": torch.zeros(11, 4)}, "costs has 11 rows where the features have 12"),
        ({"costs": torch.full((12, 4), torch.inf)}, r"costs holds a NaN or an infinity in row 0 \(12 such rows\)"),
        ({"instance": Instance(b=torch.zeros(10, 2))}, "instance.b has 10 rows"),
        ({"instance": Instance(h=torch.full((12, 2), torch.inf))}, "instance.h holds a NaN or an infinity"),
        ({"instance": Instance(lower=torch.full((12, 2), torch.nan))}, "instance.lower holds a NaN"),
        ({"ids": torch.zeros(12)}, "ids must be a tensor of torch.int64"),
        ({"weights": [1.0] * 12}, "weights must be a tensor of torch.float64 and shape .*got list"),
        ({"weights": torch.ones(12)}, "weights must be a tensor of torch.float64 and shape .*got torch.float32"),
        ({"weights": torch.ones(12, 1).double()}, r"weights must be .*\(12, 1\)"),
        ({"weights": torch.arange(-2, 10).double()}, "not negative; row 0 has -2"),
        ({"weights": torch.zeros(12).double()}, "weights of these instances are all zero"),
    ],
)
def test_unfit_data_are_refused(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        dataset(**changes)


def test_costs_decisions_and_instances_may_be_missing() -> None:
    data = DecisionDataset(torch.zeros(3, 4, 2))
    assert data.ids.tolist() == [0, 1, 2]
    assert repr(data) == "DecisionDataset(3 instances: features (4, 2))"
    assert data.batch([0, 2]).costs is None
    with pytest.raises(DataError, match="holds no decisions"):
        data.batch().require("decisions")


def test_indexing_takes_the_same_rows_of_everything() -> None:
    data = dataset()
    for index in (3, slice(2, 9, 3), [7, 1], torch.tensor([7, 1]), torch.arange(12) % 2 == 0):
        batch = data[index]
        assert torch.equal(batch.features, data.features[index])
        assert torch.equal(batch.costs, data.costs[index])
        assert torch.equal(batch.decisions, data.decisions[index])
        assert torch.equal(batch.instance.b, data.instance.b[index])
        assert torch.equal(batch.ids, data.ids[index])


def test_a_slice_is_a_data_set() -> None:
    """One that can be trained on, split and judged, as `subset` gives it; an instance, or some by number, are a batch."""
    data = dataset()
    for index in (slice(5), slice(2, 9, 3), slice(-3, None), slice(0, 0)):
        part = data[index]
        assert isinstance(part, DecisionDataset)
        assert part.origin == data.origin
        for name, value in part._tensors().items():
            assert torch.equal(value, data._tensors()[name][index])
    assert isinstance(data[3], Batch)
    assert isinstance(data[[3, 4]], Batch)


@pytest.mark.parametrize("seed", [1, 2, 5])
@pytest.mark.parametrize(("count", "test", "validation"), [(2000, 1000, 0.2), (2000, 0.25, 0.2), (37, 0.3, 5)])
def test_split_is_that_of_scikit_learn(seed: int, count: int, test: float, validation: float) -> None:
    data = DecisionDataset(torch.randn(count, 2, generator=torch.Generator().manual_seed(1)))
    rest, held_out = train_test_split(np.arange(count), test_size=test, random_state=seed)
    train, checked = train_test_split(rest, test_size=validation, random_state=seed)
    split = data.split(seed, test=test, validation=validation)
    assert split.train.ids.tolist() == train.tolist()
    assert split.validation.ids.tolist() == checked.tolist()
    assert split.test.ids.tolist() == held_out.tolist()
    assert torch.equal(split.test.features, data.features[held_out])


@pytest.mark.parametrize(("test", "validation"), [(12, 0.2), (0, 0.2), (1.0, 0.2), (6, 6), (6, -0.1)])
def test_a_split_that_leaves_a_part_empty_is_refused(test: float, validation: float) -> None:
    with pytest.raises(OptionError, match=r"of (12|6) instances; it must leave both parts some"):
        dataset().split(0, test=test, validation=validation)


def test_collate_stacks_single_instances() -> None:
    data = dataset()
    batch, whole = collate([data[i] for i in (4, 0)]), data[[4, 0]]
    for name in ("features", "costs", "decisions", "ids"):
        assert torch.equal(getattr(batch, name), getattr(whole, name))
    assert torch.equal(batch.instance.b, whole.instance.b)
    assert batch.instance.h is None
    with pytest.raises(DataError, match="others lack"):
        collate([data[0], Batch(data.features[0])])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_file_gives_back_what_was_saved(tmp_path: Path, dtype: torch.dtype) -> None:
    path = tmp_path / "data.npz"
    for data in (dataset().to(dtype), DecisionDataset(torch.zeros(3, 4, 2)), dataset().subset(slice(0, 0))):
        data.save(path)
        assert_equal(DecisionDataset.load(path), data)
    assert [file.name for file in tmp_path.iterdir()] == ["data.npz"]


def damaged(path: Path, damage: Callable[[bytes], bytes]) -> None:
    dataset().save(path)
    path.write_bytes(damage(path.read_bytes()))


def flipped(content: bytes) -> bytes:
    place = content.index(b"features.npy") + 200
    return content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]


def saved(path: Path, **changes: Any) -> None:
    np.savez(path, **({"format": FORMAT, "version": 1, "features": np.zeros((2, 1), np.float32)} | changes))


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda path: path.write_text("feature,cost\n1,2\n"), "not a data set"),
        (lambda path: path.touch(), "not a zip file"),
        (lambda path: np.savez(path, features=np.zeros((2, 1))), "its marker 'dflearn dataset' is missing"),
        (lambda path: saved(path, version=3), "its version is 3, newer than 1: update dflearn"),
        (lambda path: saved(path, prices=np.zeros((2, 1))), "prices"),
        (lambda path: np.savez(path, format=FORMAT, version=1), "features"),
        (lambda path: saved(path, features=np.array([{"a": 1}])), "features holds object: numbers, booleans and"),
        (lambda path: saved(path, features=np.zeros((2, 1), np.int64)), "features must be floating-point"),
        (lambda path: damaged(path, lambda content: content[: len(content) // 2]), "not a data set"),
        (lambda path: damaged(path, flipped), "CRC"),
    ],
)
def test_other_files_are_refused_with_the_reason(tmp_path: Path, write: Callable[[Path], None], reason: str) -> None:
    path = tmp_path / "data.npz"
    write(path)
    with pytest.raises(DataError, match=reason) as raised:
        DecisionDataset.load(path)
    assert str(path) in str(raised.value)


def test_the_origin_travels_with_the_data_and_gives_the_problem_back(tmp_path: Path) -> None:
    problem = problem_named("KP-12", seed=3, noise=0.25)
    data = problem.generate(10)
    data.with_decisions(torch.zeros(10, 12)).subset(slice(4)).to(torch.float64).save(tmp_path / "part.npz")
    again = problem_of_origin(DecisionDataset.load(tmp_path / "part.npz").origin)
    assert again == problem
    assert again.program.fingerprint == problem.program.fingerprint
    with pytest.raises(DataError, match="do not say which problem"):
        problem_of_origin(DecisionDataset(torch.zeros(2, 2)).origin)
    with pytest.raises(DataError, match="no problem of this version"):
        problem_of_origin({**data.origin, "items": 13})


def test_a_file_that_would_unpack_to_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez_compressed(path, format=FORMAT, version=1, features=np.zeros((2**12, 2**12 + 1)))
    with pytest.raises(DataError, match=r"its \d+ bytes would unpack to more than \d+.*with another tool"):
        DecisionDataset.load(path)


def test_weights_go_wherever_the_data_go(tmp_path: Path) -> None:
    weights = torch.rand(12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    data = dataset(weights=weights)
    rows = torch.tensor([7, 2, 2])
    for part in (data.batch(rows), data.subset(rows), as_dataset(Subset(data, rows.tolist()))):
        assert torch.equal(part.weights, weights[rows])
    assert torch.equal(data.with_decisions(torch.zeros(12, 5)).weights, weights)
    for half in (data.to(torch.float16), data.batch().to(torch.float16)):
        assert half.features.dtype == torch.float16
        assert torch.equal(half.weights, weights)  # not a digit is lost
    parts = data.split(seed=0, test=4, validation=2)
    for part in parts:
        assert torch.equal(part.weights, weights[part.ids - 100])
    loaded = next(iter(DataLoader(data, batch_size=5, collate_fn=collate)))
    assert torch.equal(loaded.weights, weights[:5])
    assert torch.equal(collate([data[3], data[4]]).weights, weights[3:5])
    data.save(tmp_path / "data.npz")
    assert_equal(DecisionDataset.load(tmp_path / "data.npz"), data)
    assert "weights" in repr(data)


@pytest.mark.parametrize("gathered", [1, 400, 2**21])
def test_batches_in_an_order_are_those_of_their_rows(gathered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dflearn.data.dataset.GATHERED", gathered)  # bytes: one batch, a few, all
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))[:11]
    weights = torch.linspace(0, 1, 12, dtype=torch.float64)
    for data in (dataset(), dataset(instance=None, costs=None, weights=weights)):
        batches = list(data.batches(order, 4))
        assert len(batches) == 3
        for batch, rows in zip(batches, order.split(4), strict=True):
            wanted = data.batch(rows)
            for name in ("features", "costs", "decisions", "ids", "weights"):
                one, other = getattr(batch, name), getattr(wanted, name)
                assert (one is None and other is None) or torch.equal(one, other), name
            if data.instance is None:
                assert batch.instance is None
                continue
            assert batch.instance is not None
            assert wanted.instance is not None
            assert batch.instance.present().keys() == wanted.instance.present().keys()
            for name, side in batch.instance.present().items():
                assert torch.equal(side, wanted.instance.present()[name])
