"""Mutation testing: do the tests notice when an operator of the source changes?

    python benchmarks/mutation/run.py [--count 400] [--seed 14] [--out results/mutation] [--again]

Draws mutants of Cosmic Ray by seed, runs for each the tests that execute its line, fastest first, and writes every verdict
and a table. What is done is not run again; `--again` tries survivors once more that nobody judged, after tests were added.
After a change of the tests, which lines each executes is measured anew.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mutants import Mutant, all_mutants, draw, eligible, sources
from trial import Coverage, Verdict, Workshop, measure
from verdicts import judgements, write

FOLDERS = ["program", "solvers", "layers", "losses", "evaluation"]
TESTS = [*FOLDERS, "frontends", "testing", "problems", "data", "doctor"]
MORE_TESTS = ["tests/test_spine.py", "tests/test_fuzz.py"]
PACKAGES = ("cosmic-ray", "coverage", "pytest", "hypothesis", "torch", "numpy", "scipy", "numba", "highspy")
MARGIN, SLOWER = 40.0, 3.0  # a mutant's limit: MARGIN + SLOWER · the seconds that its tests take unmutated
BUILD = Path("build/mutation")


def kept(file: Path, make: Callable[[], Any]) -> Any:
    """What a JSON file holds; `make` fills it where it is not there."""
    if not file.exists():
        print(f"making {file}", flush=True)
        file.write_text(json.dumps(make()))
    return json.loads(file.read_text())


def coverage() -> Coverage:
    tests = sorted(str(path) for folder in TESTS for path in Path("tests", folder).glob("test_*.py")) + MORE_TESTS
    mark = hashlib.sha256(b"".join(Path(name).read_bytes() for name in tests)).hexdigest()[:16]
    return Coverage(kept(BUILD / f"coverage-{mark}.json", lambda: measure(sources(FOLDERS), tests)))


def drawn(count: int, seed: int) -> dict[str, Any]:
    """The draw, and how many there were to draw from. Parsing takes a minute or two."""
    files, candidates = sources(FOLDERS), eligible(sources(FOLDERS))
    sizes = {"all": sum(1 for _ in all_mutants(files)), "eligible": len(candidates)}
    return {"mutants": draw(candidates, count, seed), "sizes": sizes}


def change_of(mutant: Mutant, code: str) -> list[str]:
    """The line before and after; blank and further lines, where the mutant changes the layout, are left out."""
    texts = (Path(mutant.file).read_text(), code)
    before, after = ([line.strip() for line in text.splitlines() if line.strip()] for text in texts)
    return list(next((pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]), ("", "")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("--count", 400), ("--seed", 14)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--again", action="store_true", help="try survivors once more")
    parser.add_argument("--most-seconds", type=float, default=15.0, help="of a mutant's tests, as they take unmutated")
    parser.add_argument("--out", type=Path, default=Path("results/mutation"))
    parser.add_argument("--note", default="", help="what a reader must know about this draw")
    options = parser.parse_args()
    os.environ.setdefault("MPLBACKEND", "Agg")
    BUILD.mkdir(parents=True, exist_ok=True)
    tests = coverage()
    record = kept(BUILD / f"drawn-{options.seed}-{options.count}.json", lambda: drawn(options.count, options.seed))
    mutants, log = [Mutant(*of) for of in record["mutants"]], BUILD / f"verdicts-{options.seed}-{options.count}.jsonl"
    done = {row["name"]: row for row in map(json.loads, log.read_text().splitlines())} if log.exists() else {}
    if options.again:
        judged = judgements(options.out)
        done = {name: row for name, row in done.items() if row["verdict"] == "killed" or name in judged}
    workshop = Workshop(BUILD / "tree")
    waiting = [mutant for mutant in mutants if mutant.name not in done]
    for k, mutant in enumerate(waiting, 1):
        code, chosen = mutant.code(), tests.chosen(mutant, options.most_seconds)
        limit = MARGIN + SLOWER * sum(tests.seconds[test] for test in chosen)
        verdict = workshop.try_code(mutant.file, code, chosen, limit) if chosen else Verdict("uncovered")
        row = {"name": mutant.name, **mutant._asdict(), "change": change_of(mutant, code), **verdict._asdict()}
        done[mutant.name] = row
        with log.open("a") as stream:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(f"{k}/{len(waiting)} {time.strftime('%H:%M')} {mutant.name}: {verdict}", flush=True)
    rows = [done[mutant.name] for mutant in mutants]
    killers = sorted({row["test"] for row in rows} & {*tests.seconds})
    control = workshop.run(killers, MARGIN + SLOWER * sum(tests.seconds[test] for test in killers))
    head = ["git", "log", "-1", "--format=%H", "--", *(f"src/dflearn/{folder}" for folder in FOLDERS)]
    about: dict[str, Any] = {"tool": "Cosmic Ray, all operators without arguments", "seed": options.seed}
    about |= {"note": options.note, "count": options.count, "folders": FOLDERS, "mutants": record["sizes"]}
    about |= {"tests": len(tests.seconds), "most_seconds_of_tests": options.most_seconds}
    about |= {
        "commit": subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip(),
        "failing_without_mutant": "" if control.verdict == "survived" else f"{control.verdict}: {control.test}",
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }
    write(options.out, rows, about)


if __name__ == "__main__":
    main()
