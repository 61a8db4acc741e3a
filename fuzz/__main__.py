"""python -m fuzz: run, count, shrink, and write results as JSON and Markdown. A run that was stopped goes on where it was.

Two runs may go on side by side, on ranges of seeds of their own. `--reproduce FAMILY SEED SUBJECT` prints the smallest program that
shows a failure again, as a test.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from fuzz.durability import CHECKS
from fuzz.families import FAMILIES
from fuzz.hostile import CHECKS as HOSTILE
from fuzz.isolated import run_isolated, shrink_isolated
from fuzz.report import commit_of_code, resumed, table, write
from fuzz.run import Tally, try_check
from fuzz.subjects import SUBJECTS
from fuzz.verdicts import BAD, VERDICTS, Verdict

# Families that are no programs: checks by seed, which take seconds each.
OTHERS: dict[str, dict[str, Callable[[int], list[Verdict]]]] = {"damage": CHECKS, "hostile files": HOSTILE}
MOST_CHECKED = 4  # seeds of such a family
IMPORTS = """import numpy as np
import torch

from dflearn import *
from dflearn.layers import CvxpySmoothed
from dflearn.solvers import *
from dflearn.solvers.task import best_solver
from dflearn.testing import check_optimal"""
WRITTEN = 30.0  # seconds between two writes


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="programs in all, shared by the families")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--families", default="", help=f"names, with commas; by default all, {', '.join(OTHERS)} too")
    parser.add_argument("--subjects", default="", help="names or beginnings of names, with commas; by default all")
    parser.add_argument("--out", type=Path, default=Path("results/fuzz"))
    parser.add_argument("--no-shrink", action="store_true", help="leave failures as they are")
    parser.add_argument(
        "--reproduce", nargs=3, metavar=("FAMILY", "SEED", "SUBJECT"), help="print one failure as a test"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.reproduce:
        return reproduce(*options.reproduce)
    asked = [name for name in options.families.split(",") if name] or [*FAMILIES, *OTHERS]
    if unknown := set(asked) - {*FAMILIES, *OTHERS}:
        parser.error(f"no families {', '.join(sorted(unknown))}; there are {', '.join([*FAMILIES, *OTHERS])}")
    families = [name for name in asked if name in FAMILIES]
    wanted = tuple(name for name in options.subjects.split(",") if name)
    subjects = [name for name in SUBJECTS if not wanted or name.startswith(wanted)]
    seeds = range(options.seed, options.seed + -(-options.count // max(len(families), 1)))
    file = options.out / f"seeds-{seeds.start}-{seeds.stop - 1}.json"
    config = {"count": options.count, "seed": options.seed, "families": families, "subjects": subjects}
    commit = commit_of_code()
    tally, done = resumed(file, config, commit)
    if done:
        print(f"{file}: {done} seeds of each family are done")
    begun = written = time.perf_counter()
    for seed in run_isolated(seeds[done:], families, subjects, tally) if families else ():
        done = seed + 1 - seeds.start
        if time.perf_counter() - written > WRITTEN or done == len(seeds):
            write(file, tally, config, commit, done)
            table(options.out)
            _show(tally, done, len(seeds), time.perf_counter() - begun)
            written = time.perf_counter()
    for family in [name for name in asked if name in OTHERS and not tally.programs[name]]:
        for seed in seeds[:MOST_CHECKED]:
            for name, check in OTHERS[family].items():
                begun_one = time.perf_counter()
                tally.add(family, seed, name, try_check(check, seed), time.perf_counter() - begun_one)
        write(file, tally, config, commit, done)
    table(options.out)
    print(f"wrote {file} and {options.out / 'README.md'}")
    if not options.no_shrink:
        print(tests_of(tally))
    return int(bool(tally.bad()))


def reproduce(family: str, seed: str, subject: str) -> int:
    """Print the smallest program that shows what went wrong there, whatever it was."""
    if text := shrink_isolated(family, int(seed), subject, (*BAD, "missed")):
        print(f"{IMPORTS}\n\n\n{text}")
        return 0
    print(f"{subject} is right on {family} {seed}")
    return 1


def tests_of(tally: Tally) -> str:
    """One shrunken program for each family, subject and verdict that went wrong, as tests."""
    texts, seen = [], set()
    for family, seed, name, verdict, _ in tally.failures:
        if (family, name, verdict) not in seen and family in FAMILIES and verdict in BAD:
            seen.add((family, name, verdict))
            texts.append(shrink_isolated(family, seed, name, [verdict]))
    return "\n\n\n".join(text for text in texts if text)


def _show(tally: Tally, done: int, total: int, seconds: float) -> None:
    verdicts = tally.verdicts()
    counts = ", ".join(f"{verdicts[name]} {name}" for name in VERDICTS if verdicts[name])
    print(f"{done}/{total} seeds, {sum(tally.programs.values())} programs, {seconds:.0f} s: {counts}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
