"""Data with names: `Batch` (what a loss sees) and `DecisionDataset` (what a run trains and is judged on)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import IO, Any, Literal, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data._utils.collate import default_collate_fn_map

from dflearn.data.split import split_rows
from dflearn.errors import DataError
from dflearn.files import replacing
from dflearn.program import Instance
from dflearn.reading import UNREADABLE, check_dense, read_npz

GATHERED = 2**21  # bytes of instances that `batches` gathers at once
FORMAT, VERSION = "dflearn dataset", 1  # the marker of a saved file, and the newest version that this code reads


@dataclass(frozen=True)
class Batch:
    """Some instances. Every field but the features may be missing.

    Attributes:
        features: `(*batch, k)` for a joint predictor, or `(*batch, p, k)` for one shared by all cost coefficients.
        costs: true costs y, `(*batch, p)`.
        decisions: optimal (or observed) decisions w*, `(*batch, n)`.
        instance: what differs between instances (right-hand sides, bounds, d).
        ids: dataset-wide instance numbers, int64 `(*batch,)`.
        start: what the layer may start from, `(*batch, width)`; put there by the training run.
        weights: how much each instance counts, `(*batch,)`; `None`: all the same. A loss is unreduced and does not read them.

    Examples:
        >>> batch = dfl.Batch(data.features, data.costs, data.decisions)
        >>> dfl.losses.MSE()(predicted, batch).shape
        torch.Size([40])
    """

    features: Tensor
    costs: Tensor | None = None
    decisions: Tensor | None = None
    instance: Instance | None = None
    ids: Tensor | None = None
    start: Tensor | None = None
    weights: Tensor | None = None

    def __iter__(self) -> Iterator[Tensor]:
        raise DataError("a batch has names, and is not unpacked: write batch.features, batch.costs, batch.decisions")

    def __getitem__(self, index: Any) -> Any:
        raise DataError("a batch has names: write batch.features, batch.costs and so on, and data[rows] for some rows")

    def require(self, field: Literal["costs", "decisions", "ids"]) -> Tensor:
        value = getattr(self, field)
        if value is None:
            raise DataError(f"this batch holds no {field}")
        return value

    def to(self, *args: Any, **kwargs: Any) -> Batch:
        """As of `Tensor.to`; ids and start stay as they are, and weights keep their precision."""
        return replace(self, **_moved(vars(self), args, kwargs))


def _moved(held: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The parts that are held, as of `Tensor.to`; ids and start stay as they are, and weights keep their precision."""
    kept, there = ("ids", "start", "weights"), {name: value for name, value in held.items() if value is not None}
    moved = {name: value if name in kept else value.to(*args, **kwargs) for name, value in there.items()}
    return moved | ({"weights": moved["weights"].to(moved["features"].device)} if "weights" in moved else {})


class Together(list[Batch]):
    """One whole batch, gathered at once: for a `DataLoader`, which asks for a list."""


def collate(batches: Batch | Sequence[Batch], **_: Any) -> Batch:
    """The `collate_fn` of a `DataLoader`: single instances among `batches` are stacked, a whole batch passes through.

    Examples:
        >>> loader = torch.utils.data.DataLoader(data, batch_size=8, collate_fn=dfl.data.collate)
        >>> next(iter(loader)).costs.shape
        torch.Size([8, 12])
    """
    if isinstance(batches, Batch):
        return batches
    if isinstance(batches, Together):
        return batches[0]

    def stack(values: Iterable[Any]) -> Any:
        held = list(values)
        if all(value is None for value in held):
            return None
        if any(value is None for value in held):
            raise DataError("some of the instances to collate hold a field that others lack")
        return whole(Instance, held) if isinstance(held[0], Instance) else torch.stack(held)

    def whole(kind: Any, parts: Sequence[Any]) -> Any:
        return kind(**{f.name: stack(getattr(part, f.name) for part in parts) for f in fields(kind)})

    return whole(Batch, batches)


class Split(NamedTuple):
    """The three parts of a data set.

    Examples:
        >>> train, validation, test = data.split(test=10, validation=6, seed=1)
        >>> len(train), len(validation), len(test)
        (24, 6, 10)
    """

    train: DecisionDataset
    validation: DecisionDataset
    test: DecisionDataset


