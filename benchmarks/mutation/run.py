"""Mutation testing: do the tests notice when an operator of the source changes?

    python benchmarks/mutation/run.py [--count 400] [--seed 14] [--out results/mutation] [--again]

Draws mutants of Cosmic Ray by seed, runs for each the tests that execute its line, fastest first, and writes every verdict
and a table. What is done is not run again; `--again` tries survivors once more that nobody judged, after tests were added. Test files that
changed are measured again. One process.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mutants import Mutant, all_mutants, draw, eligible, sources
from trial import Coverage, Verdict, Workshop
from verdicts import judgements, write

FOLDERS = ["program", "solvers", "layers", "losses", "evaluation"]
TESTS = ["program", "solvers", "layers", "losses", "evaluation", "frontends", "testing", "problems", "data", "doctor"]
MORE_TESTS = ["tests/test_spine.py", "tests/test_fuzz.py"]
PACKAGES = ("cosmic-ray", "coverage", "pytest", "hypothesis", "torch", "numpy", "scipy", "numba", "highspy")
MARGIN, SLOWER = 20.0, 3.0  # a mutant's limit: MARGIN + SLOWER · the seconds that its tests take unmutated


def coverage_of(build: Path) -> Coverage:
    """Measures the test files that changed, in a process of its own, and keeps the rest."""
    file = build / "coverage.json"
    record = json.loads(file.read_text()) if file.exists() else {"files": {}, "seconds": {}, "failed": [], "lines": {}}
    found = sorted(str(path) for folder in TESTS for path in Path("tests", folder).glob("test_*.py")) + MORE_TESTS
    marks = {name: hashlib.sha256(Path(name).read_bytes()).hexdigest()[:16] for name in found}
    changed = [name for name in found if record["files"].get(name) != marks[name]]
    if changed:
        part = build / "part.json"
        print(f"measuring {len(changed)} test files", flush=True)
        subprocess.run([sys.executable, __file__, "--measure", str(part), *changed], check=True)
        record = _merged(record, json.loads(part.read_text()), set(changed)) | {"files": marks}
        file.write_text(json.dumps(record))
    return Coverage(record)


def _merged(old: dict[str, Any], new: dict[str, Any], changed: set[str]) -> dict[str, Any]:
    def kept(name: str) -> bool:
        return name.split("::")[0] not in changed

    lines = {}
    for file, of_file in new["lines"].items():
        before = old["lines"].get(file, {})
        lines[file] = {
            line: sorted({*filter(kept, before.get(line, [])), *of_file.get(line, [])})
            for line in sorted({*before, *of_file}, key=int)
        }
    seconds = {test: value for test, value in old["seconds"].items() if kept(test)} | new["seconds"]
    return {"seconds": seconds, "failed": [*filter(kept, old["failed"]), *new["failed"]], "lines": lines}


def drawn_mutants(build: Path, count: int, seed: int) -> tuple[list[Mutant], dict[str, int]]:
    """The draw, kept in a file: parsing takes a minute or two. And how many there were to draw from."""
    file = build / f"drawn-{seed}-{count}.json"
    if not file.exists():
        print("drawing mutants", flush=True)
        files = sources(FOLDERS)
        candidates = eligible(files)
        sizes = {"all": sum(1 for _ in all_mutants(files)), "eligible": len(candidates)}
        file.write_text(json.dumps({"mutants": draw(candidates, count, seed), "sizes": sizes}))
    record = json.loads(file.read_text())
    return [Mutant(*fields) for fields in record["mutants"]], record["sizes"]


def change_of(mutant: Mutant, code: str) -> list[str]:
    """The line before and after; blank and further lines, where the mutant changes the layout, are left out."""
    texts = (Path(mutant.file).read_text(), code)
    before, after = ([line.strip() for line in text.splitlines() if line.strip()] for text in texts)
    return list(next((pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]), ("", "")))


def try_mutants(
    mutants: list[Mutant], coverage: Coverage, log: Path, again: Callable[[dict[str, Any]], bool], most_seconds: float
) -> dict[str, Any]:
    """Verdicts by the mutants' names; each is written to `log`, one JSON line, as soon as it is known.

    again: which of those that were tried are tried once more.
    """
    done = {row["name"]: row for row in map(json.loads, log.read_text().splitlines())} if log.exists() else {}
    waiting = [mutant for mutant in mutants if mutant.name not in done or again(done[mutant.name])]
    if not waiting:
        return done
    workshop = Workshop(log.parent / "tree", Path.cwd())
    workshop.compile(sorted({test.split("::")[0] for test in coverage.seconds}))
    begun, killed = time.perf_counter(), 0
    for k, mutant in enumerate(waiting, 1):
        code, tests = mutant.code(), coverage.chosen(mutant, most_seconds)
        limit = MARGIN + SLOWER * sum(coverage.seconds[test] for chosen in tests.values() for test in chosen)
        verdict = workshop.try_code(mutant.file, code, tests, limit) if tests else Verdict("uncovered")
        row = {"name": mutant.name, **mutant._asdict(), "change": change_of(mutant, code), **verdict._asdict()}
        done[mutant.name] = row
        with log.open("a") as stream:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        killed += verdict.verdict == "killed"
        print(
            f"{k}/{len(waiting)} killed {killed}, {time.perf_counter() - begun:.0f} s: {verdict.verdict:9} {mutant.name}"
            f" ({verdict.tests} tests, {verdict.seconds} s) {verdict.test}",
            flush=True,
        )
    return done


def control(rows: list[dict[str, Any]], coverage: Coverage, build: Path) -> str:
    """What fails without any mutant, of the tests that killed; there should be nothing."""
    tests: dict[str, list[str]] = {}
    for test in sorted({row["test"] for row in rows} & {*coverage.seconds}):
        tests.setdefault(test.split("::")[0], []).append(test)
    file = str(sources(FOLDERS)[0])
    found = Workshop(build / "tree", Path.cwd()).try_code(file, Path(file).read_text(), tests, 600.0)
    return "" if found.verdict == "survived" else f"{found.verdict}: {found.test}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--first", type=int, help="of the draw, only so many: a pilot")
    parser.add_argument("--again", action="store_true", help="try survivors once more")
    parser.add_argument(
        "--most-seconds", type=float, default=15.0, help="of tests for a mutant, as they take unmutated"
    )
    parser.add_argument("--out", type=Path, default=Path("results/mutation"))
    parser.add_argument("--note", default="", help="what a reader must know about this draw")
    parser.add_argument("--build", type=Path, default=Path("build/mutation"))
    parser.add_argument("--measure", nargs="+", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("MPLBACKEND", "Agg")
    if options.measure:
        from coverage_map import measure

        return measure(sources(FOLDERS), options.measure[1:], Path(options.measure[0]))
    options.build.mkdir(parents=True, exist_ok=True)
    coverage = coverage_of(options.build)
    mutants, sizes = drawn_mutants(options.build, options.count, options.seed)
    log = options.build / f"verdicts-{options.seed}-{options.count}.jsonl"
    known = judgements(options.out)

    def again(row: dict[str, Any]) -> bool:
        return options.again and row["verdict"] != "killed" and row["name"] not in known

    done = try_mutants(mutants[: options.first], coverage, log, again, options.most_seconds)
    rows = [done[mutant.name] for mutant in mutants if mutant.name in done]
    head = ["git", "log", "-1", "--format=%H", "--", *(f"src/dflearn/{folder}" for folder in FOLDERS)]
    return write(
        options.out,
        rows,
        {
            "tool": "Cosmic Ray, all operators without arguments",
            "seed": options.seed,
            "note": options.note,
            "count": options.count,
            "folders": FOLDERS,
            "mutants": sizes,
            "tests": len(coverage.seconds),
            "most_seconds_of_tests": options.most_seconds,
            "commit": subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip(),
            "failing_without_mutant": control(rows, coverage, options.build),
            "python": platform.python_version(),
            "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        },
    )


if __name__ == "__main__":
    main()
