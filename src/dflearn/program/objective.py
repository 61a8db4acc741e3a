"""obj(y, w) = (S y + d)ᵀ w + ½ wᵀQ w, apart from any constraints; and `Parts`, what a program consists of beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.errors import OptionError, ProgramError, ShapeError
from dflearn.pickling import WithoutCaches
from dflearn.program.arrays import LinearMap, read_matrix, read_vector
from dflearn.program.instance import Instance
from dflearn.program.names import RightHandSide
from dflearn.program.quadratic import Quadratic
from dflearn.program.sides import Sides

Sense = Literal["minimize", "maximize"]
Value = Callable[[np.ndarray, np.ndarray], Any]


class Objective(WithoutCaches):
    """obj(y, w) = (S y + d)ᵀ w + ½ wᵀQ w: linear in the predicted costs y (p), convex in the decision w (n).

    `S=None` is the identity (n = p); `d=None` and `Q=None` are zero. Calling it gives obj, `difference` obj(y, w) − obj(y, v),
    `vector` gives c = S y + d, `slope` c + Q w, `transpose` Sᵀ v. All are differentiable and keep dtype and device of
    their first argument. An instance's q is added to the diagonal of Q.

    Where own code solves for more than that, `value` is what a decision truly costs: numpy float64 y `(count, p)`, w `(count, n)` →
    `(count,)`, less being better. `true_cost` and `regret` judge decisions by it. `sense` is for reports alone.

    Examples:
        >>> objective = dfl.Objective(2, d=[0, 1])
        >>> objective(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 2.0]))  # 3 · 1 + (4 + 1) · 2
        tensor(13.)
    """

    made_anew: ClassVar = {"_constants": dict, "_scales": dict}
    value: Value | None = None
    Q: Quadratic | None = None

    def __init__(
        self,
        n: int,
        S: Any = None,
        d: Any = None,
        sense: Sense = "minimize",
        value: Value | None = None,
        Q: Quadratic | None = None,
    ) -> None:
        if sense not in ("minimize", "maximize"):
            raise OptionError(f"sense is 'minimize' or 'maximize', got {sense!r}")
        self.n, self.value, self.Q = int(n), value, Q
        self.sense: Sense = sense
        self.S = None if S is None else read_matrix("S", S)
        if self.S is not None and self.S.shape[0] != n:
            own = f"its shape is {self.S.shape}"
            raise ProgramError(f"S maps the p predicted costs to the {n} variables, so it needs {n} rows; {own}")
        self.p = self.n if self.S is None else self.S.shape[1]
        self.d = read_vector("d", 0.0 if d is None else d, n, finite=True)
        self._constants: dict[tuple[torch.dtype, torch.device], tuple[Tensor, ...]] = {}
        self._scales: dict[np.dtype[Any], tuple[np.ndarray, np.ndarray]] = {}

    def __repr__(self) -> str:
        return f"Objective(n={self.n}, p={self.p}, sense={self.sense!r})"

    @cached_property
    def _single_entry_rows(self) -> bool:
        """Whether every variable depends on at most one cost: then S y is a gather and a product. Not where there is no cost."""
        return self.S is not None and self.p > 0 and bool((np.diff(self.S.indptr) <= 1).all())

    @cached_property
    def _diagonal(self) -> bool:
        """Whether variable j depends on cost j at most: then S y is a product."""
        if self.S is None or self.S.shape[0] != self.S.shape[1] or not self._single_entry_rows:
            return False
        return bool((self.S.indices == np.flatnonzero(np.diff(self.S.indptr))).all())

    @cached_property
    def has_d(self) -> bool:
        return bool(self.d.any())

    @cached_property
    def _map(self) -> LinearMap:
        assert self.S is not None
        return LinearMap(self.S)

    def _tensors(self, like: Tensor) -> tuple[Tensor, ...]:
        """d, and S as (column, value) per row where that is possible, for this dtype and device."""
        key = (like.dtype, like.device)
        if key not in self._constants:
            d = torch.tensor(self.d, dtype=like.dtype, device=like.device)
            if not self._single_entry_rows:
                self._constants[key] = (d,)
            else:
                column, value = self._entries(np.dtype(np.float64))
                scale = torch.as_tensor(value, dtype=like.dtype, device=like.device)
                self._constants[key] = (d, torch.as_tensor(column, device=like.device), scale)
        return self._constants[key]

    def make_ready(self, *dtypes: torch.dtype) -> None:
        """Fill the caches of `vector` and `transpose` on the CPU, so that no compiled graph is compiled again because of them."""
        for dtype in dtypes:
            self._tensors(torch.empty(0, dtype=dtype, device="cpu"))

    def vector(self, y: Tensor, instance: Instance | None = None) -> Tensor:
        """c = S y + d.  y `(*batch, p)` → `(*batch, n)`; an instance's own d replaces the program's."""
        if y.shape[-1:] != (self.p,):
            raise ShapeError(f"costs must have shape (*batch, {self.p}); got {tuple(y.shape)}")
        own, *_ = self._tensors(y)
        d = own if self.has_d else None
        if instance is not None and instance.d is not None:
            if instance.d.shape[-1:] != (self.n,):
                raise ShapeError(f"the instance's d must have shape (*batch, {self.n}); got {tuple(instance.d.shape)}")
            d = instance.d.to(y)
        c = self.predicted(y)
        return c if d is None else c + d

    def predicted(self, y: Tensor) -> Tensor:
        """S y, the predicted part of c.  y `(*batch, p)` → `(*batch, n)`."""
        if self.S is None:
            return y
        if not self._single_entry_rows:
            return self._map(y)
        _, *S = self._tensors(y)
        return (y if self._diagonal else y.index_select(-1, S[0])) * S[1]

    def rows(self, y: np.ndarray, dtype: Any = None) -> np.ndarray:
        """S y for arrays, y `(count, p)` → `(count, n)`, computed in that dtype, y's by default: the numbers of `predicted`."""
        if self._diagonal:  # which rounds once, whether y is converted before or on the way
            scale = self._entries(y.dtype if dtype is None else np.dtype(dtype))[1]
            return np.asarray(np.multiply(y, scale, dtype=dtype))
        y = y if dtype is None else y.astype(dtype, copy=False)
        if self.S is None:
            return y
        if not self._single_entry_rows:
            return self.predicted(torch.from_numpy(y)).numpy()
        column, scale = self._entries(y.dtype)
        return np.asarray(np.take(y, column, axis=1) * scale)

    def _entries(self, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        """The cost that every variable depends on, where it is one at most, and how."""
        if dtype not in self._scales:
            assert self.S is not None
            column, value, filled = np.zeros(self.n, np.int64), np.zeros(self.n), np.diff(self.S.indptr) == 1
            column[filled], value[filled] = self.S.indices, self.S.data
            self._scales[dtype] = column, value.astype(dtype)
        return self._scales[dtype]

    def transpose(self, v: Tensor) -> Tensor:
        """Sᵀ v: a gradient with respect to c becomes one with respect to y.  `(*batch, n)` → `(*batch, p)`."""
        _, *S = self._tensors(v)
        if self.S is None:
            return v
        if self._diagonal:
            return v * S[1]
        if self._single_entry_rows:
            return v.new_zeros(*v.shape[:-1], self.p).index_add(-1, S[0], v * S[1])
        return self._map.transpose(v)

    def __call__(self, y: Tensor, w: Tensor, instance: Instance | None = None) -> Tensor:
        """obj(y, w) = (S y + d)ᵀ w + ½ wᵀQ w.  y `(*batch, p)`, w `(*batch, n)` → `(*batch,)`."""
        if w.shape[-1:] != (self.n,):
            raise ShapeError(f"decisions must have shape (*batch, {self.n}); got {tuple(w.shape)}")
        linear = (self.vector(y, instance) * w).sum(-1)
        curved = self._with_diagonal(w, instance)
        return linear if curved is None else linear + 0.5 * (w * curved).sum(-1)

    def _with_diagonal(self, w: Tensor, instance: Instance | None) -> Tensor | None:
        """(Q + diag(q)) w, `(*batch, n)`; `None` where the objective is linear."""
        own = None if self.Q is None else self.Q.slope(w)
        if instance is None or instance.q is None:
            return own
        if instance.q.shape[-1:] != (self.n,):
            raise ShapeError(f"the instance's q must have shape (*batch, {self.n}); got {tuple(instance.q.shape)}")
        more = instance.q.to(w) * w
        return more if own is None else own + more

    def slope(self, y: Tensor, w: Tensor, instance: Instance | None = None) -> Tensor:
        """The gradient of obj in w, S y + d + Q w.  y `(*batch, p)`, w `(*batch, n)` → `(*batch, n)`."""
        c, curved = self.vector(y, instance), self._with_diagonal(w, instance)
        return c if curved is None else c + curved

    def difference(self, y: Tensor, w: Tensor, v: Tensor, instance: Instance | None = None) -> Tensor:
        """obj(y, w) − obj(y, v) = (S y + d + ½ Q(w + v))ᵀ (w − v), zero for equal decisions.  y `(*batch, p)` → `(*batch,)`."""
        if self.Q is None and (instance is None or instance.q is None):
            return self(y, w - v, instance)
        return (self.slope(y, 0.5 * (w + v), instance) * (w - v)).sum(-1)

    def true_cost(self, y: Tensor, w: Tensor, instance: Instance | None = None) -> Tensor:
        """What w costs under y: `value` where there is one, obj(y, w) otherwise.  `(*batch, p)`, `(*batch, n)` → `(*batch,)`."""
        if self.value is None:
            return self(y, w, instance)
        if instance is not None and (instance.d is not None or instance.q is not None):
            raise OptionError("`value` takes costs and decisions only, so an instance cannot override d or q beside it")
        batch = w.shape[:-1]
        arrays = (y.expand(*batch, self.p).reshape(-1, self.p), w.reshape(-1, self.n))
        costs = np.asarray(self.value(*(one.detach().cpu().double().numpy() for one in arrays)), dtype=np.float64)
        if costs.shape != (batch.numel(),):
            raise ShapeError(f"`value` gives one cost for each of {batch.numel()} decisions; got shape {costs.shape}")
        return torch.as_tensor(costs, device=w.device).reshape(batch)

    def regret(self, y: Tensor, w: Tensor, best: Tensor, instance: Instance | None = None) -> Tensor:
        """What w costs more than `best` under y: as of `difference`; with `value`, a difference of values."""
        if self.value is None:
            return self.difference(y, w, best, instance)
        return self.true_cost(y, w, instance) - self.true_cost(y, best, instance)


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Parts(WithoutCaches):
    """The fields of a `Program`, which checks them when it is made."""

    A: sp.csr_array
    b: np.ndarray
    G: sp.csr_array
    h: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    S: sp.csr_array | None
    d: np.ndarray
    integer: np.ndarray
    n: int
    sense: Sense
    name: str
    variable_names: tuple[str, ...] | None
    cost_names: tuple[str, ...] | None
    constraint_names: Mapping[str, RightHandSide] | None
    objective: Objective = field(init=False)
    Q: Quadratic | None = None
    B: sp.csr_array | None = None
    H: sp.csr_array | None = None
    recourse: np.ndarray | None = None
    replaced: Mapping[int, float] | None = None

    @property
    def p(self) -> int:
        """How many costs are predicted."""
        return self.objective.p

    @property
    def is_integer(self) -> bool:
        return bool(self.integer.any())

    @property
    def predicts_rows(self) -> bool:
        """Whether right-hand sides depend on what is predicted."""
        return self.B is not None or self.H is not None

    @cached_property
    def own_sides(self) -> Sides:
        """The program's own right-hand sides and bounds."""
        return Sides(self.b, self.h, self.lower, self.upper)
