"""`Instance`: what differs from instance to instance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from dflearn.errors import ShapeError


@dataclass(frozen=True)
class Instance:
    """The values in which instances differ; each field is optional and batched, `(*batch, rows or n)`.

    b, h are right-hand sides, lower, upper bounds, and d known costs; a field that is `None` is taken from the program. q ≥ 0 is added
    to the diagonal of the program's Q, ½ wᵀ(Q + diag(q)) w; `None` is zero. Matrices are shared by all instances.

    Examples:
        >>> choice = dfl.Program(A=[[1, 1]], b=[1], upper=5)
        >>> demand = dfl.Instance(b=torch.tensor([[2.0], [3.0]]))
        >>> dfl.HiGHS(choice).solve(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), demand).decision
        tensor([[2., 0.],
                [0., 3.]])
    """

    b: Tensor | None = None
    h: Tensor | None = None
    lower: Tensor | None = None
    upper: Tensor | None = None
    d: Tensor | None = None
    q: Tensor | None = None

    def present(self) -> dict[str, Tensor]:
        """The fields that are set, by name."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}

    def learned(self) -> dict[str, Tensor]:
        """The fields that a gradient is wanted for, by name."""
        wanted = torch.is_grad_enabled()
        return {name: value for name, value in self.present().items() if wanted and value.requires_grad}

    def map(self, function: Callable[[Tensor], Tensor]) -> Instance:
        """The instance with `function` applied to each field that is set."""
        return Instance(**{name: function(value) for name, value in self.present().items()})

    def __getitem__(self, index: Any) -> Instance:
        return self.map(lambda value: value[index])

    def to(self, *args: Any, **kwargs: Any) -> Instance:
        return self.map(lambda value: value.to(*args, **kwargs))

    @property
    def shape(self) -> torch.Size:
        """The batch shape, by which scikit-learn knows that an instance can be cut into folds like an array."""
        return self.batch_shape() or torch.Size()

    def batch_shape(self) -> torch.Size | None:
        """The common leading shape of the fields, or `None` when none is set."""
        shapes = {name: value.shape[:-1] for name, value in self.present().items()}
        if len(set(shapes.values())) > 1:
            raise ShapeError(f"the fields of an Instance must share their batch shape; got {shapes}")
        return next(iter(shapes.values()), None)
