"""The weights that small training runs end with, one of each kind of loss and layer, as digests.

    python benchmarks/studies/digests.py --out results/digests/NAME.json
    python benchmarks/studies/digests.py --compare results/digests/NAME.json

Equal digests mean bitwise equal weights. A change of the house must leave all of them as they are; a change of the numbers
says which it moved. A run also keeps the layer's answers on its first batch and the regret of its decisions, by which two runs
whose sums are ordered differently are compared. Bits depend on the processor: both files must come from the same machine.
"""

import argparse
import hashlib
import json
import platform
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import dflearn as dfl
from dflearn.layers import CvxpySmoothed, DavisYin, Exact, Perturbed, Smoothed
from dflearn.losses import MSE, SCE, CaVE, FenchelYoung, Regret, SmoothedSPOPlus, SPOPlus, SquaredDecisionError
from dflearn.studies.paper.as_published import AsPublished, CaVEAsPublished, DenseJacobianFree
from dflearn.studies.record import installed, machine

POINTS, EPOCHS, SEED = 240, 4, 1
PACKAGES = ("torch", "numpy", "scipy", "numba", "highspy", "cvxpylayers", "clarabel")


@dataclass(frozen=True)
class Case:
    """One run: a problem by name, its loss, and the dtype of data and model."""

    problem: str
    loss: Callable[[Any], Any]
    dtype: torch.dtype = torch.float32
    epochs: int = EPOCHS


def _mu(problem: Any) -> float:
    """A smoothing about as large as the costs, the same on every machine."""
    return float(problem.program.objective.vector(problem.generate(100).costs.double()).abs().mean())


def smoothed(p: Any, **options: Any) -> Smoothed:
    return Smoothed(p.program, _mu(p), **options)


def davis_yin(p: Any, gradient: str, mu: float | None = None, alpha: float | None = None, **options: Any) -> DavisYin:
    return DavisYin(p.program, _mu(p) if mu is None else mu, alpha, gradient=gradient, **options)  # type: ignore[arg-type]


def to_a_tolerance(p: Any) -> DavisYin:
    return davis_yin(p, "implicit", iterations=100000, tolerance=1e-4)


