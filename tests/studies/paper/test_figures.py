"""The paper's figures: their numbers against closed forms, published values and brute force; their files; the command."""

from __future__ import annotations

import csv
import io
import itertools
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dflearn.cli import application
from dflearn.errors import DataError, OptionError
from dflearn.studies.paper.figures import COMPUTED, FIGURES, FROM_RECORDS, make_figure, sampled, small
from dflearn.studies.paper.published import published_rows
from dflearn.studies.paper.tables import published_regrets
from dflearn.studies.store import Store
from support.study_records import record, study

ROOT = Path(__file__).parents[3]


def test_one_dimension_has_the_closed_form_values() -> None:
    at = np.linspace(-9.9, 5.9, 40)  # zero, where two decisions tie, is not among them
    y, mu = 4.0, 6.0
    exact, smoothed, shifted = (at < 0) * 1.0, np.clip(-at / mu, 0, 1), (2 * at - y < 0) * 1.0
    expected = {
        "regret": y * exact,
        "smoothed regret": y * smoothed,
        "SCE": (at - y) * (0 - exact),
        "smoothed SCE": (at - y) * (0 - smoothed),
        "SPO+": (2 * at - y) * (0 - shifted),
    }
    values = small.losses(at)
    assert list(values) == list(expected)
    for name in expected:
        np.testing.assert_allclose(values[name], expected[name], atol=1e-9)


def test_smoothed_sce_is_neither_convex_nor_nonnegative() -> None:
    """Two slips of the paper's text."""
    values = small.losses(np.array([-8.0, -6.0, -4.0]))["smoothed SCE"]
    np.testing.assert_allclose(values, [12, 10, 16 / 3], atol=1e-9)
    assert values[1] > (values[0] + values[2]) / 2
    np.testing.assert_allclose(small.losses(np.array([-5.0]), true=-4.0)["smoothed SCE"], -1 / 6, atol=1e-9)


def simplex_projection(v: np.ndarray) -> np.ndarray:
    """The nearest point with Σ w = 1, w ≥ 0, by sorting."""
    falling = np.sort(v)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(v) + 1)
    return np.maximum(v - excess[falling > excess][-1], 0)


@pytest.mark.parametrize(("mu", "published"), [(0.99, 0.0), (1.05, 0.089), (1.5, 0.465), (2.0, 0.622), (5.0, 1.165)])
@pytest.mark.parametrize("items", [5, 40])
def test_manhattan_distances(mu: float, published: float, items: int) -> None:
    """The norm gives the published table; the square gives what projecting y/μ onto the simplex gives."""
    norm = sampled.simulate(items, mu, "norm", draws=2, seed=1)
    assert round(float(norm["distance"]), 3) == published
    squared = sampled.simulate(items, mu, "squared", draws=2, seed=1)
    w = simplex_projection(np.arange(1.0, items + 1) / mu)
    assert squared["distance"] == pytest.approx(2 * (1 - w[-1]), abs=1e-8)


def test_two_items() -> None:
    assert small.regret_of(small.PRINTED_START) == pytest.approx(0)
    assert small.regret_of(small.START) == pytest.approx(0.4)
    paths = small.trajectories(30)
    still = paths["smoothed regret"]
    np.testing.assert_array_equal(still["predictions"], np.tile(small.START, (31, 1)))
    np.testing.assert_allclose(still["regrets"], 0.4)
    # Far from the boundary SCE's gradient is Sᵀ(w* − w) = (−1, 1).
    moved = paths["smoothed SCE"]["predictions"]
    np.testing.assert_allclose(moved[1] - moved[0], small.STEP * np.array([1, -1]), atol=1e-12)
    assert paths["smoothed SCE"]["regrets"][-1] == pytest.approx(0)
    ahead = {name: path["predictions"][-1] @ [1, -1] for name, path in paths.items()}
    assert 0 < ahead["SCE"] < 2 * small.STEP < small.WEAK < ahead["smoothed SCE"]


def nearest_in_polygon(vertices: np.ndarray, target: np.ndarray) -> np.ndarray:
    """By looking at every edge."""
    edges = np.roll(vertices, -1, axis=0) - vertices
    normals = np.column_stack([edges[:, 1], -edges[:, 0]])
    if ((normals * (target - vertices)).sum(1) <= 0).all():
        return target
    share = np.clip(((target - vertices) * edges).sum(1) / (edges**2).sum(1), 0, 1)
    points = vertices + share[:, None] * edges
    return points[np.linalg.norm(points - target, axis=1).argmin()]


@pytest.mark.parametrize("mu", [0.3, small.MU, 2.0])
def test_geometry(mu: float) -> None:
    angles = np.arange(0.25, 360, 7.5)
    exact, smoothed = small.solutions(angles, mu)
    pull = np.column_stack([np.cos(np.deg2rad(angles)), np.sin(np.deg2rad(angles))])
    np.testing.assert_allclose(exact, small.VERTICES[(pull @ small.VERTICES.T).argmax(1)], atol=1e-9)
    expected = [nearest_in_polygon(small.VERTICES, target) for target in pull / mu]
    np.testing.assert_allclose(smoothed, expected, atol=1e-8)


