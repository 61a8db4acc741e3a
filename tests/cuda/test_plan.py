"""What the kernels walk through, against dense linear algebra: every plan factors and solves when it is followed by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st

from dflearn.cuda.plan import BUFFER, FIELDS, HEAD, PIECE, SIZES, WARP, WIDEST, Gather, Plan
from dflearn.kernels.elimination import Dissection, graph_of, minimum_degree, postorder, tree_of
from dflearn.problems import problem_named


def random_matrix(seed: int, m: int, n: int, share: float) -> sp.csr_array:
    """Without empty rows."""
    rng = np.random.RandomState(seed)
    dense = rng.normal(size=(m, n)) * (rng.rand(m, n) < share)
    dense[np.arange(m), rng.randint(n, size=m)] += 1.5
    return sp.csr_array(dense)


matrices = st.builds(
    random_matrix, st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 50), st.sampled_from([0.03, 0.1, 0.5])
)


def column_of(plan: Plan, place: np.ndarray) -> np.ndarray:
    """The column whose numbers lie at that place of a block's scratch."""
    table = np.full(plan.scratch, -1)
    table[plan._in_scratch(np.arange(plan.n))] = np.arange(plan.n)
    return table[place]


def sums(slices: np.ndarray, task: np.ndarray, terms: np.ndarray, warp: int) -> dict[int, float]:
    """What the warps add up, by task."""
    found: dict[int, float] = {}
    for number, (start, end, lanes, _) in enumerate(slices):
        lane_sums = terms[start:end].reshape(-1, warp).sum(0)
        for lane in range(0, warp, lanes):
            own = task[number * warp + lane]
            assert (task[number * warp + lane : number * warp + lane + lanes] == own).all()
            if own >= 0:
                assert own not in found, "a sum is made twice"
                found[int(own)] = float(lane_sums[lane : lane + lanes].sum())
    return found


@given(st.lists(st.integers(0, 200), max_size=60), st.sampled_from([1, WARP]), st.sampled_from([32, 256]))
def test_a_gather_adds_every_term_once(lengths: list[int], warp: int, threads: int) -> None:
    length = np.array(lengths, np.int64)
    gather = Gather.of(length, warp, threads)
    terms = np.arange(1.0, length.sum() + 1)
    found = sums(gather.slices, gather.task, gather.spread(terms), warp)
    ends = np.cumsum(length)
    assert found == {t: terms[end - size : end].sum() for t, (end, size) in enumerate(zip(ends, length, strict=True))}
    assert len(set(gather.place.tolist())) == len(terms)


@settings(max_examples=40)
@given(matrices)
def test_orders_are_permutations_and_parents_come_later(matrix: sp.csr_array) -> None:
    for order in (minimum_degree(matrix)[0], Dissection(graph_of(matrix)).order()):
        assert sorted(order.tolist()) == list(range(matrix.shape[0]))
        parent = tree_of(sp.csr_array(graph_of(matrix)[order][:, order]))
        assert ((parent > np.arange(len(parent))) | (parent == -1)).all()
        place = np.argsort(postorder(parent))
        assert all(place[row] < place[up] for row, up in enumerate(parent) if up >= 0)


def followed(plan: Plan, theta: np.ndarray) -> np.ndarray:
    """L by the plan's own lists, as the kernels make it; dense."""
    arrays, warp = plan.arrays, plan.warp
    panel = np.zeros(plan.panel)
    value = arrays["pair_value"] * theta[np.maximum(column_of(plan, arrays["pair_index"]), 0)]
    made = sums(arrays["pair_slice"], np.arange(len(arrays["pair_target"])) // 1, value, warp) if warp == 1 else None
    for number, (start, end, lanes, _) in enumerate(arrays["pair_slice"]):
        lane_sums = value[start:end].reshape(-1, warp).sum(0)
        for lane in range(0, warp, lanes):
            target = arrays["pair_target"][number * warp + lane]
            if target >= 0:
                panel[target] = lane_sums[lane : lane + lanes].sum()
    assert made is None or len(made) == len(arrays["pair_slice"])
    words, levels = arrays["update_word"], arrays["level"].reshape(-1, 8)
    for first, last, _, _, low, high, *_ in levels:
        for number in range(first, last):
            start, end, lanes, _ = arrays["update_slice"][number]
            dots = np.array([panel[a : a + (b >> 24)] @ panel[b & 0xFFFFFF :][: b >> 24] for a, b in words[start:end]])
            lane_sums = dots.reshape(-1, warp).sum(0)
            for lane in range(0, warp, lanes):
                target = arrays["update_task"][number * warp + lane]
                if target >= 0:
                    panel[target] -= lane_sums[lane : lane + lanes].sum()
        for number in range(low, high):
            _, packed, base, _ = arrays["node"][number]
            node = int(plan.sequence[number])
            width, height = packed & 255, packed >> 8
            rows = plan.address(np.full(width + height, node), np.arange(width + height))
            assert rows[0] == base
            for j in range(width):
                panel[rows[j] + j] = np.sqrt(
                    panel[rows[j] + j] - panel[rows[j] : rows[j] + j] @ panel[rows[j] : rows[j] + j]
                )
                for i in range(j + 1, width + height):
                    rest = panel[rows[i] + j] - panel[rows[i] : rows[i] + j] @ panel[rows[j] : rows[j] + j]
                    panel[rows[i] + j] = rest / panel[rows[j] + j]
    dense = np.zeros((plan.m, plan.m))
    for node, below in enumerate(plan.nodes.below):
        first, width = plan.nodes.first[node], plan.nodes.widths[node]
        rows = np.concatenate([np.arange(first, first + width), below])
        for position, i in enumerate(rows):
            at = int(plan.address(np.array(node), np.array(position)))
            own = min(position + 1, width)
            dense[i, first : first + own] = panel[at : at + own]
    return dense


@settings(max_examples=25)
@given(matrices, st.sampled_from([1, WARP]))
def test_following_a_plan_factors_the_normal_equations(matrix: sp.csr_array, warp: int) -> None:
    plan = Plan(matrix, np.zeros(matrix.shape[0], bool), threads=64, warp=warp)
    theta = np.random.RandomState(0).uniform(0.5, 2, plan.n)
    scaled = plan.matrix.toarray()
    system = (scaled * theta) @ scaled.T
    if np.linalg.cond(system) > 1e8:
        return
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), 1.0)
    np.testing.assert_allclose(scaled, (matrix.toarray() * 1.0)[plan.order] * plan.scale[:, None])
    L = followed(plan, theta)
    np.testing.assert_allclose(L @ L.T, system, atol=1e-8)


