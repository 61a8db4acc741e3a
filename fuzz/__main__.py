"""python -m fuzz: run, count, shrink, and write results as JSON and Markdown. A seed range that is done is not run again."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from dflearn.studies.record import machine
from fuzz.durability import CHECKS
from fuzz.families import FAMILIES
from fuzz.isolated import run_isolated, shrink_isolated
from fuzz.run import Tally, plain, try_check
from fuzz.subjects import SUBJECTS
from fuzz.verdicts import BAD, VERDICTS

DAMAGE, MOST_DAMAGE = "damage", 4  # a family of its own, whose checks take seconds each
PART = 20  # seeds between two writes


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="programs in all, shared by the families")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--families", default="", help=f"names, with commas; by default all, {DAMAGE!r} too")
    parser.add_argument("--subjects", default="", help="names or beginnings of names, with commas; by default all")
    parser.add_argument("--turns", type=int, default=1, help="a program meets every so-manieth subject, by its seed")
    parser.add_argument("--out", type=Path, default=Path("results/fuzz"))
    parser.add_argument("--no-shrink", action="store_true", help="leave failures as they are")
    options = parser.parse_args(arguments)
    if options.turns < 1:
        parser.error(f"--turns is at least 1, got {options.turns}")
    torch.set_num_threads(1)
    families = [name for name in options.families.split(",") if name] or [*FAMILIES, DAMAGE]
    if unknown := set(families) - {*FAMILIES, DAMAGE}:
        parser.error(f"no families {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}, {DAMAGE}")
    damage, families = DAMAGE in families, [name for name in families if name != DAMAGE]
    wanted = tuple(name for name in options.subjects.split(",") if name)
    subjects = {name: what for name, what in SUBJECTS.items() if not wanted or name.startswith(wanted)}
    seeds = range(options.seed, options.seed + -(-options.count // max(len(families), 1)))
    file = options.out / f"seeds-{seeds.start}-{seeds.stop - 1}.json"
    tally, done = _resumed(file, families, list(subjects), options.turns), 0
    if tally.programs:
        done = min((tally.programs[family] for family in families), default=len(seeds))
        print(f"{file}: {done} seeds of each family are done")
    begun = time.perf_counter()
    for first in range(seeds.start + done, seeds.stop if families else seeds.start, PART):
        run_isolated(range(first, min(first + PART, seeds.stop)), families, list(subjects), tally, options.turns)
        _write(file, tally, options, families, list(subjects))
        _show(tally, first + PART - seeds.start, len(seeds), time.perf_counter() - begun)
    if damage and not tally.programs[DAMAGE]:
        for seed in seeds[:MOST_DAMAGE]:
            tally.programs[DAMAGE] += 1
            for name, check in CHECKS.items():
                begun_one = time.perf_counter()
                tally.add(DAMAGE, seed, name, try_check(check, seed), time.perf_counter() - begun_one)
        _write(file, tally, options, families, list(subjects))
    if not options.no_shrink:
        print(tests_of(tally))
    table(options.out)
    print(f"wrote {file} and {options.out / 'README.md'}")
    return int(bool(tally.bad()))


def tests_of(tally: Tally) -> str:
    """One shrunken program for each family, subject and verdict that went wrong, as tests."""
    texts, seen = [], set()
    for family, seed, name, verdict, _ in tally.failures:
        if (family, name, verdict) not in seen and family in FAMILIES:
            seen.add((family, name, verdict))
            texts.append(shrink_isolated(family, seed, name, verdict))
    return "\n\n\n".join(text for text in texts if text)


def _show(tally: Tally, done: int, total: int, seconds: float) -> None:
    verdicts = _totals(tally)
    counts = ", ".join(f"{verdicts[name]} {name}" for name in VERDICTS if verdicts[name])
    print(
        f"{min(done, total)}/{total} seeds, {sum(tally.programs.values())} programs, {seconds:.0f} s: {counts}",
        flush=True,
    )


def _totals(tally: Tally) -> Counter[str]:
    return sum((c for subjects in tally.counts.values() for c in subjects.values()), Counter())


def _resumed(file: Path, families: list[str], subjects: list[str], turns: int) -> Tally:
    tally = Tally()
    if file.exists():
        held = json.loads(file.read_text())
        config = held["config"]
        same = (config["families"], config["subjects"], config["turns"]) == (families, subjects, turns)
        if same and held["commit"] == machine()["commit"]:
            tally.programs.update(held["programs"])
            tally.counts = {f: {s: Counter(c) for s, c in by.items()} for f, by in held["counts"].items()}
            tally.failures = [tuple(failure.values()) for failure in held["failures"]]
            tally.seconds.update(held["seconds"])
    return tally


def _write(file: Path, tally: Tally, options: Any, families: list[str], subjects: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "config": {
            "count": options.count,
            "seed": options.seed,
            "turns": options.turns,
            "families": families,
            "subjects": subjects,
        },
        "commit": machine()["commit"],
        "versions": {"python": machine()["python"], **machine()["versions"]},
        **plain(tally),
    }
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=1) + "\n")
    temporary.replace(file)


def table(folder: Path) -> None:
    """README.md: verdicts by family and by subject, over all result files of the folder."""
    by_family: dict[str, Counter[str]] = {}
    by_subject: dict[str, Counter[str]] = {}
    programs: Counter[str] = Counter()
    wrong, runs = [], []
    files = sorted(folder.glob("seeds-*.json"))
    for file in files:
        held = json.loads(file.read_text())
        programs.update(held["programs"])
        turns, count = held["config"]["turns"], sum(held["programs"].values())
        met = "all subjects" if turns == 1 else f"every {turns}th subject, by turns of the seed"
        runs.append(f"- `{file.name}`, commit {held['commit']}: {count} programs, each meets {met}")
        for family, subjects in held["counts"].items():
            for subject, counts in subjects.items():
                by_family.setdefault(family, Counter()).update(counts)
                by_subject.setdefault(subject, Counter()).update(counts)
                if bad := {verdict: counts[verdict] for verdict in BAD if counts.get(verdict)}:
                    wrong.append(f"- {family}, {subject}: " + ", ".join(f"{n} {verdict}" for verdict, n in bad.items()))
    lines = ["# Fuzzing", "", f"{sum(programs.values())} programs by seed, `make fuzz`; verdicts count instances.", ""]
    lines += [*runs, ""]
    for title, counts in (("family", by_family), ("subject", by_subject)):
        lines += [f"| {title} | programs | {' | '.join(VERDICTS)} |", "|---|" + "---:|" * (len(VERDICTS) + 1)]
        for name, counter in counts.items():
            numbers = " | ".join(str(counter[verdict]) for verdict in VERDICTS)
            lines.append(f"| {name} | {programs[name] if title == 'family' else ''} | {numbers} |")
        lines.append("")
    lines += ["Silent wrong answers and crashes:", "", *(wrong or ["none"]), ""]
    (folder / "README.md").write_text("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
