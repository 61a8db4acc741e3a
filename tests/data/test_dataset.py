"""Data sets: what they refuse, how they split, batch, move, and survive a file."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, Subset, random_split

from dflearn.data import Batch, DecisionDataset, as_dataset, collate, split_rows
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


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"features": np.zeros((12, 3))}, "features must be a torch tensor, got ndarray"),
        ({"features": torch.zeros(12)}, r"features must have one row per instance.*\(12,\)"),
        ({"features": torch.zeros(12, 3, dtype=torch.int64)}, "features must be floating-point, got torch.int64"),
        ({"features": torch.tensor([[1.0]] * 11 + [[float("nan")]])}, "features holds a NaN.* in row 11"),
        ({"costs": torch.zeros(11, 4)}, "costs has 11 rows where the features have 12"),
        ({"costs": torch.zeros(12, 4, 1)}, "costs must have one row"),
        ({"costs": torch.full((12, 4), torch.inf)}, r"costs holds a NaN or an infinity in row 0 \(12 such rows\)"),
        ({"decisions": [1.0] * 12}, "decisions must be a torch tensor, got list"),
        ({"decisions": torch.zeros(12, 5, dtype=torch.bool)}, "decisions must be floating-point"),
        ({"instance": Instance(b=torch.zeros(10, 2))}, "instance.b has 10 rows"),
        ({"instance": Instance(h=torch.full((12, 2), torch.inf))}, "instance.h holds a NaN or an infinity"),
        ({"instance": Instance(lower=torch.full((12, 2), torch.nan))}, "instance.lower holds a NaN"),
        ({"ids": torch.zeros(12)}, "ids must be an int64 tensor"),
        ({"ids": torch.arange(11)}, "ids has 11 rows"),
        ({"weights": [1.0] * 12}, "weights must be a float64 tensor of shape .*got list"),
        ({"weights": torch.ones(12)}, "weights must be a float64 tensor of shape .*got torch.float32"),
        ({"weights": torch.ones(12, 1).double()}, r"weights must be .*\(12, 1\)"),
        ({"weights": torch.ones(11).double()}, "weights has 11 rows"),
        ({"weights": torch.arange(-2, 10).double()}, "not negative; row 0 has -2"),
        ({"weights": torch.full((12,), torch.nan).double()}, "weights are finite .* row 0 has nan"),
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


def test_an_empty_data_set_is_one() -> None:
    empty = dataset().subset(slice(0, 0))
    assert len(empty) == 0
    assert empty.batch().costs.shape == (0, 4)


# -- parts ----------------------------------------------------------------------------------------------------------


def test_indexing_takes_the_same_rows_of_everything() -> None:
    data = dataset()
    for index in (3, slice(2, 9, 3), [7, 1], torch.tensor([7, 1]), torch.arange(12) % 2 == 0):
        batch = data[index]
        assert torch.equal(batch.features, data.features[index])
        assert torch.equal(batch.costs, data.costs[index])
        assert torch.equal(batch.decisions, data.decisions[index])
        assert torch.equal(batch.instance.b, data.instance.b[index])
        assert torch.equal(batch.ids, data.ids[index])


def test_replace_makes_another_data_set() -> None:
    data = problem_named("SP-3", seed=1).generate(6)
    assert data.costs is not None
    other = dataclasses.replace(data, costs=2 * data.costs)
    assert isinstance(other, DecisionDataset)
    assert other.costs is not None
    torch.testing.assert_close(other.costs, 2 * data.costs)
    assert (other.features is data.features, other.ids is data.ids, other.origin) == (True, True, data.origin)
    with pytest.raises(DataError, match="costs has 3 rows"):
        dataclasses.replace(data, costs=data.costs[:3])


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


def test_a_subset_keeps_the_ids_of_the_whole() -> None:
    data = dataset()
    part = data.subset([7, 1, 4]).subset([2, 0])
    assert part.ids.tolist() == [104, 107]
    assert torch.equal(part.costs, data.costs[[4, 7]])


@pytest.mark.parametrize("seed", [1, 2, 5])
@pytest.mark.parametrize(
    ("count", "test", "validation"), [(2000, 1000, 0.2), (2000, 0.25, 0.2), (37, 0.3, 5), (10, 1, 0.01)]
)
def test_split_is_that_of_scikit_learn(seed: int, count: int, test: float, validation: float) -> None:
    data = DecisionDataset(torch.randn(count, 2, generator=torch.Generator().manual_seed(1)))
    rest, held_out = train_test_split(np.arange(count), test_size=test, random_state=seed)
    train, checked = train_test_split(rest, test_size=validation, random_state=seed)
    split = data.split(seed, test=test, validation=validation)
    assert split.train.ids.tolist() == train.tolist()
    assert split.validation.ids.tolist() == checked.tolist()
    assert split.test.ids.tolist() == held_out.tolist()
    assert torch.equal(split.test.features, data.features[held_out])


def test_the_published_split_is_800_200_1000() -> None:
    assert [len(part) for part in DecisionDataset(torch.zeros(2000, 1)).split(1)] == [800, 200, 1000]


def test_rows_are_split_as_scikit_learn_does_or_in_their_order() -> None:
    from sklearn.model_selection import train_test_split

    held_out, rest = split_rows(50, {"test": 13}, 4)
    train, test = train_test_split(range(50), test_size=13, random_state=4)
    assert (rest.tolist(), held_out.tolist()) == (train, test)
    parts = split_rows(10, {"train": 0.45, "validation": 2}, None)
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3, 4], [5, 6], [7, 8, 9]]
    with pytest.raises(OptionError, match="6 for train and 4 for validation leave none of 10"):
        split_rows(10, {"train": 6, "validation": 4}, 0)


@pytest.mark.parametrize(("test", "validation"), [(12, 0.2), (0, 0.2), (1.0, 0.2), (6, 6), (6, -0.1)])
def test_a_split_that_leaves_a_part_empty_is_refused(test: float, validation: float) -> None:
    with pytest.raises(OptionError, match=r"of (12|6) instances; it must leave both parts some"):
        dataset().split(0, test=test, validation=validation)


def test_with_decisions() -> None:
    data = dataset(decisions=None)
    labelled = data.with_decisions(torch.ones(12, 6))
    assert data.decisions is None
    assert torch.equal(labelled.decisions, torch.ones(12, 6))
    assert torch.equal(labelled.ids, data.ids)
    assert torch.equal(labelled.instance.b, data.instance.b)
    with pytest.raises(DataError, match="decisions has 11 rows"):
        data.with_decisions(torch.ones(11, 6))


def test_to_changes_numbers_but_not_ids() -> None:
    data = dataset().to(torch.float64)
    for name, value in data._tensors().items():
        assert value.dtype == (torch.int64 if name == "ids" else torch.float64), name
    batch = dataset()[:2].to(torch.float64)
    assert batch.instance.b.dtype == torch.float64
    assert batch.ids.dtype == torch.int64


# -- data loaders ---------------------------------------------------------------------------------------------------


def test_a_data_loader_gives_batches() -> None:
    data = dataset()
    batches = list(DataLoader(data, batch_size=5, collate_fn=collate))
    assert [len(batch.features) for batch in batches] == [5, 5, 2]
    assert isinstance(batches[0], Batch)
    assert torch.equal(torch.cat([batch.instance.b for batch in batches]), data.instance.b)


def test_a_shuffling_data_loader_sees_every_instance_once() -> None:
    order = torch.Generator().manual_seed(3)
    loader = DataLoader(dataset(), batch_size=5, shuffle=True, generator=order, collate_fn=collate)
    ids = torch.cat([batch.ids for batch in loader]).tolist()
    assert ids != sorted(ids)
    assert sorted(ids) == list(range(100, 112))


def test_a_data_loader_takes_torchs_own_subsets() -> None:
    part, _ = random_split(dataset(), [8, 4], generator=torch.Generator().manual_seed(0))
    ids = torch.cat([batch.ids for batch in DataLoader(part, batch_size=3, collate_fn=collate)])
    assert ids.tolist() == [100 + index for index in part.indices]


def test_collate_stacks_single_instances() -> None:
    data = dataset()
    batch, whole = collate([data[i] for i in (4, 0)]), data[[4, 0]]
    for name in ("features", "costs", "decisions", "ids"):
        assert torch.equal(getattr(batch, name), getattr(whole, name))
    assert torch.equal(batch.instance.b, whole.instance.b)
    assert batch.instance.h is None
    with pytest.raises(DataError, match="others lack"):
        collate([data[0], Batch(data.features[0])])


# -- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_file_gives_back_what_was_saved(tmp_path: Path, dtype: torch.dtype) -> None:
    path = tmp_path / "data.npz"
    for data in (dataset().to(dtype), DecisionDataset(torch.zeros(3, 4, 2)), dataset().subset(slice(0, 0))):
        data.save(path)
        assert_equal(DecisionDataset.load(path), data)
    assert [file.name for file in tmp_path.iterdir()] == ["data.npz"]


def test_a_file_can_be_read_without_dflearn(tmp_path: Path) -> None:
    dataset().save(tmp_path / "data.npz")
    with np.load(tmp_path / "data.npz", allow_pickle=False) as file:
        assert str(file["format"]) == FORMAT
        np.testing.assert_array_equal(file["instance.b"], dataset().instance.b)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data.npz"
    dataset().save(path)

    def fail(file: object, **arrays: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        dataset(5).save(path)
    assert_equal(DecisionDataset.load(path), dataset())
    assert [file.name for file in tmp_path.iterdir()] == ["data.npz"]


def test_bfloat16_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"bfloat16.*float32"):
        dataset().to(torch.bfloat16).save(tmp_path / "data.npz")


def write(path: Path, content: str) -> None:
    """A file that is not what it should be."""
    whole = {"format": FORMAT, "version": 1, "features": np.zeros((2, 1), np.float32)}
    if content == "text":
        path.write_text("feature,cost\n1,2\n")
    elif content == "nothing":
        path.touch()
    elif content == "an array":
        with open(path, "wb") as file:
            np.save(file, np.zeros(3))
    elif content == "other arrays":
        np.savez(path, features=np.zeros((2, 1)))
    elif content == "the future":
        np.savez(path, **{**whole, "version": 3})
    elif content == "an unknown field":
        np.savez(path, **whole, prices=np.zeros((2, 1)))
    elif content == "no features":
        np.savez(path, format=FORMAT, version=1)
    elif content == "a pickle":
        np.savez(path, **{**whole, "features": np.array([{"a": 1}], dtype=object)})
    elif content == "integers":
        np.savez(path, **{**whole, "features": np.zeros((2, 1), np.int64)})
    else:
        dataset().save(path)
        whole_bytes = bytearray(path.read_bytes())
        if content == "half a file":
            del whole_bytes[len(whole_bytes) // 2 :]
        else:
            whole_bytes[whole_bytes.index(b"features.npy") + 200] ^= 0xFF
        path.write_bytes(whole_bytes)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("text", "not a data set"),
        ("nothing", "not a zip file"),
        ("an array", "not a zip file"),
        ("other arrays", "its marker 'dflearn dataset' is missing"),
        ("the future", "its version is 3, newer than 1: update dflearn"),
        ("an unknown field", "prices"),
        ("no features", "features"),
        ("a pickle", "features holds object: numbers, booleans and text only"),
        ("integers", "features must be floating-point"),
        ("half a file", "not a data set"),
        ("a flipped bit", "CRC"),
    ],
)
def test_other_files_are_refused_with_the_reason(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "data.npz"
    write(path, content)
    with pytest.raises(DataError, match=reason) as raised:
        DecisionDataset.load(path)
    assert str(path) in str(raised.value)


def test_foreign_byte_order_is_read(tmp_path: Path) -> None:
    path, numbers = tmp_path / "data.npz", np.arange(6.0).reshape(2, 3)
    np.savez(path, format=FORMAT, version=1, features=numbers.astype(">f4"))
    assert torch.equal(DecisionDataset.load(path).features, torch.as_tensor(numbers).float())


def test_a_missing_file_is_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DecisionDataset.load(tmp_path / "data.npz")


def test_pickling() -> None:
    assert_equal(pickle.loads(pickle.dumps(dataset())), dataset())


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


# -- weights --------------------------------------------------------------------------------------------------------


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
