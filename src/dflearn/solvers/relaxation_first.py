"""Integer programs whose relaxation is nearly integral: the relaxation first, then a small tree, then HiGHS."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from dflearn.certify import SURE, Certifier
from dflearn.errors import OptionError
from dflearn.program import Program
from dflearn.program.implied import LARGEST
from dflearn.program.sides import Sides, integer_bounds
from dflearn.solvers.base import Raw, Status
from dflearn.solvers.gate import Certified
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.oracles import refusal, refuse_quadratic
from dflearn.solvers.scaling import units
from dflearn.solvers.strengthening import Relaxation, Strength, find_links

NODES = 200  # of the tree on one instance; HiGHS's own solve costs about as much as so many
MOST_SWITCHES = 32  # integer variables up to which it was measured to be faster than HiGHS
WHOLE = 1e-9  # what is nearer to an integer is one
TINY = 1e-11  # what HiGHS leaves of a variable that is at its bound: all of what a closed facility seems to carry
VIOLATED = 1e-3  # how far a link must be broken to become a row
ROUNDS, LATER = 20, 2  # of adding links at the root, and at each other node
PRUNED = 1e-10  # of the incumbent's terms: what a node must promise to be opened


class RelaxationFirst(Certified):
    """Exact integer programs whose relaxation is integral, or nearly so, such as facility location.

    What all cost vectors share is found once, by proven bounds of the relaxation (`strengthening`). Where that leaves one value
    to every integer variable, each cost vector is a linear program. Otherwise the relaxation is solved, with the links that it
    violates; where integers are still missing, branch and bound goes on from its basis, depth first; and what needs more than
    `nodes` nodes is solved by HiGHS. Every node that is not opened is closed by a proof from dual prices, and an answer is
    called optimal where they prove it to 1e-8 of its terms: otherwise HiGHS decides.

    Each instance is solved from cold, so that answers do not depend on the order of a batch. Of several optimal decisions, another
    may be found than HiGHS's, always the same one.

    Right-hand sides and bounds may differ from instance to instance; such instances are not strengthened.

    Args:
        program: what to solve; it has integer variables.
        nodes: how many nodes one instance may take.
    """

    made_anew: ClassVar = {"_local": threading.local}

    def __init__(self, program: Program, *, nodes: int = NODES) -> None:
        if not program.is_integer:
            raise refusal("RelaxationFirst", program, "it has no integer variables; use HiGHS or FewRowLP")
        refuse_quadratic("RelaxationFirst", program)
        if nodes < 1:
            raise OptionError(f"nodes must be at least 1; got {nodes}")
        self.program, self.objective, self.nodes = program, program.objective, int(nodes)
        self._local = threading.local()

    @staticmethod
    def suits(program: Program) -> bool:
        """Whether it is known to be faster than HiGHS: few switches of rows that imply links, as in facility location."""
        if program.Q is not None or program.predicts_rows:
            return False
        return 0 < int(program.integer.sum()) <= MOST_SWITCHES and len(find_links(program).size) > 0

    def __repr__(self) -> str:
        return f"RelaxationFirst({self.program!r}, nodes={self.nodes})"

    @property
    def identity(self) -> str:
        return f"RelaxationFirst nodes={self.nodes}, {self.general.identity}"

    @cached_property
    def strength(self) -> Strength:
        """What the program's own sides prove, whatever the costs."""
        return Strength.of(self.program)

    @cached_property
    def _linear(self) -> HiGHS | None:
        """The linear program that is left where every integer variable has one value."""
        lower, upper = self.strength.lower, self.strength.upper
        if not self.strength.fixes_all(self.program):
            return None
        return HiGHS(replace(self.program.relax(), lower=lower, upper=upper))

    @cached_property
    def _holds(self) -> bool:
        return Relaxation.holds(self.program)

    def _search(self, own: bool) -> _Search:
        """This thread's tree over the program's own sides, or over any; a forked process builds its own."""
        if getattr(self._local, "process", None) != os.getpid():
            self._local.searches, self._local.process = {}, os.getpid()
        searches: dict[bool, _Search] = self._local.searches
        if own not in searches:
            strength = self.strength if own else Strength.none(self.program)
            searches[own] = _Search(self.program, strength, self.nodes)
        return searches[own]

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        assert sides is not None
        own = sides.is_shared and _same(sides, self.program.own_sides)
        if own:
            sides = self.program.own_sides
        if own and self._linear is not None:
            out = self._linear._solve(c, self._linear.program.own_sides, None)
            sure = ~np.isin(out.status, (Status.FEASIBLE, Status.NOT_FOUND, Status.FAILED))
        else:
            out, sure = Raw.empty(*c.shape), np.zeros(len(c), bool)
            for i in np.flatnonzero((np.abs(c).max(1) < LARGEST) & self._holds):
                found = self._search(own).solve(c[i], sides if own else sides.row(i))
                if found is not None:
                    out.status[i], out.decision[i], out.objective[i], out.bound[i] = found
                    sure[i] = True
        return self.handed_over(c, sides, out, sure)


def _same(one: Sides, other: Sides) -> bool:
    """Whether the sides are equal: those that were sent to another process are no longer the same object."""
    pairs = zip(one.parts().values(), other.parts().values(), strict=True)
    return one is other or all(np.array_equal(part, own) for part, own in pairs)