DOUBLE = torch.float64
CASES: dict[str, Case] = {
    "MSE, SP-5": Case("SP-5", lambda p: MSE()),
    "SPO+ Exact(DagShortestPath), SP-10": Case("SP-10", lambda p: SPOPlus(Exact(p.solver()))),
    "SPO+ Exact(HiGHS, relaxed), KP-30": Case("KP-30", lambda p: SPOPlus(Exact(dfl.HiGHS(p.relaxation)))),
    "SPO+ Exact(FewRowLP), KP-50": Case("KP-50", lambda p: SPOPlus(Exact(p.relaxed_solver()))),
    "SPO+ Exact(FewRowBinary), KP-30": Case("KP-30", lambda p: SPOPlus(Exact(p.solver()))),
    "SPO+ Exact(Pooled), KP-30": Case("KP-30", lambda p: SPOPlus(Exact(dfl.Pooled(p.solver(), 0.2)))),
    "SPO+ Exact(TopK), TopK-20x3": Case("TopK-20x3", lambda p: SPOPlus(Exact(p.solver()))),
    "SCE Exact(HiGHS, relaxed), CFL-20x3": Case("CFL-20x3", lambda p: SCE(Exact(p.relaxed_solver()))),
    "SCE Smoothed, SP-5": Case("SP-5", lambda p: SCE(smoothed(p))),
    "SCE Smoothed, CFL-50": Case("CFL-50", lambda p: SCE(smoothed(p))),
    "SCE Smoothed norm, SP-5, float64": Case("SP-5", lambda p: SCE(smoothed(p, regularizer="norm")), DOUBLE),
    "SCE plain Smoothed, KP-50": Case("KP-50", lambda p: SCE(smoothed(p), variant="plain")),
    "SCE smoothed labels, CFL-20x3": Case("CFL-20x3", lambda p: SCE(smoothed(p), label="smoothed")),
    "sSPO+ Smoothed, KP-50, float64": Case("KP-50", lambda p: SmoothedSPOPlus(smoothed(p), label="exact"), DOUBLE),
    "Fenchel-Young Smoothed, SP-10": Case("SP-10", lambda p: FenchelYoung(smoothed(p))),
    "Fenchel-Young Perturbed, SP-5": Case("SP-5", lambda p: FenchelYoung(Perturbed(p.solver(), _mu(p), 3, 5))),
    "Regret Smoothed, KP-50": Case("KP-50", lambda p: Regret(smoothed(p))),
    "Regret Perturbed, SP-5": Case("SP-5", lambda p: Regret(Perturbed(p.solver(), _mu(p), 4, 5))),
    "SqDE Smoothed norm, CFL-20x3": Case("CFL-20x3", lambda p: SquaredDecisionError(smoothed(p, regularizer="norm"))),
    "SqDE DavisYin unrolled, SP-5": Case(
        "SP-5", lambda p: SquaredDecisionError(davis_yin(p, "unrolled"), reduction="mean")
    ),
    "SCE DavisYin jfb, SP-5": Case("SP-5", lambda p: SCE(davis_yin(p, "jfb"))),
    "SCE DavisYin unrolled, CFL-20x3": Case("CFL-20x3", lambda p: SCE(davis_yin(p, "unrolled", 0.0, 0.01))),
    "SCE DavisYin implicit to a tolerance, SP-3, float64": Case("SP-3", lambda p: SCE(to_a_tolerance(p)), DOUBLE),
    "SCE AsPublished, SP-5": Case("SP-5", lambda p: SCE(AsPublished(p, 0.0, iterations=20))),
    "SCE DenseJacobianFree, SP-5": Case("SP-5", lambda p: SCE(DenseJacobianFree(p, 0.1, iterations=20))),
    "SCE CvxpySmoothed, SP-3": Case("SP-3", lambda p: SCE(CvxpySmoothed(p.program, _mu(p))), epochs=1),
    "CaVE exact, SP-5": Case("SP-5", lambda p: CaVE(p.program)),
    "CaVE inner, KP-30": Case("KP-30", lambda p: CaVE(p.program, variant="inner")),
    "CaVE as published, KP-30": Case("KP-30", lambda p: CaVEAsPublished(p.program), epochs=2),
}


def digest(*tensors: torch.Tensor) -> str:
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(tensor.detach().contiguous().numpy().tobytes())
    return content.hexdigest()[:16]


def outcome(model: nn.Module, history: Any, answers: torch.Tensor, **more: float) -> dict[str, Any]:
    weights, loss = digest(*model.state_dict().values()), history.rows[-1]["loss"]
    return {"weights": weights, "loss": loss, "answers": answers.detach().double().reshape(-1)[:64].tolist()} | more


def trained(case: Case) -> dict[str, Any]:
    """The digest of the final weights, and the first answers of the layer."""
    problem = dfl.problems.problem_named(case.problem, seed=SEED)
    data = dfl.label(problem.generate(POINTS, dtype=case.dtype), problem.solver(), progress=False)
    torch.manual_seed(SEED)
    model = nn.Linear(data.features.shape[1], problem.program.p).to(case.dtype)
    loss = case.loss(problem)
    history = dfl.fit(model, loss, data, epochs=case.epochs, seed=SEED, progress=False)
    fresh = case.loss(problem)
    costs = model(data.features[:32]).detach()
    first = fresh(costs, data.batch(slice(32))) if fresh.layer is None else fresh.layer.solve(costs).decision
    c = problem.program.objective.vector(data.costs.double())
    decided = problem.solver().solve(model(data.features).detach()).decision.double()
    lost = (c * (decided - data.decisions.double())).sum() / (c * data.decisions.double()).sum().abs()
    return outcome(model, history, first, regret=float(lost))


