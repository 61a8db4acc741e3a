"""`dfl demo`: a study of four methods on the smallest shortest-path problem of the paper, and its page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import torch

from dflearn.problems import ShortestPath
from dflearn.report.page import Page
from dflearn.report.render import render
from dflearn.studies import figures
from dflearn.studies.config import Settings, problem_of, resolve
from dflearn.studies.record import Record
from dflearn.studies.report import legend, results_table, study_page
from dflearn.studies.run import run
from dflearn.studies.summary import rankings, summarize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROBLEM, SEED, METRIC = "SP-5", 1, "mean_of_ratios"
BASELINE, BEST = "MSE", "SCE^smoothed"
METHODS = (BASELINE, "SPO+^relax", "SCE^DYS unrolled", BEST)


@dataclass(frozen=True)
class Demo:
    """The runs, and the decisions of each method on the test set, `(count, n)`."""

    records: list[Record]
    decisions: dict[str, np.ndarray]

    def text(self) -> str:
        """The table of results for a terminal."""
        found = rankings(summarize(self.records, METRIC))
        about = f"{PROBLEM}: paths through a grid whose edge costs are predicted by a linear model of 10 features."
        return f"{about}\n\n{render(*results_table(found, METRIC))}\n\n{legend(METRIC)}"

    def page(self) -> Page:
        """The page of the study, with the decisions on one instance."""

        def one_decision(page: Page) -> None:
            page.section("One decision")
            page.figure(
                self._one_decision(),
                f"The test instance where {BASELINE} loses most against {BEST}. Edges are as thick as they truly cost; each "
                "title has the true cost of the path taken.",
            )

        return study_page(self.records, "Small errors or good decisions?", METRIC, further=one_decision)

    def _one_decision(self) -> Figure:
        config = self.records[0].config
        problem, settings = problem_of(config), config.settings
        assert isinstance(problem, ShortestPath)
        regrets = {record.config.method: np.asarray(record.regrets, float) for record in self.records}
        i = int((regrets[BASELINE] - regrets[BEST]).argmax())
        costs = (
            problem.split(settings.points, SEED, settings.test, settings.validation).test.batch().require("costs")[i]
        )
        paths = {"optimal": problem.solver().solve(costs.double()).decision.numpy()}
        paths |= {method: decisions[i] for method, decisions in self.decisions.items()}
        taken = {name: (path, float(costs.double() @ torch.as_tensor(path).double())) for name, path in paths.items()}
        return figures.grid_paths(problem.edges(), (problem.rows, problem.columns), costs.double().numpy(), taken)


def run_demo(epochs: int) -> Demo:
    """Run every method in the settings of the paper."""
    configs = [resolve(PROBLEM, method, SEED, Settings(epochs=epochs)) for method in METHODS]
    with TemporaryDirectory() as folder:
        records = [run(config, raw=folder) for config in configs]
        decisions = {config.method: np.load(Path(folder) / f"{config.key}.npz")["decisions"] for config in configs}
    return Demo(records, decisions)