class Found(NamedTuple):
    """A proven answer: `OPTIMAL` or `INFEASIBLE`."""

    status: Status
    w: np.ndarray
    value: float
    bound: float


class Node(NamedTuple):
    """Bounds of the integer variables, and what the node's parent proved of it."""

    lower: np.ndarray
    upper: np.ndarray
    bound: float


class _Search:
    """Branch and bound over one relaxation, depth first.

    Of the two sides of a branch, the first is the one on which fewer inequalities are in the way.
    """

    def __init__(self, program: Program, strength: Strength, nodes: int) -> None:
        self.program, self.nodes = program, nodes
        self.own = Sides(program.b, program.h, strength.lower, strength.upper)
        self.relaxation = Relaxation(program, strength)
        self.scales, self.integers = self.relaxation.scales, self.relaxation.integers
        self.certifier = Certifier(program)
        signs = program.G[:, self.integers].sign()
        self.up_first = np.asarray(signs.sum(0)).ravel() < 0

    def solve(self, c: np.ndarray, sides: Sides) -> Found | None:
        """The answer for costs c `(n,)` and sides of one instance; `None` where nothing is proven."""
        if sides is self.program.own_sides:
            sides, scaled = self.own, self.relaxation.sides
        else:
            sides = Sides(sides.b, sides.h, *integer_bounds(sides.lower, sides.upper, self.program.integer))
            scaled = self.scales.sides(sides, 1.0)
        if (sides.lower > sides.upper).any():
            return None
        gamma = 1.0 / float(units((c * self.scales.columns)[None])[0])
        self.relaxation.begin(c * (gamma * self.scales.columns), scaled)
        best, value, terms, proven = None, np.inf, 0.0, np.inf
        stack, opened = [Node(scaled.lower[self.integers], scaled.upper[self.integers], -np.inf)], 0
        while stack:
            node = stack.pop()
            enough = value - PRUNED * terms
            if node.bound < enough:
                if opened == self.nodes:
                    return None
                opened += 1
                status, bound = self.relax(node, gamma * enough, ROUNDS if opened == 1 else LATER)
                if status is Status.FAILED:
                    return None
                node = node._replace(bound=bound / gamma)
            if node.bound >= enough:  # nothing better is there, or nothing at all
                proven = min(proven, node.bound)
                continue
            v = self.relaxation.decision()
            z, whole = v[self.integers], np.rint(v[self.integers])
            far = np.abs(z - whole) / np.maximum(1.0, np.abs(whole))
            k = int(far.argmax())
            if far[k] > WHOLE:
                stack += self.branch(self.fix(node, gamma * (enough - node.bound)), k, z[k])
                proven = min(proven, enough)  # of what was fixed
                continue
            v[self.integers] = whole
            w = self.feasible(v, sides)
            if w is None:
                return None
            proven = min(proven, node.bound)
            if c @ w < value:
                best, value, terms = w, float(c @ w), float(np.abs(c * w).sum())
        if best is None:
            return Found(Status.INFEASIBLE, np.full(len(c), np.nan), np.nan, -np.inf)
        if not value - proven <= SURE * terms:
            return None
        return Found(Status.OPTIMAL, best + 0.0, value, min(proven, value))  # + 0.0 turns −0 into 0

    def relax(self, node: Node, enough: float, rounds: int) -> tuple[Status, float]:
        """Solve the relaxation of a node, with the links that it violates, until its bound is enough; +∞ if infeasible."""
        self.relaxation.restrict(node.lower, node.upper)
        status, bound = self.relaxation.run()
        for _ in range(rounds):
            if status is not Status.OPTIMAL or bound >= enough or not self.relaxation.add_links(VIOLATED):
                break
            status, bound = self.relaxation.run()
        return status, bound

    def feasible(self, v: np.ndarray, sides: Sides) -> np.ndarray | None:
        """The decision v in the user's units, without what is rounding; `None` where it breaks a row."""
        near = TINY * max(1.0, float(np.abs(v).max()))
        for rounding in (0.0, near):
            v = np.where(np.abs(v - self.relaxation.lower) <= rounding, self.relaxation.lower, v)
            w: np.ndarray = np.clip(v * self.scales.columns, sides.lower, sides.upper)
            if self.certifier.violation(w[None], sides)[0] <= SURE:
                return w
        return None

    def fix(self, node: Node, left: float) -> Node:
        """Without the values of integer variables that cost, by their reduced costs, more than is left to the incumbent."""
        wide, price = node.lower < node.upper, self.relaxation.reduced
        upper, lower = node.upper.copy(), node.lower.copy()
        low, high = wide & (price > left), wide & (price < -left)
        upper[low], lower[high] = lower[low], upper[high]
        return node._replace(lower=lower, upper=upper)

    def branch(self, node: Node, k: int, z: float) -> list[Node]:
        """Two nodes, the one to open first at the end."""
        upper, lower = node.upper.copy(), node.lower.copy()
        upper[k] = np.floor(z)
        lower[k] = upper[k] + 1
        below, above = node._replace(upper=upper), node._replace(lower=lower)
        return [below, above] if self.up_first[k] else [above, below]
