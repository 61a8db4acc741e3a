"""Results as files: one JSON file for each range of seeds, and a table over all of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from dflearn.studies.record import machine
from fuzz.run import Tally, from_plain, plain
from fuzz.verdicts import BAD, MEANINGS, VERDICTS

FIRST = 0.99  # the share that the first method should answer
CODE = ("src", "fuzz")  # folders whose last commit a result belongs to


def commit_of_code() -> str:
    """The last commit that changed the library or the fuzzer; "+" where files differ from it."""

    def git(*command: str) -> str:
        done = subprocess.run(["git", *command, "--", *CODE], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    return (git("log", "-1", "--format=%h") or "unknown") + ("+" if git("status", "--porcelain") else "")


def resumed(file: Path, config: dict[str, Any], commit: str) -> tuple[Tally, int]:
    """What the file holds, if it is of this commit and configuration, and how many seeds are done."""
    if file.exists():
        held = json.loads(file.read_text())
        if held["config"] == config and held["commit"] == commit:
            return from_plain(held), held["seeds_done"]
    return Tally(), 0


def write(file: Path, tally: Tally, config: dict[str, Any], commit: str, done: int) -> None:
    """All at once, or not at all. One line for each family and subject."""
    file.parent.mkdir(parents=True, exist_ok=True)
    versions = {"python": machine()["python"], **machine()["versions"]}
    record = {"config": config, "commit": commit, "versions": versions, "seeds_done": done, **plain(tally)}
    lines = []
    for key, value in record.items():
        if isinstance(value, (dict, list)) and value and key != "config":
            pairs = value.items() if isinstance(value, dict) else [(None, one) for one in value]
            inner = [("" if name is None else f"{json.dumps(name)}: ") + json.dumps(one) for name, one in pairs]
            opened, closed = "{}" if isinstance(value, dict) else "[]"
            lines.append(f"{json.dumps(key)}: {opened}\n  " + ",\n  ".join(inner) + f"\n {closed}")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    temporary = file.with_suffix(".tmp")
    temporary.write_text("{\n " + ",\n ".join(lines) + "\n}\n")
    temporary.replace(file)


def table(folder: Path) -> None:
    """README.md: verdicts by family and by subject, over all result files of the folder."""
    total, runs = Tally(), []
    for file in sorted(folder.glob("seeds-*.json")):
        held = json.loads(file.read_text())
        one, turns = from_plain(held), held["config"]["turns"]
        met = "all subjects" if turns == 1 else f"every {turns}th subject, by turns of the seed"
        runs.append(
            f"- `{file.name}`, commit {held['commit']}: {sum(one.programs.values())} programs, each meets {met}"
        )
        total.programs.update(one.programs)
        total.seconds.update(one.seconds)
        total.failures += one.failures
        for family, subjects in one.counts.items():
            total.later.setdefault(family, Counter()).update(one.later.get(family, {}))
            for subject, counts in subjects.items():
                total.counts.setdefault(family, {}).setdefault(subject, Counter()).update(counts)
    programs = sum(total.programs.values())
    every = Counter({v: sum(c[v] for by in total.counts.values() for c in by.values()) for v in VERDICTS})
    asked = sum(every.values()) - every["unsure"] - every["declared"]
    rate = f" (1 in {asked // every['missed']})" if every["missed"] else ""
    lines = [
        "# Fuzzing",
        "",
        f"{programs} programs by seed, `make fuzz`. Verdicts count instances: {every['silent wrong']} silent wrong, "
        f"{every['missed']} missed of {asked}{rate}, {every['crash']} crashes.",
        "",
        *runs,
        "",
        *(f"- **{verdict}**: {meaning}" for verdict, meaning in MEANINGS.items()),
        "- **first**: the share that the first method answered; the others, a slower one had to",
        "",
    ]
    by_family = {
        f: (sum(by.values(), Counter()), sum(total.later.get(f, Counter()).values())) for f, by in total.counts.items()
    }
    names = list(dict.fromkeys(subject for by in total.counts.values() for subject in by))
    by_subject = {
        name: (
            sum((by[name] for by in total.counts.values() if name in by), Counter()),
            sum(by[name] for by in total.later.values()),
        )
        for name in names
    }
    lines += _rows("family", "programs", {f: str(total.programs[f]) for f in by_family}, by_family)
    spent = {name: f"{1000 * total.seconds[name] / max(programs, 1):.2f}" for name in by_subject}
    lines += _rows("subject", "ms per program", spent, by_subject)
    lines += [f"Below {100 * FIRST:.0f} % by the first method, by family and subject:", ""]
    for family, by in total.later.items():
        for subject, later in by.items():
            answered = sum(total.counts[family][subject].values())
            if later > (1 - FIRST) * answered:
                lines.append(f"- {family}, {subject}: {100 * (1 - later / answered):.1f} % of {answered}")
    lines += ["", "Silent wrong answers, crashes and missed answers, by family and subject:", ""]
    for verdicts in (BAD, ("missed",)):
        for family, by in total.counts.items():
            for subject, counts in by.items():
                if found := {verdict: counts[verdict] for verdict in verdicts if counts[verdict]}:
                    seeds = dict.fromkeys(
                        f[1] for f in total.failures if f[0] == family and f[2] == subject and f[3] in found
                    )
                    text = ", ".join(f"{n} {verdict}" for verdict, n in found.items())
                    lines.append(
                        f"- {family}, {subject}: {text} (of {sum(counts.values())}; seeds {', '.join(map(str, seeds))})"
                    )
    if not lines[-1]:
        lines.append("none")
    temporary = folder / f"README.{os.getpid()}.tmp"
    temporary.write_text("\n".join([*lines, ""]))
    temporary.replace(folder / "README.md")


def _rows(title: str, column: str, told: dict[str, str], counts: dict[str, tuple[Counter[str], int]]) -> list[str]:
    lines = [f"| {title} | {column} | {' | '.join(VERDICTS)} | first |", "|---|" + "---:|" * (len(VERDICTS) + 2)]
    for name, (counter, later) in counts.items():
        numbers, all_of_them = " | ".join(str(counter[verdict]) for verdict in VERDICTS), sum(counter.values())
        share = f"{100 * (1 - later / all_of_them):.2f} %" if all_of_them else ""
        lines.append(f"| {name} | {told[name]} | {numbers} | {share} |")
    return [*lines, ""]