@settings(max_examples=25)
@given(matrices)
def test_a_plan_pulls_what_rows_below_need_and_holds_the_matrix(matrix: sp.csr_array) -> None:
    plan = Plan(matrix, np.zeros(matrix.shape[0], bool), threads=64)
    x = np.random.RandomState(1).normal(size=plan.n)
    arrays = plan.arrays
    rows = sums(
        arrays["row_slice"],
        arrays["row_task"],
        arrays["row_value"] * x[np.maximum(column_of(plan, arrays["row_index"]), 0)],
        WARP,
    )
    np.testing.assert_allclose([rows[i] for i in range(plan.m)], plan.matrix @ x, atol=1e-12)
    y, columns = np.random.RandomState(2).normal(size=plan.m), np.zeros(plan.n)
    for j in range(plan.n):
        start, end = arrays["column_start"][j // WARP] + j % WARP, arrays["column_start"][j // WARP + 1]
        columns[j] = (arrays["column_value"][start:end:WARP] * y[arrays["column_index"][start:end:WARP]]).sum()
    np.testing.assert_allclose(columns, plan.matrix.T @ y, atol=1e-12)
    pulled = {int(i) for i in arrays["pull_task"] if i >= 0}
    assert pulled == {int(i) for below in plan.nodes.below for i in below}
    assert (plan.nodes.widths <= WIDEST).all()
    lengths = arrays["update_word"][:, 1] >> 24
    assert lengths.max(initial=0) <= PIECE


@pytest.mark.parametrize("limit", [2**30, 40_000, 12_000, 6_000])
def test_what_does_not_fit_is_left_to_global_memory(limit: int) -> None:
    form = problem_named("SP-10").program.equality_form()
    plan = Plan(form.rows_without_slacks(), form.is_inequality, threads=64)
    sizes, used = plan.fitting(limit)
    assert set(sizes) == set(SIZES)
    assert used <= limit
    assert sizes["head_at"] >= 2 * plan.m + BUFFER * (plan.threads // WARP)
    assert sizes["levels_at"] >= sizes["head_at"] + HEAD
    assert sizes["levels_at"] % 2 == sizes["panel_at"] % 2 == sizes["head_at"] % 2 == 0  # whole int4
    assert used == 8 * (sizes["panel_at"] + plan.panel - sizes["far"])
    assert sizes["far"] in {0, plan.panel, *plan.base.tolist()}, "the cut goes through a supernode"
    assert (sizes["far"] > 0) == (limit == 6_000)


def test_too_little_memory_is_told() -> None:
    form = problem_named("SP-10").program.equality_form()
    plan = Plan(form.rows_without_slacks(), form.is_inequality, threads=64)
    assert plan.fitting(1_000)[0]["panel_at"] == 0


def test_a_program_without_rows_has_a_plan() -> None:
    plan = Plan(sp.csr_array((0, 5)), np.zeros(0, bool), threads=256)
    assert len(plan.fields()) == len(FIELDS)
    assert all(field.size for field in plan.fields())
    assert plan.fitting(10_000)[0]["levels"] == 0


def test_dissection_makes_lower_trees_than_minimum_degree_on_grids() -> None:
    form = problem_named("SP-15").program.equality_form()
    matrix = form.rows_without_slacks()
    depth = []
    for order in (minimum_degree(matrix)[0], Dissection(graph_of(matrix)).order()):
        parent = tree_of(sp.csr_array(graph_of(matrix)[order][:, order]))
        heights = np.ones(len(parent), int)
        for row, up in enumerate(parent):
            if up >= 0:
                heights[up] = max(heights[up], heights[row] + 1)
        depth.append(heights.max())
    assert depth[1] < depth[0]
