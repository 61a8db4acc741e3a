"""One look for every plot: colours and marks of any method, labels that do not overlap, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dflearn.errors import OptionError
from dflearn.report import style
from dflearn.studies import figures
from dflearn.studies.summary import summarize
from support.study_records import record


def test_methods_have_one_look() -> None:
    assert style.parts("SCE^DYS clean") == ("SCE", "DYS", "clean")
    assert style.color_of("SCE^DYS") == style.color_of("SCE^relax") != style.color_of("SPO+^DYS")
    assert style.color_of("mine") == style.SKY, "the same in every process"
    assert style.marker_of("mine^other") == style.marker_of("yours^other") != style.marker_of("mine")


def test_points_beyond_the_edge_are_named_with_their_number() -> None:
    records = [record("SP-5", f"m{k}", 1, 0.1 + 0.001 * k, 1.0 + k) for k in range(12)]
    summaries = summarize([*records, record("SP-5", "lost", 1, 5.0, 2.0)])
    axes = figures.trade_off(summaries, "regret").axes[0]
    assert axes.get_ylim()[1] < 0.5
    assert [text.get_text() for text in axes.texts if not text.get_text().isdigit()] == ["5 ↑"]
    (legend,) = axes.figure.legends
    named = dict(text.get_text().split() for text in legend.get_texts())
    assert [named[str(k + 1)] for k in range(13)] == [s.method for s in summaries]
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
