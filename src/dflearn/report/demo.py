"""The page of the demo: one table, one comparison, three pictures, and the rest folded away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflearn.evaluation import METRICS, Evaluation, compare
from dflearn.report import figures
from dflearn.report.page import Page
from dflearn.report.render import render
from dflearn.studies.demo import BASELINE, BEST, SIDE, Demo

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRIC = "mean_of_ratios"
MORE = ("ratio_of_sums", "published_style", "absolute_regret", "exact_share", "mse")
FLOOR = "E[y | x]"
NOTES = (
    f"Regret: {METRICS[METRIC]}.",
    f"{FLOOR} decides with the exact mean of the costs: no predictor can expect to do better.",
    "s/epoch: seconds of training per epoch; compile s: seconds before, long on the first use of a machine only.",
)

Table = tuple[list[str], list[list[str]]]


def results(demo: Demo) -> Table:
    """Header and rows: regret on the test set, seconds of an epoch, and of compilation before the first one."""
    rows = [
        [name, _regret(method.judged), f"{method.seconds:.3f}", f"{method.history.seconds_compile:.1f}"]
        for name, method in demo.methods.items()
    ]
    return ["method", "regret", "s/epoch", "compile s"], [*rows, [FLOOR, _regret(demo.floor), "", ""]]


def _regret(judged: Evaluation) -> str:
    return f"{judged.metrics[METRIC].value:.4f}"


def comparisons(demo: Demo) -> Table:
    """Header and rows: each method against the baseline on the same instances."""
    rows = []
    for name, method in demo.methods.items():
        if name != BASELINE:
            found = compare(method.judged, demo.methods[BASELINE].judged)
            value, low, high = (f"{number:+.4f}".replace("-", "−") for number in found.mean_of_ratios)
            rows.append([name, value, f"[{low}, {high}]", str(found.wins), str(found.ties), str(found.losses)])
    return ["method", f"less {BASELINE}", "95 % interval", "better", "equal", "worse"], rows


def other_metrics(demo: Demo) -> str:
    """Every other measure of the same decisions as text, with what each means."""
    judged = {**{name: method.judged for name, method in demo.methods.items()}, FLOOR: demo.floor}
    rows = [[name, *(f"{own.metrics[metric].value:.4f}" for metric in MORE)] for name, own in judged.items()]
    meanings = "\n".join(f"{metric}: {METRICS[metric]}" for metric in MORE)
    return f"{render(['method', *MORE], rows)}\n\n{meanings}"


def demo_page(demo: Demo) -> Page:
    page = Page(
        "Small errors or good decisions?",
        f"Four ways to train the same linear model on {demo.problem.name}, a shortest-path problem whose "
        f"edge costs are predicted. {BASELINE} makes the prediction error small; the others make the regret of the "
        "decisions small: what a decision costs more than the best one.",
    )
    page.section("On the test set")
    page.table(*results(demo))
    page.text(" ".join(NOTES), faint=True)
    page.text(f"Against {BASELINE}, instance by instance:")
    page.table(*comparisons(demo))
    page.text(
        f"Below zero: less regret than {BASELINE}. Better, equal, worse: on how many of {len(demo.test)} instances.",
        faint=True,
    )
    page.folded("The same decisions by other measures", other_metrics(demo))

    page.section("While training")
    curves = {name: method.history.column("validation_ratio_of_sums") for name, method in demo.methods.items()}
    page.figure(
        figures.learning_curves(curves, "validation regret, ratio of sums", demo.validation_floor.ratio_of_sums),
        "Regret on the validation set after every epoch; the dashed line is the floor.",
    )
    page.section("Regret against time")
    points = {}
    for name, method in demo.methods.items():
        value, low, high = method.judged.metrics[METRIC]
        points[name] = (method.seconds, value, (high - low) / 2)
    page.figure(
        figures.regret_against_time(points, "seconds per epoch", "test regret, mean of ratios"),
        "Further down is better, further left is faster. Bars are 95 % intervals.",
    )
    page.section("One decision")
    page.figure(
        _one_decision(demo),
        f"The test instance where {BASELINE} loses most against {BEST}. Edges are as thick as they truly cost; each title "
        "has the true cost of the path taken.",
    )
    return page


def _one_decision(demo: Demo) -> Figure:
    assert demo.test.costs is not None
    assert demo.test.decisions is not None
    gain = demo.methods[BASELINE].judged.regrets - demo.methods[BEST].judged.regrets
    i = int(gain.argmax())
    costs, best = demo.test.costs[i].double().numpy(), demo.test.decisions[i].double().numpy()
    paths = {"optimal": (best, float(costs @ best))}
    for name, method in demo.methods.items():
        assert method.judged.decisions is not None
        taken = method.judged.decisions[i].double().numpy()
        paths[name] = (taken, float(costs @ taken))
    return figures.grid_paths(demo.problem.edges(), (SIDE, SIDE), costs, paths)
