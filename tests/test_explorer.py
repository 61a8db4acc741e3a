"""The explorer (docs/explorer/index.html): its mathematics against dflearn, and the page by keyboard, at two widths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import dflearn as dfl
from dflearn.data import Batch
from support import browser

CHROMIUM = browser.find()
PAGE = Path(__file__).parents[1] / "docs" / "explorer" / "index.html"
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium (.ci/run does it)"
)
RNG = np.random.default_rng(30)
LOSSES = ("regret", "smoothed regret", "SPO+", "SCE", "smoothed SPO+")


@pytest.fixture(scope="module")
def tab() -> Iterator[browser.Browser]:
    assert CHROMIUM is not None
    with browser.Browser(CHROMIUM) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _nothing_to_complain_about(tab: browser.Browser) -> Iterator[None]:
    tab.complaints.clear()
    tab.requests.clear()
    tab.open(PAGE)
    yield
    assert tab.complaints == []
    assert set(tab.requests) <= {PAGE.as_uri(), "data:,"}


def call(tab: browser.Browser, expression: str, **values: Any) -> Any:
    """A JavaScript expression of named values, with the functions of the page."""
    names, given = ", ".join(values), ", ".join(map(json.dumps, values.values()))
    return tab.evaluate(f"(({names}) => {expression})({given})")


def polygon(tab: browser.Browser) -> tuple[list[list[float]], dict[str, np.ndarray]]:
    """The hull of random points, and its sides as rows of a program."""
    vertices = call(tab, "mathematics.hull(points)", points=RNG.uniform(-1, 4, (7, 2)).tolist())
    rows = call(tab, "mathematics.rows(vertices)", vertices=vertices)
    return vertices, {"G": np.array(rows["G"]), "h": np.array(rows["h"])}


def judged(name: str, program: dfl.Program, mu: float, predicted: Tensor, truth: Tensor, label: str) -> Tensor:
    """The library's value of a loss of the page, `(count,)`."""
    exact, smoothed = dfl.Exact(dfl.HiGHS(program)), dfl.Smoothed(program, mu)
    best = exact(truth)
    batch = Batch(features=truth, costs=truth, decisions=best)
    if name == "regret":
        return program.objective.difference(truth, exact(predicted), best)
    if name == "smoothed regret":
        return program.objective.difference(truth, smoothed(predicted), best)
    if name == "SPO+":
        return dfl.losses.SPOPlus(exact)(predicted, batch)
    if name == "SCE":
        return dfl.losses.SCE(smoothed, label=label)(predicted, batch)
    if name == "MSE":
        return dfl.losses.MSE()(predicted, batch)
    return dfl.losses.SmoothedSPOPlus(smoothed, label=label)(predicted, batch)


