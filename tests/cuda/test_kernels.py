"""The kernels' own source, built for the CPU, against the CPU's layer: answers, steps, gradients, statuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.engine.certify import Certifier
from dflearn.engine.smoothed.gpu import BlockAnswer, SmoothedBlocks
from dflearn.layers import Smoothed
from dflearn.problems import problem_named
from dflearn.program import Instance, Program
from dflearn.solvers.base import Status
from support.emulator import COMPILER, MISSING, Emulator, InBlocks
from support.layer_examples import PROGRAMS
from support.reference import random_case

pytestmark = [pytest.mark.skipif(COMPILER is None, reason=MISSING), pytest.mark.xdist_group("emulator")]
CPU = torch.device("cpu")
SMALL = ("SP-5", "KP-100", "CFL-50")


def interior_steps(answer: BlockAnswer) -> Tensor:
    """Steps of interior points, `(count,)`: the second of the two numbers that the kernels pack."""
    return answer.steps.view(torch.int32)[1::2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture(scope="module", autouse=True)
def machine(folder: Path) -> Emulator:
    InBlocks.machine = Emulator(folder)
    return InBlocks.machine


def costs_of(name: str, count: int = 5) -> tuple[Smoothed, Tensor]:
    problem = problem_named(name, seed=1)
    return Smoothed(problem.program), problem.generate(count, dtype=torch.float64).batch().require("costs")


def in_blocks(layer: Smoothed, machine: Emulator) -> SmoothedBlocks:
    return SmoothedBlocks(layer.program, machine, CPU, machine.threads)


def cold(blocks: SmoothedBlocks, c: Tensor, start: Tensor | None = None, mu: float = 1.0) -> BlockAnswer:
    return blocks.solve(c, mu, None, start, 1e-10)


def test_projections_are_those_of_the_pseudo_inverse(machine: Emulator) -> None:
    """factor · P v by dense linear algebra on the rows in force; faces on which rows nearly depend may be refused."""
    solved = []
    for seed in range(12):
        program, rng = random_case(seed).program.relax(), np.random.RandomState(seed)
        blocks, count = SmoothedBlocks(program, machine, CPU, 1), 11
        matrix = np.vstack([program.A.toarray()[program.equality_form().kept], program.G.toarray()])
        inside = (rng.uniform(size=(count, program.n)) < 0.7).astype(np.uint8)
        in_force = (rng.uniform(size=(count, len(matrix))) < 0.6).astype(np.uint8)
        v, factor = rng.normal(size=(count, program.n)), rng.normal(size=count)
        rows = blocks.ordered(torch.from_numpy(in_force))
        found, off = blocks.project(torch.from_numpy(inside), rows, torch.from_numpy(v), torch.from_numpy(factor))
        for i in np.flatnonzero(off.status == 0):
            face, x = matrix[in_force[i] == 1] * inside[i], v[i] * inside[i]
            wanted = factor[i] * (x - np.linalg.pinv(face, rcond=1e-10) @ (face @ x))
            np.testing.assert_allclose(found[i], wanted, atol=1e-8)
        solved.append(off.status.numpy() == 0)
    assert np.concatenate(solved).mean() > 0.9


@pytest.mark.parametrize(("name", "threads"), [("SP-5", 32), ("SP-10", 64), ("CFL-50", 64)])
def test_lanes_of_a_warp_do_together_what_one_thread_does(name: str, threads: int, folder: Path) -> None:
    """Shuffles, groups of lanes for a supernode, lanes that share a row below."""
    layer, y = costs_of(name, 1)
    c, machine = layer.objective.vector(y), Emulator(folder, threads, warp=32)
    blocks, alone = in_blocks(layer, machine), in_blocks(layer, InBlocks.machine)
    answer, wanted = cold(blocks, c), cold(alone, c)
    assert interior_steps(answer).tolist() == interior_steps(wanted).tolist()
    assert answer.status.tolist() == [0]
    np.testing.assert_allclose(answer.w, wanted.w, atol=1e-12)
    np.testing.assert_array_equal(answer.inside, wanted.inside)
    v = torch.randn(c.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found, off = blocks.project(answer.inside, answer.in_force, v)
    assert not off.status.any()
    np.testing.assert_allclose(found, alone.project(wanted.inside, wanted.in_force, v)[0], atol=1e-12)


@pytest.mark.parametrize("name", SMALL)
def test_blocks_of_half_as_many_threads_have_the_same_answers_bit_by_bit(name: str, folder: Path) -> None:
    layer, y = costs_of(name, 1)
    c, found = layer.objective.vector(y), []
    for threads in (64, 32):
        machine = Emulator(folder, threads, warp=32, planned=64)
        blocks = SmoothedBlocks(layer.program, machine, CPU, 64)
        answer = cold(blocks, c)
        found.append((answer, blocks.project(answer.inside, answer.in_force, c)[0]))
    (wide, wide_slope), (narrow, narrow_slope) = found
    for field in ("w", "y", "objective", "residual", "steps"):
        assert torch.equal(getattr(wide, field), getattr(narrow, field)), field
    assert torch.equal(wide_slope, narrow_slope)


@pytest.mark.parametrize("name", SMALL)
def test_costs_and_gradients_may_be_given_as_the_program_has_them(name: str, machine: Emulator) -> None:
    """y, in either precision, in place of c = S y + d; and the way back to it."""
    layer, y = costs_of(name)
    blocks, c = in_blocks(layer, machine), layer.objective.vector(y)
    assert blocks.takes_y
    wanted, v = cold(blocks, c), torch.randn(c.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    answer = blocks.solve(y, 1.0, None, None, 1e-10, costs=blocks.costs, multipliers=False)
    assert answer.y is None
    np.testing.assert_allclose(answer.w, wanted.w, atol=1e-12)
    slope = layer.objective.transpose(blocks.project(wanted.inside, wanted.in_force, v)[0])
    found, _ = blocks.project(answer.inside, answer.in_force, v, None, blocks.costs)
    np.testing.assert_allclose(found, slope, atol=1e-12)
    single = blocks.solve(y.float(), 1.0, None, None, 1e-10, costs=blocks.costs)
    assert single.decision.dtype == torch.float32
    near = cold(blocks, layer.objective.vector(y.float().double()))
    np.testing.assert_array_equal(single.decision, near.w.float())
    own, _ = blocks.project(near.inside, near.in_force, v[:1].float().expand_as(v), None, blocks.costs)
    alike = blocks.project(near.inside, near.in_force, v[:1].float().double().expand_as(v))[0]
    np.testing.assert_allclose(own, layer.objective.transpose(alike), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", SMALL)
def test_starts_lead_to_the_same_answers_in_fewer_steps(name: str, machine: Emulator) -> None:
    layer, y = costs_of(name)
    c, blocks = layer.objective.vector(y), in_blocks(layer, machine)
    first = cold(blocks, c)
    near = c * (1 + 0.001 * torch.randn(c.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    start = blocks.outwards(first.y)
    start[-1] = torch.nan  # nothing is known of the last
    warm, wanted = cold(blocks, near, start), cold(blocks, near)
    np.testing.assert_allclose(warm.w, wanted.w, atol=1e-9)
    assert interior_steps(warm)[-1] > 0
    assert (interior_steps(warm) == -2).any(), "Newton's method alone was enough for none of them"
    far = cold(blocks, -near, 1e3 * start)
    np.testing.assert_allclose(far.w, cold(blocks, -near).w, atol=1e-9)


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_random_programs_have_the_answers_gradients_and_statuses_of_the_cpu(first: int) -> None:
    """Degenerate and dependent rows, free, fixed and one-sided variables, sides and d of each instance."""
    for seed in range(first, first + 20):
        case = random_case(seed)
        found = []
        for layer in (Smoothed(case.program, case.mu), InBlocks(case.program, case.mu)):
            y = case.y.clone().requires_grad_()
            solution = layer.solve(y, case.instance)
            if layer.unsettled():  # zeros of which rounding is left are the CPU's
                solution = layer.solve(y, case.instance)
            weight = torch.randn(
                solution.decision.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
            )
            (slope,) = torch.autograd.grad(solution.decision, y, weight)
            found.append((solution.decision.detach(), slope, solution.status, solution.objective))
        (w, slope, status, objective), (own, own_slope, own_status, own_objective) = found
        assert torch.equal(own_status, status), f"seed {seed}"
        size = 1 + float(w.abs().max())
        torch.testing.assert_close(own, w, rtol=0, atol=1e-9 * size, msg=lambda text, seed=seed: f"seed {seed}: {text}")
        torch.testing.assert_close(own_objective, objective, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(
            own_slope, slope, rtol=1e-7, atol=1e-7, msg=lambda text, seed=seed: f"seed {seed}: {text}"
        )


def test_what_the_kernels_call_optimal_passes_the_rule(machine: Emulator) -> None:
    """As `Certifier.check` says, which makes no allowance for rounding; most random programs need none."""
    optimal = []
    for seed in range(60):
        case = random_case(seed)
        program, count = case.program.relax(), len(case.y)
        c, blocks = program.objective.vector(case.y, case.instance).double(), SmoothedBlocks(program, machine, CPU, 1)
        answer, form = blocks.solve(c, case.mu, case.instance, None, 1e-10), program.equality_form()
        prices = np.zeros((count, program.A.shape[0] + program.G.shape[0]))
        places = np.concatenate([form.kept, program.A.shape[0] + np.arange(form.slacks)])
        prices[:, places] = -blocks.outwards(answer.y)
        sides = program.sides(case.instance, count)
        error = Certifier(program).check(c.numpy(), answer.w.numpy(), prices, sides, case.mu).error
        solved = answer.status.numpy() == Status.OPTIMAL
        assert (error[solved] <= 1e-6).all(), f"seed {seed}"
        np.testing.assert_allclose(answer.residual.numpy()[solved], error[solved], atol=1e-8)
        optimal.append(solved)
    assert np.concatenate(optimal).mean() > 0.95


def test_a_block_in_small_units_is_not_rounded_away(machine: Emulator) -> None:
    """w₁ ≤ 1e7 and w₂ ≤ 1e-8, both pressed upwards: (1e7, 0) is no answer."""
    layer = Smoothed(Program(G=[[1.0, 0], [0, 1]], h=[1e7, 1e-8]), 1e-20)
    answer = in_blocks(layer, machine).solve(torch.tensor([[-1e-7, -1e8]]).double(), 1e-20, None, None, 1e-10)
    if int(answer.status) == Status.OPTIMAL:
        np.testing.assert_allclose(answer.w, [[1e7, 1e-8]], rtol=1e-6)
    else:
        assert answer.status.tolist() == [Status.FAILED]


@pytest.mark.parametrize("decision", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("cost", [1e-6, 1e6])
@pytest.mark.parametrize("name", ["shortest_path", "knapsack", "free_variables"])
def test_units_change_nothing(name: str, decision: float, cost: float, machine: Emulator) -> None:
    """w in other units, costs in other units: the same decision in those."""
    example = PROGRAMS[name]()
    program = example.program.relax()
    other = Program(
        A=program.A, b=program.b * decision, G=program.G, h=program.h * decision, lower=program.lower * decision,
        upper=program.upper * decision, S=program.S, d=None if program.d is None else program.d * cost, n=program.n,
    )  # fmt: skip
    plain = InBlocks(program, 1.0).solve(example.y)
    scaled = InBlocks(other, cost / decision).solve(example.y * cost)
    assert not bool(scaled.status.any())
    torch.testing.assert_close(scaled.decision / decision, plain.decision, rtol=1e-9, atol=1e-10)


def test_no_feasible_point_is_proven_and_hurts_nobody_else(machine: Emulator) -> None:
    program = Program(A=np.ones((1, 3)), b=[1], upper=1)
    b = torch.tensor([[1.0], [5.0], [2.0]], dtype=torch.float64)
    c = torch.ones(3, 3, dtype=torch.float64)
    layer = Smoothed(program)
    answer = in_blocks(layer, machine).solve(c, 1.0, Instance(b=b), None, 1e-10)
    assert answer.status.tolist() == [Status.OPTIMAL, Status.INFEASIBLE, Status.OPTIMAL]
    assert answer.alarm[0] == 1
    assert bool(torch.isfinite(answer.w).all())
    assert not answer.inside[1].any(), "an instance without a decision has a gradient"
    np.testing.assert_allclose(answer.w[[0, 2]], [[1 / 3] * 3, [2 / 3] * 3], atol=1e-12)


@pytest.mark.parametrize("sides", [{"b": [[np.nan]]}, {"lower": [[2.0, 0, 0]]}, {"upper": [[-np.inf, 1, 1]]}])
def test_numbers_that_make_no_sense_have_no_decision(sides: dict[str, list[list[float]]], machine: Emulator) -> None:
    layer = Smoothed(Program(A=np.ones((1, 3)), b=[1], upper=1))
    instance = Instance(**{name: torch.tensor(value, dtype=torch.float64) for name, value in sides.items()})
    answer = in_blocks(layer, machine).solve(torch.ones(1, 3, dtype=torch.float64), 1.0, instance, None, 1e-10)
    assert answer.status.tolist() == [Status.FAILED]
    assert bool(torch.isfinite(answer.w).all())
    costs = torch.tensor([[1.0, torch.nan, 1]], dtype=torch.float64)
    assert in_blocks(layer, machine).solve(costs, 1.0, None, None, 1e-10).status.tolist() == [Status.FAILED]


@pytest.mark.parametrize(("threads", "fast_memory"), [(3, 2**30), (1, 5_000), (4, 5_500)])
def test_threads_and_a_factor_in_global_memory_change_nothing(threads: int, fast_memory: int, folder: Path) -> None:
    """A missing barrier between threads, or an address on the wrong side of the cut, would show."""
    layer, y = costs_of("SP-10", 3)
    other = Emulator(folder, threads, fast_memory)
    blocks = in_blocks(layer, other)
    assert (blocks.far > 0) == (fast_memory < 2**30)
    c = layer.objective.vector(y)
    answer = cold(blocks, c)
    np.testing.assert_allclose(answer.w, layer.solve(y).decision, atol=1e-11)
    v = torch.ones_like(c)
    plain = in_blocks(layer, Emulator(folder))
    np.testing.assert_allclose(
        blocks.project(answer.inside, answer.in_force, v)[0],
        plain.project(answer.inside, plain.ordered(answer.in_force[:, blocks.back]), v)[0],
        atol=1e-11,
    )


def test_a_program_without_rows_is_solved(machine: Emulator) -> None:
    layer = Smoothed(Program(lower=-1, upper=[1, 2, 3]), 2.0)
    c = torch.tensor([[1.0, -8, 0.5]], dtype=torch.float64)
    answer = cold(in_blocks(layer, machine), c, mu=2.0)
    np.testing.assert_allclose(answer.w, [[-0.5, 2, -0.25]], atol=1e-14)
    assert answer.inside.tolist() == [[1, 0, 1]]
