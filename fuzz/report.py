"""Results as files: one JSON file for each range of seeds, and a table over all of them."""

import json
import os
import subprocess
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from dflearn.studies.record import machine
from fuzz.families import FAMILIES
from fuzz.pipeline import NORM_OF_FAR
from fuzz.run import Tally, from_plain, plain
from fuzz.subjects import SUBJECTS
from fuzz.verdicts import BAD, MEANINGS, VERDICTS

CODE = ("src", "fuzz")  # folders whose last commit a result belongs to


def commit_of_code() -> str:
    """The last commit that changed the library or the fuzzer; "+" and a digest of the changes where files differ from it."""

    def git(*command: str) -> str:
        done = subprocess.run(["git", *command, "--", *CODE], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changes = git("status", "--porcelain") + git("diff", "HEAD")
    digest = f"+{zlib.crc32(changes.encode()):08x}" if changes else ""
    return (git("log", "-1", "--format=%h") or "unknown") + digest


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
    total, runs, configs = Tally(), [], []
    for file in sorted(folder.glob("seeds-*.json")):
        held = json.loads(file.read_text())
        one = from_plain(held)
        runs.append(f"- `{file.name}`, commit {held['commit']}: {sum(one.programs.values())} programs")
        total.join(one)
        configs.append(held["config"])
    programs, every = sum(total.programs.values()), total.verdicts()
    asked = sum(every.values()) - every["unsure"] - every["declared"]
    rate = f" (1 in {asked // every['missed']})" if every["missed"] else ""
    spent = {name: f"{1000 * seconds / max(programs, 1):.2f}" for name, seconds in total.seconds.items()}
    pairs = list(dict.fromkeys(key[:2] for key in total.counts))
    answered = {pair: sum(total.counts[(*pair, verdict)] for verdict in VERDICTS) for pair in pairs}
    seldom = ", ".join(f"{name} every {s.every}th seed" for name, s in SUBJECTS.items() if s.every > 1)
    lines = [
        "# Fuzzing",
        "",
        f"{programs} programs by seed, `make fuzz`. Verdicts count instances: {every['silent wrong']} silent wrong, "
        f"{every['missed']} missed of {asked}{rate}, {every['crash']} crashes.",
        "",
        *runs,
        "",
        "Every program meets every solver and layer that is made for it, but slow ones, and all that is built upon them, meet some: "
        f"{seldom}. If a subject can answer in several ways (from a start, with presolve), it takes one for each program, by turns of "
        f"the seed. The norm of `Smoothed` meets every {NORM_OF_FAR}th of the programs with parts or limits far apart.",
        "",
        "A run goes on where it stopped, if code and configuration are those of its file, with the command that began it:",
        "",
        *(f"    {_command(held)}" for held in configs),
        "",
        *(f"- **{verdict}**: {meaning}" for verdict, meaning in MEANINGS.items()),
        "- **first**: the share that the first method answered; the others, a slower one had to",
        "",
        *_rows("family", "programs", {name: str(count) for name, count in total.programs.items()}, total.sums(0)),
        *_rows("subject", "ms per program", spent, total.sums(1)),
    ]
    lines += ["Silent wrong answers, crashes and missed answers, by family and subject:", ""]
    for verdicts in (BAD, ("missed",)):
        for pair in pairs:
            found = {verdict: count for verdict in verdicts if (count := total.counts[(*pair, verdict)])}
            if found:
                kept = (f.seed for f in total.failures if (f.family, f.subject) == pair and f.verdict in found)
                text = ", ".join(f"{n} {verdict}" for verdict, n in found.items())
                seeds = ", ".join(map(str, dict.fromkeys(kept)))
                lines.append(f"- {', '.join(pair)}: {text} (of {answered[pair]}; seeds {seeds})")
    if not lines[-1]:
        lines.append("none")
    temporary = folder / f"README.{os.getpid()}.tmp"
    temporary.write_text("\n".join([*lines, ""]))
    temporary.replace(folder / "README.md")


def _command(config: dict[str, Any]) -> str:
    every = {"families": list(FAMILIES), "subjects": list(SUBJECTS)}
    some = [f" --{name} '{','.join(config[name])}'" for name, names in every.items() if config[name] not in ([], names)]
    return f"python -m fuzz --count {config['count']} --seed {config['seed']}{''.join(some)} --no-shrink"


def _rows(title: str, column: str, told: dict[str, str], counts: dict[str, tuple[Counter[str], int]]) -> list[str]:
    lines = [f"| {title} | {column} | {' | '.join(VERDICTS)} | first |", "|---|" + "---:|" * (len(VERDICTS) + 2)]
    for name, (counter, later) in counts.items():
        numbers, all_of_them = " | ".join(str(counter[verdict]) for verdict in VERDICTS), sum(counter.values())
        share = f"{100 * (1 - later / all_of_them):.2f} %" if all_of_them else ""
        lines.append(f"| {name} | {told[name]} | {numbers} | {share} |")
    return [*lines, ""]