@pytest.mark.parametrize("label", ["exact", "smoothed"])
def test_losses_and_gradients_are_those_of_the_library(tab: browser.Browser, label: str) -> None:
    for mu in (0.1, 0.6, 3.0):
        vertices, rows = polygon(tab)
        known = RNG.normal(size=2)
        program = dfl.Program(**rows, d=known, lower=-np.inf)
        truth, start = (torch.tensor(RNG.normal(size=(8, 2))) * 3 for _ in range(2))
        setting = {"vertices": vertices, "mu": mu, "known": known.tolist(), "label": label}
        for name in LOSSES:
            predicted = start.clone().requires_grad_()
            value = judged(name, program, mu, predicted, truth, label)
            gradient = torch.zeros_like(start)
            if name != "regret":
                (gradient,) = torch.autograd.grad(value.sum(), predicted)
            found = call(
                tab, "truths.map((truth, i) => mathematics.loss(name, truth, setting)(starts[i]))",
                truths=truth.tolist(), starts=start.tolist(), name=name, setting=setting,
            )  # fmt: skip
            for key, wanted in (("value", value.detach()), ("gradient", gradient)):
                shown = torch.tensor([one[key] for one in found], dtype=torch.float64)
                torch.testing.assert_close(shown, wanted, rtol=1e-7, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")


def test_decisions_and_iterations_are_those_of_the_layers(tab: browser.Browser) -> None:
    for mu in (0.2, 1.0):
        vertices, rows = polygon(tab)
        program = dfl.Program(**rows, lower=-np.inf)
        costs, step = torch.tensor(RNG.normal(size=(6, 2))) * 2, 0.4
        given = {"costs": costs.tolist(), "mu": mu, "vertices": vertices}
        exact = call(tab, "costs.map(c => mathematics.exact(c, vertices))", **given)
        torch.testing.assert_close(torch.tensor(exact, dtype=torch.float64), dfl.HiGHS(program).solve(costs).decision)
        smooth = call(tab, "costs.map(c => mathematics.smoothed(c, mu, vertices).w)", **given)
        torch.testing.assert_close(torch.tensor(smooth, dtype=torch.float64), dfl.Smoothed(program, mu)(costs))
        paths = torch.tensor(
            call(tab, "costs.map(c => mathematics.davisYin(c, mu, vertices, step, 300))", **given, step=step),
            dtype=torch.float64,
        )
        for count in (1, 2, 9, 300):
            wanted = dfl.DavisYin(program, mu, step=step, iterations=count)(costs)
            torch.testing.assert_close(paths[:, count], wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["MSE", "SPO+", "SCE", "smoothed SPO+"])
def test_training_follows_the_gradient_of_the_library(tab: browser.Browser, name: str) -> None:
    """A line that predicts the first cost, beside a known second one."""
    vertices, rows = polygon(tab)
    known, mu, theta = [0.0, -1.6], 0.7, RNG.normal(size=2)
    program = dfl.Program(**rows, S=[[1.0], [0.0]], d=known, lower=-np.inf)
    x, y = torch.tensor(RNG.uniform(-1, 1, (9, 1))), torch.tensor(RNG.normal(size=(9, 1))) * 2
    parameters = torch.tensor(theta, requires_grad=True)
    value = judged(name, program, mu, parameters[0] + parameters[1] * x, y, "smoothed").mean()
    value.backward()  # type: ignore[no-untyped-call]
    assert parameters.grad is not None
    found = call(
        tab, "mathematics.meanLoss(name, theta, data, setting)", name=name, theta=theta.tolist(),
        data=[{"x": float(a), "y": float(b)} for a, b in zip(x, y, strict=True)],
        setting={"vertices": vertices, "mu": mu, "known": known, "label": "smoothed"},
    )  # fmt: skip
    assert found["value"] == pytest.approx(value.item(), rel=1e-7, abs=1e-9)
    assert found["gradient"] == pytest.approx(parameters.grad.tolist(), rel=1e-7, abs=1e-9)


def press(tab: browser.Browser, key: str, text: str = "") -> None:
    codes = {"Tab": 9, "Enter": 13, "ArrowUp": 38, "ArrowRight": 39}
    for kind in ("keyDown", "keyUp"):
        more = {"text": text} if text and kind == "keyDown" else {}
        tab("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **more)


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (400, True)])
def test_the_story_in_five_presses(tab: browser.Browser, width: int, dark: bool) -> None:
    tab.open(PAGE, width=width, dark=dark)
    titles = []
    for _ in range(5):
        press(tab, "Tab")
        press(tab, "Enter", "\r")
        titles.append(tab.evaluate("document.getElementById('title').textContent"))
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate("document.querySelectorAll('#story [aria-pressed=true]').length") == 1
        assert "NaN" not in tab.evaluate("document.querySelector('main').innerHTML")
    assert [title[:2] for title in titles] == ["1.", "2.", "3.", "4.", "5."]
    press(tab, "Tab")
    before = tab.evaluate("[document.activeElement.id, state.points[0]]")
    press(tab, "ArrowUp")
    press(tab, "ArrowRight")
    assert tab.evaluate("[document.activeElement.id, state.points[0]]") == ["corner-0", pytest.approx([0.1, 0.1])]
    assert before == ["corner-0", [0, 0]]
