"""One look for every plot: colours and marks of any method, labels that do not overlap, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation

from dflearn.errors import OptionError
from dflearn.report import figures, style
from dflearn.studies.summary import summarize
from support.study_records import record


def test_labels_are_spread() -> None:
    np.testing.assert_allclose(style.spread([0.0, 1.0], 0.1), [0, 1])
    np.testing.assert_allclose(style.spread([0.5, 0.5, 0.5], 0.2), [0.3, 0.5, 0.7])
    spread = style.spread([0.9, 0.1, 0.12, 0.88], 0.05)
    assert np.diff(np.sort(spread)).min() >= 0.05 - 1e-12
    assert spread.argsort().tolist() == [1, 2, 3, 0]


def test_methods_have_one_look() -> None:
    assert style.parts("SCE^DYS clean") == ("SCE", "DYS", "clean")
    assert style.color_of("SCE^DYS") == style.color_of("SCE^relax") != style.color_of("SPO+^DYS")
    assert style.color_of("mine") == style.SKY, "the same in every process"
    assert style.marker_of("mine^other") == style.marker_of("yours^other") != style.marker_of("mine")


@pytest.mark.parametrize("seed", range(4))
def test_names_of_crowded_points_overlap_nothing(seed: int) -> None:
    rng = np.random.RandomState(seed)
    points = [(0.3 + 0.4 * rng.rand(), 0.3 + 0.4 * rng.rand(), f"method {k}", style.INK) for k in range(9)]
    others = [(rng.rand(), 0.3 * rng.rand()) for _ in range(10)]
    figure = style.new_figure(4.7, 3.5)
    axes = figure.add_subplot()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    figure.draw_without_rendering()
    style.label_points(axes, points, others)
    renderer = FigureCanvasAgg(figure).get_renderer()
    labels = [text for text in axes.texts if text.get_text()]
    boxes = [label.get_window_extent(renderer) for label in labels]
    assert [label.get_text() for label in labels] == [text for _, _, text, _ in points]
    for k, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:k])
        assert not any(box.contains(*axes.transData.transform(spot)) for spot in [*(p[:2] for p in points), *others])
        assert axes.get_window_extent(renderer).count_contains(box.corners()) == 4
    leaders = [text for text in axes.texts if isinstance(text, Annotation) and text.arrow_patch is not None]
    assert all(leader.xy in [point[:2] for point in points] for leader in leaders)


def test_points_beyond_the_edge_are_named_with_their_number() -> None:
    records = [record("SP-5", f"m{k}", 1, 0.1 + 0.001 * k, 1.0 + k) for k in range(12)]
    summaries = summarize([*records, record("SP-5", "lost", 1, 5.0, 2.0)])
    axes = figures.trade_off(summaries, "regret").axes[0]
    assert axes.get_ylim()[1] < 0.5
    names = [text.get_text() for text in axes.texts if text.get_text()]
    assert "lost: 5 ↑" in names
    assert len(names) == figures.SOME + 1
    bars = figures.regret_bars(summaries, "regret").axes[0]
    assert [text.get_text() for text in bars.texts] == ["5 → "]


def test_files(tmp_path: Path) -> None:
    figure = figures.learning_curves({"a": [3, 2, 1]}, "regret")
    written = style.write_figure(figure, tmp_path / "new", "curve", ["pdf", "svg", "png"])
    assert [path.name for path in written] == ["curve.pdf", "curve.svg", "curve.png"]
    assert [path.read_bytes()[:4] for path in written] == [b"%PDF", b"<?xm", b"\x89PNG"]
    with pytest.raises(OptionError, match="written as pdf, svg, png, got gif"):
        style.write_figure(figure, tmp_path, "curve", ["gif"])


def test_names_of_lines_stay_beside_the_axes() -> None:
    axes = figures.learning_curves({f"m{k}": [1.0, 0.1 + 0.0001 * k] for k in range(8)}, "regret").axes[0]
    heights = sorted(text.get_position()[1] for text in axes.texts)
    assert heights[0] >= 0
    assert heights[-1] <= 1
    assert np.diff(heights).min() > 0.05
