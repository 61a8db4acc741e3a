"""Seconds per epoch of training, against PyEPO and against the published Davis-Yin layer.

    python benchmarks/speed/epochs.py [--problems SP-15 KP-100 …] [--quick] [--repeats 9] [--threads 1] [--json results/bench/epochs.json]

Everyone trains the same linear model from the same weights on the same 800 instances in the same order: batches of 32,
Adam at 0.005. dflearn trains with `fit`; PyEPO in the plain loop that one would write by hand, on tensors that are
indexed, which is faster than a DataLoader. Knapsacks and locations are relaxed: labels, training and regret. The regret
is the ratio of sums over 1000 other instances after as many epochs as all of a row were timed.
Cold: no start. Warm: from where the same instance's last solve ended. PyEPO's solvers go on from the last instance's basis.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import dflearn as dfl
from contest import Entry, Result, contest
from dflearn.data.scale import Scale
from dflearn.problems.base import Problem
from harness import Row, Rows, columns, command_line, earlier, geometric_mean, parser, provenance, report

TRAIN, TEST, BATCH, LEARNING_RATE, SEED = 800, 1000, 32, 0.005, 1
QUICK = ("SP-15", "KP-100", "CFL-50")
PYEPO = ("SP-15", "SP-25", "KP-100", "KP-400")  # where the peers are measured
# τ as printed in the paper's table of hyperparameters.
PUBLISHED_TAU = {"SP-10": 1.0, "KP-100": 1.0} | {name: 0.1 for name in dfl.problems.PROBLEMS if name.startswith("CFL")}

GUROBI, ORTOOLS, MPAX = "PyEPO + Gurobi", "PyEPO + OR-Tools", "PyEPO + MPAX"
ON_MPAX = ("SP-15", "KP-100")  # first-order steps on a CPU take their time


def entries(name: str, quick: bool = False) -> dict[str, Entry]:
    """Who trains on the problem."""
    who = ["SCE^DYS", "SCE^DYS as published", "SCE^DYS jfb", "SCE^DYS dense jfb", "SCE^smoothed", "SCE^smoothed, warm"]
    if name in PYEPO:
        for loss, starts in {"SP": {"SPO+": ""}, "KP": {"SPO+": ", warm", "PFY": ", warm"}}[name[:2]].items():
            who += dict.fromkeys([loss, loss + starts, f"{loss}, {GUROBI}", f"{loss}, {ORTOOLS}"])
        who += [f"SPO+, {MPAX}"] * (name in ON_MPAX)
    if quick:
        who = [each for each in who if not any(part in each for part in ("warm", "jfb", "PFY", ORTOOLS, MPAX))]
    return {each: entry(each) for each in who}


def entry(who: str) -> Entry:
    if "PyEPO" not in who:
        return Entry("run_dflearn.py", (who,))
    environment = "ortools" if who.endswith(ORTOOLS) else "mpax" if who.endswith(MPAX) else ""
    return Entry("run_pyepo.py", (who.replace("PyEPO + ", ""),), environment)


def material(problem: Problem) -> tuple[dict[str, Any], dfl.DecisionDataset]:
    """What every contender is given, and the instances that it is judged on."""
    data = dfl.label(problem.generate(TRAIN + TEST), problem.relaxed_solver(), progress=False)
    train, test = data.subset(slice(TRAIN)), data.subset(slice(TRAIN, None))
    model = dfl.models.Linear(train.features.shape[1], problem.program.p, seed=SEED)
    tau, mu = PUBLISHED_TAU.get(problem.name, 0.0), Scale.of(problem.program.objective, train).mu
    given = {"problem": problem.name, "tau": tau, "mu": mu, "lr": LEARNING_RATE, "batch": BATCH, "seed": SEED}
    # Relaxed decisions are labels in double precision; the plain loop of PyEPO is in single, so everyone's is.
    given |= {part: getattr(train, part).float().numpy() for part in ("features", "costs", "decisions")}
    given |= {part: weights.numpy() for part, weights in model.state_dict().items()}
    if problem.name.startswith("SP"):
        given["grid"] = (problem.rows, problem.columns)  # type: ignore[attr-defined]
    if problem.name.startswith("KP"):
        given |= {"weights": problem.structure["weights"], "capacity": problem.program.h}
    return given, test


def regret(problem: Problem, test: dfl.DecisionDataset, found: dict[str, np.ndarray]) -> float:
    """Ratio of sums of the relaxation's regret."""
    model = torch.nn.Linear(found["weight"].shape[1], found["weight"].shape[0])
    model.load_state_dict({part: torch.tensor(found[part]) for part in ("weight", "bias")})
    judged = dfl.evaluate(model, problem.relaxation, test, problem.relaxed_solver(), progress=False, floor=False)
    return judged.ratio_of_sums


def difference(one: Result, other: Result) -> float:
    """How far the weights of two runs are apart, relative, after the last epoch that both have."""
    last = min(len(one.found), len(other.found)) - 1
    a, b = one.found[last]["weight"], other.found[last]["weight"]
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def measure(name: str, repeats: int | None, threads: int, quick: bool) -> dict[str, Row]:
    """The contest on one problem: per contender its times, memory and regrets, as plain values."""
    problem = dfl.problems.problem_named(name, seed=SEED)
    given, test = material(problem)
    # Where there are peers epochs are short, and make the curves of regret against time.
    repeats = repeats or (2 if quick else 9 if name in PYEPO else 5)
    results = contest(entries(name, quick), "epochs", given, repeats, threads)
    measured = {}
    for who, result in results.items():
        own = {"first": result.first, "seconds": result.seconds, "MiB": result.peak, "MiB of imports": result.imports}
        regrets = [round(regret(problem, test, found), 6) for found in result.found]
        measured[who] = own | {"turns": [round(turn, 6) for turn in result.turns], "regrets": regrets}
        peer = f"{who.partition(',')[0]}, {GUROBI}"
        if peer in results and "Py" not in who:
            measured[who]["difference"] = difference(result, results[peer])
    return measured


