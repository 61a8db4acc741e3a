"""The report of a study: its words and tables say what the records hold; its formats; the command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dflearn.cli import application
from dflearn.errors import DataError, OptionError
from dflearn.studies import figures
from dflearn.studies.paper.figures import paper_page
from dflearn.studies.record import Record
from dflearn.studies.report import results_table, study_page
from dflearn.studies.store import Store
from dflearn.studies.summary import rankings, summarize
from support.study_records import record, study


def table_of(
    records: list[Record], metric: str, reference: dict[tuple[str, str], float] | None = None
) -> tuple[list[str], list[list[str]]]:
    return results_table(rankings(summarize(records, metric)), metric, reference)


def test_table_holds_means_deviations_ranks_and_the_floor() -> None:
    records = [
        record("SP-5", "MSE", 1, 0.2, 0.1),
        record("SP-5", "MSE", 2, 0.3, 0.1),
        record("SP-5", "SCE^DYS", 1, 0.1, 2.0),
        record("SP-5", "SCE^DYS", 2, 0.2, 2.0),
        record("SP-5", "mine", 1, 0.05, 2.0),
        record("KP-100", "MSE", 1, 0.2, 0.123456),
    ]
    header, rows = table_of(records, "mean_of_ratios")
    assert header == [
        "method", "problem", "seeds", "mean of ratios", "rank", "behind the best", "above floor", "s/epoch",
    ]  # fmt: skip
    deviation = f"{np.std([0.2, 0.3], ddof=1):.4f}"
    assert rows == [
        ["SCE^DYS", "SP-5", "1-2", f"0.1500 ± {deviation}", "1", "", "0.0950", "2"],
        ["MSE", "SP-5", "1-2", f"0.2500 ± {deviation}", "2", "0.1000 [0.1000, 0.1000]", "0.1850", "0.1"],
        ["mine", "SP-5", "1", "0.0500", "", "", "0.0050", "2"],
        ["MSE", "KP-100", "1", "0.2000", "1", "", "0.1400", "0.123"],
    ]
    header, rows = table_of(records, "published_style", {("SP-5", "SCE^DYS"): 0.32})
    assert header[-1] == "published"
    assert [row[-1] for row in rows] == ["0.32", "", "", ""]


def test_the_page_compares_on_shared_seeds_and_shows_the_rest() -> None:
    records = [*study(("mine-7",), ("MSE", "PG^solver"), (1, 2)), record("mine-7", "lucky", 2, 0.001, 1.0)]
    text = study_page(records, "Mine", further=lambda page: page.section("My own section")).html()
    assert "compared on seeds 1-2; left out: lucky (seed 2)." in text
    assert "lucky has the least regret" not in text
    assert "My own section" in text
    assert text.count("<svg ") == 3
    with pytest.raises(DataError, match="no finished run yet"):
        study_page([], "None")


def test_the_paper_s_page_shows_published_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dflearn.studies.paper.figures.COMPUTED", {})  # slow, with tests of their own
    text = paper_page([record("SP-5", "SCE^DYS", 1, 0.2, 0.1)], "One").html()
    assert "Surrogate losses (SPO+, SCE) against decision losses" in text
    assert "<td>0.32</td>" in text
    assert "Dashes: as published." in text


def test_bars_are_as_long_as_the_regrets() -> None:
    own = summarize([record("SP-5", "MSE", 1, 0.2, 0.1), record("SP-5", "PFY", 1, 0.1, 0.1)])
    axes = figures.regret_bars(own, "regret", reference={("SP-5", "PFY"): 0.32, ("SP-5", "MSE"): 0.45}).axes[0]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.1, 0.2])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["PFY", "MSE"]
    assert [list(line.get_xdata()) for line in axes.lines] == [[0.32, 0.32], [0.45, 0.45]]


def test_the_page_says_what_is_missing(tmp_path: Path) -> None:
    done, failed, missing = study(problems=("SP-5",), methods=("MSE", "PFY", "CaVE"), seeds=(1,))
    with Store(tmp_path / "small.sqlite") as store:
        store.put_wanted([one.config for one in (done, failed, missing)])
        store.put(done)
        store.put_failure(failed.config, "Traceback\nValueError: no")
    run(str(tmp_path / "small.sqlite"), "-o", str(tmp_path / "report.html"))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "1 runs of the study have not finished yet." in text
    assert "Failed: SP-5 PFY seed 1: ValueError: no" in text


def run(*arguments: str) -> None:
    command = application()(["report", *arguments])
    print(command.run().text)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(tmp_path / "small.sqlite") as store:
        for one in study(problems=("SP-5",), methods=("MSE", "PFY"), seeds=(1,)):
            store.put(one)
    for name in ("report.html", "tables.md", "tables.tex"):
        run(str(tmp_path / "small.toml"), "-o", str(tmp_path / name))
        assert "PFY" in (tmp_path / name).read_text(encoding="utf-8")
    assert f"2 runs in {tmp_path / 'report.html'}" in capsys.readouterr().out
    assert "<title>Study small</title>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    run(str(tmp_path / "small.sqlite"), "-o", str(tmp_path / "figures"), "--format", "pdf", "svg")
    names = ["problem-by-problem-sp-5", "regret-against-time-sp-5", "while-training-sp-5"]
    written = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert written == [f"{n}.{f}" for n in names for f in ("pdf", "svg")]
    with pytest.raises(OptionError, match=r"ends in \.html, \.md, \.tex, \.txt, or is a folder; got 'report.pdf'"):
        run(str(tmp_path / "small.sqlite"), "-o", str(tmp_path / "report.pdf"))
    with pytest.raises(DataError, match="no study at"):
        run(str(tmp_path / "none.sqlite"), "-o", str(tmp_path / "report.html"))
    with pytest.raises(OptionError, match="no metric 'nonsense'"):
        run(str(tmp_path / "small.sqlite"), "-o", str(tmp_path / "report.html"), "--metric", "nonsense")