@dataclass(init=False, repr=False, eq=False)
class DecisionDataset(torch.utils.data.Dataset[Batch]):
    """A whole data set by named fields, held as tensors; a slice of it is one too, and other indices give batches.

    Args:
        features: `(count, k)` or `(count, p, k)` (or any shape that the predictor reads).
        costs: true costs y, `(count, p)`, or `None`.
        decisions: optimal or observed decisions w*, `(count, n)`, or `None`.
        instance: what differs between instances, each field `(count, rows or n)`, or `None`.
        ids: int64 `(count,)`, by default 0, 1, …; subsets keep the ids of the whole.
        origin: where the data come from, as plain JSON values; kept by subsets and files. What `Problem.generate` writes
            there lets `problem_of_origin` build the problem again.
        weights: how much each instance counts in every mean, float64 `(count,)`, nonnegative and not all zero; `None`: all
            the same. An instance of weight 2 counts as two, one of weight 0 as none.

    Examples:
        >>> rows = dfl.DecisionDataset(features=torch.randn(5, 3), costs=torch.rand(5, 12))
        >>> len(rows), rows[:2].costs.shape, rows.decisions is None
        (5, torch.Size([2, 12]), True)
    """

    features: Tensor
    costs: Tensor | None
    decisions: Tensor | None
    instance: Instance | None
    ids: Tensor
    origin: dict[str, Any]
    weights: Tensor | None

    def __init__(
        self,
        features: Tensor,
        costs: Tensor | None = None,
        decisions: Tensor | None = None,
        instance: Instance | None = None,
        ids: Tensor | None = None,
        origin: Mapping[str, Any] | None = None,
        weights: Tensor | None = None,
    ) -> None:
        _check_numbers("features", features)
        self.origin, self.weights, count = dict(origin or {}), weights, features.shape[0]
        self.features, self.costs, self.decisions, self.instance = features, costs, decisions, instance
        self.ids = torch.arange(count) if ids is None else ids
        for name, value in self._tensors().items():
            if name in ("ids", "weights"):
                _check_column(name, value, torch.int64 if name == "ids" else torch.float64)
            elif name != "features":
                _check_numbers(name, value)
            if value.shape[0] != count:
                raise DataError(f"{name} has {value.shape[0]} rows where the features have {count}")
        if weights is not None:
            _check_weights(weights)

    def __len__(self) -> int:
        return self.features.shape[0]

    def __repr__(self) -> str:
        held = [f"{name} {tuple(value.shape[1:])}" for name, value in self._tensors().items() if name != "ids"]
        return f"DecisionDataset({len(self)} instances: {', '.join(held)})"

    def _tensors(self) -> dict[str, Tensor]:
        """Every tensor that is held, by name; those of the instance as `instance.b` and so on."""
        own = {name: getattr(self, name) for name in ("features", "costs", "decisions", "ids", "weights")}
        more = {} if self.instance is None else {f"instance.{k}": v for k, v in self.instance.present().items()}
        return {name: value for name, value in {**own, **more}.items() if value is not None}

    @classmethod
    def _of(cls, tensors: dict[str, Tensor], origin: Mapping[str, Any] | None) -> DecisionDataset:
        """The data set that `_tensors` took apart."""
        own = {name: value for name, value in tensors.items() if not name.startswith("instance.")}
        more = {name.removeprefix("instance."): value for name, value in tensors.items() if name not in own}
        return cls(**own, instance=Instance(**more) if more else None, origin=origin)

    def batch(self, index: Any = slice(None)) -> Batch:
        """The instances at `index` (anything that indexes a tensor)."""
        there = index
        if isinstance(index, Tensor) and self.features.is_cuda:
            there = index.to(self.features.device, non_blocking=True)  # once, not for every tensor that it picks from
        pick = lambda value: None if value is None else value[there]  # noqa: E731
        decisions = pick(self.decisions)
        if decisions is not None and self.costs is not None and decisions.dtype != self.costs.dtype:
            decisions = decisions.to(self.costs.dtype)
        ids, rest = self.ids[there if self.ids.is_cuda else index], (decisions, pick(self.instance))
        return Batch(self.features[there], pick(self.costs), *rest, ids, weights=pick(self.weights))

    def batches(self, order: Tensor, size: int) -> Iterator[Batch]:
        """The instances in that order, so many at a time. Several batches are gathered at once; but the features of each are
        aligned in memory, as of `batch`, since products of matrices are rounded by that."""
        tensors = self._tensors().values()
        if type(self).batch is not DecisionDataset.batch or any(value.requires_grad for value in tensors):
            yield from map(self.batch, order.split(size))  # parts of one whole would share a graph
            return
        held = sum(value[:1].nbytes for value in tensors)
        for index in order.split(size * max(1, GATHERED // (size * max(1, held)))):
            whole = self.batch(index)
            parts = {name: value.split(size) for name, value in vars(whole).items() if isinstance(value, Tensor)}
            sides = {} if whole.instance is None else {k: v.split(size) for k, v in whole.instance.present().items()}
            for i in range(len(parts["features"])):
                instance = None if whole.instance is None else Instance(**{k: part[i] for k, part in sides.items()})
                own = {name: part[i] for name, part in parts.items()}
                yield Batch(instance=instance, **own | {"features": own["features"].clone()})

    @overload
    def __getitem__(self, index: slice) -> DecisionDataset: ...
    @overload
    def __getitem__(self, index: Any) -> Batch: ...
    def __getitem__(self, index: Any) -> Batch | DecisionDataset:
        return self.subset(index) if isinstance(index, slice) else self.batch(index)

    def __getitems__(self, indices: Sequence[int]) -> Together:
        """What `DataLoader` calls, so that a batch is gathered at once. Its usual `collate_fn` learns of batches here, since an
        import has no side effects."""
        default_collate_fn_map.setdefault(Batch, collate)
        return Together([self.batch(torch.as_tensor(indices, dtype=torch.int64))])

    def subset(self, index: Any) -> DecisionDataset:
        """The instances at `index` (a slice, a mask or numbers) as a data set; ids are kept."""
        return self._of({name: value[index] for name, value in self._tensors().items()}, self.origin)

    def split(self, seed: int, test: int | float = 1000, validation: int | float = 0.2) -> Split:
        """Test set first, then validation set out of the rest, as by scikit-learn's `train_test_split` with `random_state=seed`.

        Each size is a number of instances, or a share (below 1) of what there is at that point, rounded up.
        """
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise DataError(f"split's first argument is the seed, and {seed!r} is none: write split(0, test={seed!r})")
        held_out, rest = split_rows(len(self), {"test": test}, seed)
        checked, train = split_rows(len(rest), {"validation": validation}, seed)
        return Split(self.subset(rest[train]), self.subset(rest[checked]), self.subset(held_out))

    def with_decisions(self, decisions: Tensor) -> DecisionDataset:
        """The same data with these decisions, `(count, n)`."""
        return self._of({**self._tensors(), "decisions": decisions}, self.origin)

    def with_features(self, features: Tensor) -> DecisionDataset:
        """The same data with these features, `(count, …)`."""
        return self._of({**self._tensors(), "features": features}, self.origin)

    def without_decisions(self) -> DecisionDataset:
        return self._of({name: value for name, value in self._tensors().items() if name != "decisions"}, self.origin)

    def to(self, *args: Any, **kwargs: Any) -> DecisionDataset:
        """As of `Tensor.to`; ids stay as they are, and weights keep their precision."""
        return self._of(_moved(self._tensors(), args, kwargs), self.origin)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one .npz file (numpy's format, nothing pickled). It appears whole or not at all."""
        content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "origin": json.dumps(self.origin)}
        for name, value in self._tensors().items():
            if value.dtype == torch.bfloat16:
                raise DataError(f"{name} is bfloat16, which numpy files cannot hold: call .to(torch.float32) first")
            content[name] = value.detach().cpu().numpy()
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DecisionDataset:
        """Read what `save` wrote; a file that is anything else, or damaged, is refused with the reason."""
        with open(path, "rb") as file:
            try:
                arrays = _read(file)
                origin = json.loads(str(arrays.pop("origin", "{}")))
                return cls._of({name: torch.as_tensor(array) for name, array in arrays.items()}, origin)
            except UNREADABLE as error:
                raise DataError(f"{path} is not a data set that can be read here: {error}") from error


def _read(file: IO[bytes]) -> dict[str, np.ndarray]:
    arrays = read_npz(file)
    if str(arrays.pop("format", "")) != FORMAT:
        raise DataError(f"its marker {FORMAT!r} is missing")
    version = int(check_dense(arrays, "version", "whole numbers", ()))
    if version > VERSION:
        raise DataError(f"its version is {version}, newer than {VERSION}: update dflearn")
    del arrays["version"]
    return arrays


def _check_numbers(name: str, value: Any) -> None:
    """A floating-point tensor with a row per instance and no NaN; only bounds may be infinite."""
    if not isinstance(value, Tensor):
        what, array = f"{name} must be a torch tensor, got {type(value).__name__}", np.array(value, object)
        if any(isinstance(cell, str | np.datetime64 | datetime) for cell in array.flat):
            why = "or pass the table to dflearn.train or DecisionFocusedRegressor, which encode them"
            raise DataError(f"{what} that holds more than numbers: encode text and dates first, {why}")
        raise DataError(f"{what}: use torch.as_tensor")
    if not value.is_floating_point():
        raise DataError(f"{name} must be floating-point, got {value.dtype}: call .float()")
    if value.ndim < 2 or (value.ndim > 2 and name != "features"):
        raise DataError(f"{name} must have one row per instance, (count, size); got shape {tuple(value.shape)}")
    bad = value.isnan() if name in ("instance.lower", "instance.upper") else ~value.isfinite()
    if bool(bad.any()):
        rows = bad.flatten(1).any(1).nonzero()
        where = f"{name} holds a NaN or an infinity in row {int(rows[0])} ({len(rows)} such rows)"
        raise DataError(f"{where}: drop these instances or fill in what is missing")


def _check_column(name: str, value: Any, kind: torch.dtype) -> None:
    if not isinstance(value, Tensor) or value.dtype != kind or value.ndim != 1:
        what = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise DataError(f"{name} must be a tensor of {kind} and shape (count,), got {what}: convert it, .to({kind})")


def _check_weights(weights: Tensor) -> None:
    bad = ~(weights.isfinite() & (weights >= 0))
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise DataError(f"weights are finite and not negative; row {row} has {float(weights[row]):g}")
    if len(weights) and not bool((weights > 0).any()):
        raise DataError("the weights of these instances are all zero, so nothing would count: leave the weights out")


Data = DecisionDataset | Subset[Any] | TensorDataset
"""What functions take as data: `as_dataset` makes a `DecisionDataset` of each.

Examples:
    >>> pair = torch.utils.data.TensorDataset(data.features, data.costs)  # may stand for a data set
    >>> dfl.evaluate(pair.tensors[1], problem, pair, progress=False).ratio_of_sums
    0.0
"""


def as_dataset(data: Data, name: str = "data") -> DecisionDataset:
    """The data as a `DecisionDataset`. `name` is for errors.

    A `TensorDataset` of two tensors holds features and costs; of three, features, costs and decisions. A `Subset` of any of
    these is its part. Everything else is refused, with what to do instead.

    Examples:
        >>> pair = torch.utils.data.TensorDataset(data.features, data.costs)
        >>> dfl.data.as_dataset(pair).costs.shape
        torch.Size([40, 12])
    """
    if isinstance(data, DecisionDataset):
        return data
    if isinstance(data, Subset):
        kinds = {str(getattr(one, "dtype", type(one).__name__)).removeprefix("torch.") for one in data.indices}
        if kinds == {"bool"}:
            remedy = "pass row numbers, mask.nonzero().flatten(), or DecisionDataset.subset(mask)"
            raise DataError(f"{name} is a Subset by a mask, whose True and False torch reads as rows 1 and 0: {remedy}")
        return as_dataset(data.dataset, name).subset(list(data.indices))  # type: ignore[arg-type]
    if isinstance(data, TensorDataset) and len(data.tensors) in (2, 3):
        features, costs = data.tensors[:2]
        return DecisionDataset(features, costs, data.tensors[2] if len(data.tensors) == 3 else None)
    if isinstance(data, TensorDataset):
        why = "which do not say what they are: name them, DecisionDataset(features, costs=…, decisions=…)"
        raise DataError(f"{name} is a TensorDataset of {len(data.tensors)} tensors, {why}")
    if isinstance(data, DataLoader):
        how = f"loader.dataset, and batch_size={data.batch_size}"
        raise DataError(f"{name} is a DataLoader, and batches are drawn here, by `seed`: pass its data set, {how}")
    if isinstance(data, (tuple, list)) and len(data) in (2, 3):
        decisions = ", decisions=…" if len(data) == 3 else ""
        raise DataError(
            f"{name} is a {type(data).__name__} of {len(data)}: name its parts, DecisionDataset(features, costs=…{decisions}), "
            "which are floating-point tensors with one row per instance"
        )
    remedy = "make one, DecisionDataset(features, costs=…), of floating-point tensors with one row per instance"
    raise DataError(f"{name} must be a DecisionDataset; got a {type(data).__name__}: {remedy}")