def with_instances() -> dict[str, Any]:
    """The estimator with right-hand sides, bounds and known costs that differ from row to row, and an MLP."""
    rng = np.random.RandomState(0)
    program = dfl.Program(
        A=[[1.0, 1, 1, 0], [0, 1, 0, 1]], b=[2.0, 1.0], G=[[1.0, 2, 1, 1]], h=[4.0], S=np.eye(4)[:, :3]
    )
    X = rng.normal(size=(120, 4))
    Y = np.exp(0.3 * X @ rng.normal(size=(4, 3))) + 0.5
    ranges = {"h": (3.5, 5, (120, 1)), "upper": (1.5, 2, (120, 4)), "d": (0, 1, (120, 4))}
    instance = dfl.Instance(**{name: torch.tensor(rng.uniform(*one)) for name, one in ranges.items()})
    fitted = dfl.DecisionFocusedRegressor(program, model="mlp", hidden=(8,), epochs=6, random_state=3)
    fitted.fit(X, Y, instance=instance)
    return outcome(fitted.model_, fitted.history_, torch.tensor(fitted.decide(X, instance)))


def resumed() -> dict[str, Any]:
    """A run with warm starts and a scheduler that stops half-way and goes on from its checkpoint."""
    problem = dfl.problems.problem_named("SP-5", seed=SEED)
    data = dfl.label(problem.generate(POINTS), problem.solver(), progress=False)
    with tempfile.TemporaryDirectory() as folder:
        for epochs in (2, 5):
            model = dfl.models.MLP(data.features.shape[1], problem.program.p, hidden=(6,), seed=2)
            history = dfl.fit(
                model, SCE(smoothed(problem)), data.subset(slice(0, 200)), validation=data.subset(slice(200, 240)),
                problem=problem, optimizer="adamw", checkpoint=Path(folder) / "run.pt", epochs=epochs, keep="best",
                scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5), seed=SEED, progress=False,
            )  # fmt: skip
    return outcome(model, history, torch.tensor([row["validation_absolute_regret"] for row in history.rows]).double())


def run_all(only: str) -> dict[str, dict[str, Any]]:
    torch.set_num_threads(1)
    runs: dict[str, Callable[[], dict[str, Any]]] = {name: partial(trained, case) for name, case in CASES.items()}
    runs["estimator, SCE Smoothed, instances, MLP"] = with_instances
    runs["resumed, SCE Smoothed, MLP, AdamW, scheduler"] = resumed
    found = {}
    for name, run in runs.items():
        if re.search(only, name):
            found[name] = run()
            print(f"{found[name]['weights']}  {name}", flush=True)
    return found


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Say which runs differ, and by how much their layers' answers do; how many do."""
    before = {name: run for name, run in before.items() if name in after}
    differing = [name for name in before if before[name]["weights"] != after[name]["weights"]]
    for name in differing:
        a, b = (np.array(runs[name]["answers"]) for runs in (before, after))
        if a.shape != b.shape:
            print(f"differs: {name}: answers of another shape, {a.shape} and {b.shape}")
            continue
        size = max(float(np.abs(a).max()), 1e-300)
        regrets = [runs[name].get("regret") for runs in (before, after)]
        moved = "" if None in regrets else f"; regret from {regrets[0]:.5f} to {regrets[1]:.5f}"
        print(f"differs: {name}: answers by {float(np.abs(a - b).max()) / size:.1e}, relative{moved}")
    print(f"{len(before) - len(differing)} of {len(before)} runs end with bitwise equal weights")
    return len(differing)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, help="write the digests to this file")
    arguments.add_argument("--compare", type=Path, help="compare with the digests in this file")
    arguments.add_argument("--only", default="", help="a regular expression: only the runs whose name it is found in")
    options = arguments.parse_args()
    found = run_all(options.only)
    if options.out is not None:
        about = {"commit": machine()["commit"], "machine": platform.machine(), "versions": installed(PACKAGES)}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({**about, "runs": found}, indent=1) + "\n")
    if options.compare is not None:
        sys.exit(min(1, compare(json.loads(options.compare.read_text())["runs"], found)))


if __name__ == "__main__":
    main()