def test_cave_counter_example() -> None:
    angles = np.arange(-177.5, 180, 5.0)
    x, y = np.cos(np.deg2rad(angles)), np.sin(np.deg2rad(angles))
    values = small.around(angles)
    np.testing.assert_allclose(values["label"], np.tile([1.0, 0.0], (len(angles), 1)), atol=1e-9)
    # The cone of the binding constraints is {v₁ ≥ 0, v₂ ≤ 0}; a unit vector's cosine to its projection is the latter's length.
    projected = np.hypot(np.maximum(x, 0), np.minimum(y, 0))
    np.testing.assert_allclose(values["CaVE loss"], 1 - projected, atol=1e-7)
    right = (x > 0) & (y < x)  # (1, 0) against (0, 0) and (0, 1); (1, 1) does not fit
    np.testing.assert_allclose(values["regret"][right], 0, atol=1e-9)
    assert (values["regret"][~right] > 0.3).all()
    missed = (x > 0) & (y > 0) & (y < x)
    assert (values["CaVE loss"][missed] > 0).all()
    np.testing.assert_allclose(values["relaxed"][missed], np.tile([1, 2 / 3], (missed.sum(), 1)), atol=1e-9)


def test_complexity_against_all_samples_and_signs() -> None:
    losses = np.array([[0.0, 1.0, 0.3], [0.5, 0.2, 0.9]])
    exact = np.mean(
        [
            max((row[list(sample)] * signs).sum() / 2 for row in losses)
            for sample in itertools.product(range(3), repeat=2)
            for signs in itertools.product([-1, 1], repeat=2)
        ]
    )
    value, error = sampled.complexity(losses, 2, 4000, np.random.RandomState(0))
    assert abs(value - exact) < 4 * error


def test_bound_holds() -> None:
    losses, diameter = sampled.population_losses(population=500), sampled.DIAMETER
    assert diameter == pytest.approx(np.linalg.norm([1, -1]))
    assert losses.shape == (50, 500)
    assert losses.min() >= -1e-9
    assert losses.max() <= 2 * diameter
    first, second = sampled.bounds(0.1, diameter, 100, 0.05)
    assert first == pytest.approx(0.2 + 2 * np.sqrt(2) * np.sqrt(np.log(20) / 200))
    assert second == pytest.approx(0.2 + 4 * np.sqrt(2) * np.sqrt(np.log(40) / 200))
    rng = np.random.RandomState(0)
    value, _ = sampled.complexity(losses, 30, 1000, rng)
    gaps = sampled.gaps(losses, 30, 1000, rng)
    for level in sampled.LEVELS:
        for gap, bound in zip(gaps, sampled.bounds(value, diameter, 30, level), strict=True):
            assert (gap > bound).mean() <= level
    # Not only true, but about something: the gaps themselves are there.
    assert np.quantile(gaps[0], 0.95) > 0.05


def test_published_rows_compare_in_the_paper_s_settings_only() -> None:
    one = record("SP-5", "MSE", 1, 0.2, 1.0)
    short = replace(one, config=replace(one.config, settings=replace(one.config.settings, epochs=3)))
    assert published_regrets([one], "published_style") == {("SP-5", "MSE"): 0.45}
    assert published_regrets([short], "published_style") == {}
    assert published_regrets([one], "mean_of_ratios") == {}


@pytest.mark.parametrize("name", FROM_RECORDS)
def test_figures_from_records_show_the_records(name: str) -> None:
    records = study()
    made = make_figure(name, records=records, metric="mean_of_ratios")
    assert made.rows
    for row in made.rows:
        own = [r for r in records if (r.config.problem, r.config.method) == (row["problem"], row["method"])]
        assert row["seeds"] == len(own) == 3
        assert row["mean_of_ratios"] == pytest.approx(np.mean([r.metric("mean_of_ratios") for r in own]))
        assert row["seconds per epoch"] == pytest.approx(np.mean([r.seconds["epoch"] for r in own]))
        published = published_rows().get((str(row["problem"]), str(row["method"])))
        assert row["published regret"] == ("" if published is None else published.regret)
    with pytest.raises(DataError, match="the study holds no runs that the figure"):
        make_figure(name, records=[record("SP-5", "other", 1, 0.1, 1.0)])


@pytest.mark.parametrize("name", COMPUTED)
def test_every_computed_figure_is_written(name: str, tmp_path: Path) -> None:
    made = make_figure(name, quick=name in ("gradients", "generalization"))
    if name not in ("gradients", "generalization"):
        document = " ".join((ROOT / "docs" / "notes" / "figures.md").read_text(encoding="utf-8").split())
        assert all(finding in document for finding in made.findings), "figures.md says what the command prints"
    png, svg, table = made.write(tmp_path / "new")
    assert (png.name, svg.name, table.name) == (f"{name}.png", f"{name}.svg", f"{name}.csv")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert ElementTree.fromstring(svg.read_text()).tag.endswith("svg")
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert len(rows) == len(made.rows)
    assert list(rows[0]) == list(made.rows[0])
    assert made.findings
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(p.name for p in (png, svg, table))


def run(*arguments: str) -> None:
    command = application()(["paper", "figure", *arguments])
    print(command.run().text)


def test_command_reads_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(tmp_path / "study") as store:
        for one in study(problems=("SP-5",), seeds=(1,)):
            store.put(one)
    run("state-of-the-art", "--study", str(tmp_path / "study"), "--out", str(tmp_path))
    assert "Best trade-offs" in capsys.readouterr().out
    assert len(FIGURES) == 9
    with pytest.raises(OptionError, match="did you mean 'gradients'"):
        run("gradient")
    with pytest.raises(DataError, match="no study at"):
        run("solvers", "--study", str(tmp_path / "none"))
