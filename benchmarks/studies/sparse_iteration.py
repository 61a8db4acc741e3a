"""The authors' Davis-Yin iteration by our sparse kernel against their dense matrices: iterates, gradients, trained models.

    python benchmarks/studies/sparse_iteration.py

Runs what results/sparse_iteration lacks of the studies sparse_iteration*.toml, then writes table.md there. Two looks. Iterates: decision
and gradient of both layers after the published number of iterations, from the same random start, with the hyperparameters
that the authors' code has for each loss. Training: the test regret of both, seed by seed, in the authors' float32 and in float64.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflearn.paper.as_published import AsPublished, SparseAsPublished
from dflearn.paper.hyperparameters import dys_in_code
from dflearn.problems import problem_named
from dflearn.report.render import render
from dflearn.studies.config import read_study
from dflearn.studies.driver import complete
from dflearn.studies.record import Record

HERE = Path(__file__).resolve().parent
OUT = HERE.parents[1] / "results" / "sparse_iteration"
STUDIES = [HERE / f"{name}.toml" for name in ("sparse_iteration", "sparse_iteration_float64")]
LOSSES = ("Regret", "SqDE", "SPO+", "SCE")
LARGE = ("SP-5", "SP-25", "KP-100", "KP-400", "CFL-50", "CFL-200")
INSTANCES = 32


def answer(layer: AsPublished | SparseAsPublished, costs: Tensor) -> tuple[Tensor, Tensor]:
    """The decision, and (dw/dy)ᵀ of a direction that is the same for all layers."""
    y = costs.to(layer.dtype).requires_grad_()
    w = layer(y)
    direction = torch.randn(w.shape, generator=torch.Generator().manual_seed(1)).to(w)
    return w.detach(), torch.autograd.grad(w, y, direction)[0]


def difference(one: Tensor, other: Tensor) -> float:
    """In the Euclidean norm, relative."""
    return float((one - other).norm() / other.norm())


def iterates(names: Sequence[str] = LARGE) -> list[dict[str, Any]]:
    """Sparse against dense in both precisions; and dense in float32 against dense in float64, to measure it by."""
    rows = []
    for name in names:
        problem = problem_named(name, seed=1)
        costs = problem.generate(INSTANCES, dtype=torch.float64).batch().require("costs")
        tried: dict[tuple[Any, ...], list[str]] = {}
        for loss in LOSSES:
            tried.setdefault(tuple(dys_in_code(name, loss).values()), []).append(loss)
        for parameters, losses in tried.items():
            row: dict[str, Any] = {"problem": name, "losses": " ".join(losses)}
            found = {
                (kind, dtype): answer(kind(problem, *parameters, dtype=dtype), costs)
                for kind in (SparseAsPublished, AsPublished)
                for dtype in (torch.float64, torch.float32)
            }
            exact = found[AsPublished, torch.float64]
            for title, one, other in (
                ("float64", found[SparseAsPublished, torch.float64], exact),
                ("float32", found[SparseAsPublished, torch.float32], exact),
                ("dense float32", found[AsPublished, torch.float32], exact),
            ):
                for what, ours, theirs in zip(("decision", "gradient"), one, other, strict=True):
                    row[f"{what}, {title}"] = difference(ours.double(), theirs)
            rows.append(row)
    return rows


def regrets(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Published style, seed by seed and their mean: both precisions, sparse and dense, and how far these are apart."""
    found = {(each.config.problem, each.config.method, each.config.seed): each for each in records}
    rows = []
    for problem, loss in sorted({(problem, method.partition(" ")[0]) for problem, method, _ in found}):
        for precision in ("float64", "float32"):
            suffix = " float64" if precision == "float64" else ""
            names = {"sparse": f"{loss}{suffix}", "dense": f"{loss} dense{suffix}"}
            seeds = [seed for other, name, seed in found if (other, name) == (problem, names["sparse"])]
            own: list[dict[str, Any]] = []
            for seed in sorted(seeds):
                pair = {title: found[problem, name, seed].metric("published_style") for title, name in names.items()}
                own.append({"seed": str(seed), **pair})
            if own:
                own.append({"seed": "mean", **{title: float(np.mean([row[title] for row in own])) for title in names}})
            for row in own:
                apart = row["sparse"] - row["dense"]
                rows.append({"problem": problem, "method": loss, "precision": precision, **row, "difference": apart})
    return rows


def table(rows: Sequence[dict[str, Any]], form: str) -> str:
    lines = [[value if isinstance(value, str) else f"{value:{form}}" for value in row.values()] for row in rows]
    return render(list(rows[0]), lines, "markdown")


def page(looked: str, records: Sequence[Record]) -> str:
    return f"""# The authors' iteration, sparse and dense

`python benchmarks/studies/sparse_iteration.py`

## Iterates and gradients

Relative differences from the dense layer in float64, {INSTANCES} instances, 100 iterations and one more, the same random starts;
losses share a row where the authors' code has the same hyperparameters for them.

{looked}

## Training

Test regret in the published style after 25 epochs. Losses of the first epochs agree to four digits in float32 too; then training
magnifies rounding, most of all on SP-5, where two layers that differ by rounding alone end up apart: sparse and dense in float32,
and dense in float32 and in float64. In float64 sparse and dense give the same model, seed by seed.

{table(regrets(records), ".4f")}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT, help="default: %(default)s")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    records = [record for study in STUDIES for record in complete(read_study(study), out / "runs.jsonl.xz")]
    text = page(table(iterates(), ".1e"), records)
    (out / "table.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
