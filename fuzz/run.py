"""Run subjects on cases, count verdicts, keep what went wrong."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from dflearn.errors import DflearnError
from fuzz.cases import Case
from fuzz.families import FAMILIES, make
from fuzz.subjects import SUBJECTS, Subject
from fuzz.verdicts import BAD, Verdict, refusals

MOST_TEXT = 300  # characters of a failure's detail
KEPT = 3  # seeds of failures that are kept for each family, subject and verdict


@dataclass
class Tally:
    """What a run found.

    Attributes:
        counts: family → subject → verdict → how many instances.
        programs: family → how many programs.
        later: family → subject → how many instances the first method did not answer, so that another had to.
        failures: the first of each kind, as (family, seed, subject, verdict, detail).
        seconds: subject → seconds, the reference's among them.
    """

    counts: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)
    later: dict[str, Counter[str]] = field(default_factory=dict)
    programs: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, int, str, str, str]] = field(default_factory=list)
    seconds: Counter[str] = field(default_factory=Counter)

    def add(self, family: str, seed: int, subject: str, verdicts: Iterable[Verdict], seconds: float) -> None:
        counter = self.counts.setdefault(family, {}).setdefault(subject, Counter())
        self.seconds[subject] += seconds
        for verdict in verdicts:
            counter[verdict.verdict] += 1
            if not verdict.first:
                self.later.setdefault(family, Counter())[subject] += 1
            if verdict.verdict in (*BAD, "missed"):
                known = {f[1] for f in self.failures if f[0] == family and f[2:4] == (subject, verdict.verdict)}
                if len(known) < KEPT and seed not in known:
                    self.failures.append((family, seed, subject, verdict.verdict, verdict.detail[:MOST_TEXT]))

    def bad(self) -> list[tuple[str, str]]:
        """The (family, subject) pairs with a silent wrong answer or a crash."""
        return [
            (family, subject)
            for family, subjects in self.counts.items()
            for subject, counter in subjects.items()
            if any(counter[verdict] for verdict in BAD)
        ]


def try_subject(subject: Subject, case: Case) -> list[Verdict]:
    """The subject's verdicts; errors of the library's own are refusals, all others crashes."""

    def check(case: Case) -> list[Verdict]:
        try:
            return subject(case)
        except DflearnError as error:
            return refusals(case, "none", error)

    return try_check(check, case)


def try_check(check: Callable[[Any], list[Verdict]], argument: Any) -> list[Verdict]:
    try:
        return check(argument)
    except DflearnError as error:
        return [Verdict("refused", f"{type(error).__name__}: {error}")]
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return [
            Verdict("crash", f"{type(error).__name__}: {error} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})")
        ]


def in_turn(subjects: Iterable[str], seed: int, turns: int) -> list[str]:
    """Every `turns`-th subject; which ones, the seed decides, so that a family meets all of them equally often."""
    return [name for k, name in enumerate(subjects) if (k + seed) % turns == 0]


def run(
    seeds: Iterable[int],
    families: Iterable[str] = FAMILIES,
    subjects: dict[str, Subject] = SUBJECTS,
    tally: Tally | None = None,
    turns: int = 1,
) -> Tally:
    """Every subject, or those whose turn it is, on the case of every family and seed."""
    tally = tally or Tally()
    families = list(families)
    for seed in seeds:
        for family in families:
            case = make(family, seed)
            tally.programs[family] += 1
            for name in in_turn(subjects, seed, turns):
                begun = time.process_time()
                verdicts = try_subject(subjects[name], case)
                tally.add(family, seed, name, verdicts, time.process_time() - begun)
    return tally


def from_plain(held: dict[str, Any]) -> Tally:
    """The other way round."""
    tally = Tally()
    tally.programs.update(held["programs"])
    tally.counts = {f: {s: Counter(c) for s, c in by.items()} for f, by in held["counts"].items()}
    tally.later = {f: Counter(by) for f, by in held["later"].items()}
    tally.failures = [tuple(failure.values()) for failure in held["failures"]]
    tally.seconds.update(held["seconds"])
    return tally


def plain(tally: Tally) -> dict[str, Any]:
    return {
        "programs": dict(tally.programs),
        "counts": {f: {s: dict(c) for s, c in subjects.items()} for f, subjects in tally.counts.items()},
        "later": {f: dict(by) for f, by in tally.later.items()},
        "failures": [
            dict(zip(("family", "seed", "subject", "verdict", "detail"), failure, strict=True))
            for failure in tally.failures
        ],
        "seconds": {name: round(value, 2) for name, value in tally.seconds.items()},
    }