Measured = dict[str, dict[str, dict[str, Any]]]  # problem → contender → what `measure` found


@dataclass(frozen=True)
class Subject:
    """A table: contenders by the names of its columns (a row needs the first), and ratios of times (the slower column, the faster
    one). kind: the problems' letters, or empty for all; mean: whether a last row has the geometric means."""

    columns: dict[str, str]
    ratios: dict[str, tuple[str, str]]
    kind: str = ""
    mean: bool = False

    def rows(self, measured: Measured) -> Rows:
        first = next(iter(self.columns.values()))
        there = {name: found for name, found in measured.items() if first in found and name.startswith(self.kind)}
        rows = [self.row(name, found) for name, found in there.items()]
        return rows + ([geometric_mean(rows, *self.ratios)] if self.mean and len(rows) > 1 else [])

    def row(self, name: str, contenders: dict[str, dict[str, Any]]) -> Row:
        held = {column: contenders[who] for column, who in self.columns.items() if who in contenders}
        seconds = {column: found["seconds"] for column, found in held.items()}
        pairs = {ratio: pair for ratio, pair in self.ratios.items() if {*pair} <= {*held}}
        epochs = min(len(found["regrets"]) for found in held.values())
        row = {"problem": name} | columns(seconds, "s")
        row |= {ratio: seconds[slow] / seconds[fast] for ratio, (slow, fast) in pairs.items()}
        row |= {f"weights differ, {column}": v["difference"] for column, v in held.items() if "difference" in v}
        row |= {"epochs": epochs} | {f"regret, {column}": v["regrets"][epochs - 1] for column, v in held.items()}
        row |= {f"first epoch s, {column}": found["first"] for column, found in held.items()}
        return row | {f"MiB, {column}": found["MiB"] for column, found in held.items()}


def against_pyepo(loss: str, kind: str) -> Subject:
    """dflearn's and PyEPO's implementation of one loss."""
    peers = {"Gurobi": GUROBI, "OR-Tools": ORTOOLS, "MPAX": MPAX}
    who = {"cold": loss, "warm": f"{loss}, warm"} | {name: f"{loss}, {peer}" for name, peer in peers.items()}
    ratios = {f"{start} ratio": ("Gurobi", start) for start in ("cold", "warm")}
    return Subject(who, ratios | {f"{peer} ratio": (peer, "cold") for peer in ("OR-Tools", "MPAX")}, kind)


PUBLISHED = "SCE^DYS as published"
OURS = {way: way for way in ("SCE^DYS", "SCE^DYS jfb")}
OURS |= {"SCE^smoothed cold": "SCE^smoothed", "SCE^smoothed warm": "SCE^smoothed, warm"}
SUBJECTS = {
    "SPO+ on shortest paths": against_pyepo("SPO+", "SP"),
    "SPO+ on relaxed knapsacks": against_pyepo("SPO+", "KP"),
    "PFY on relaxed knapsacks": against_pyepo("PFY", "KP"),
    "SCE^DYS against the published layer": Subject(
        {"unrolled": "SCE^DYS", "as published": PUBLISHED, "jfb": "SCE^DYS jfb", "dense jfb": "SCE^DYS dense jfb"},
        {"unrolled ratio": ("as published", "unrolled"), "jfb ratio": ("dense jfb", "jfb")},
        mean=True,
    ),
    "SCE^smoothed against the published layer": Subject(
        {"cold": "SCE^smoothed", "warm": "SCE^smoothed, warm", "as published": PUBLISHED},
        {"cold ratio": ("as published", "cold"), "warm ratio": ("as published", "warm")},
        mean=True,
    ),
    "SCE against PyEPO's SPO+": Subject(
        {"SPO+, Gurobi": f"SPO+, {GUROBI}", **OURS}, {f"{way} ratio": ("SPO+, Gurobi", way) for way in OURS}
    ),
}


def main() -> None:
    arguments = parser(__doc__, repeats=None)
    arguments.add_argument(
        "--problems", nargs="+", choices=dfl.problems.PROBLEMS, metavar="NAME", help="default: all twelve"
    )
    options = arguments.parse_args()
    torch.set_num_threads(1)  # of this process, which only judges
    names = options.problems or (QUICK if options.quick else dfl.problems.PROBLEMS)
    kept = earlier(options.json, options.problems) or {"measured": {}, "commits": {}, "command": ""}
    measured, commits = kept["measured"], kept["commits"]
    for name in names:
        measured[name] = measure(name, options.repeats, options.threads, options.quick)
        commits[name] = provenance()["commit"]
        ordered = {known: measured[known] for known in dfl.problems.PROBLEMS if known in measured}
        rows = {title: rows for title, subject in SUBJECTS.items() if (rows := subject.rows(ordered))}
        heading, more = f"Seconds per epoch, {options.threads} thread{'s' * (options.threads > 1)}", names[-1] != name
        report(heading, rows, options.json, command_line(kept), more, commits=commits, measured=ordered)


if __name__ == "__main__":
    main()
