"""Run subjects on cases, count verdicts, keep what went wrong."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dflearn.errors import DflearnError
from fuzz.cases import Case
from fuzz.families import FAMILIES, make
from fuzz.subjects import SUBJECTS, Check
from fuzz.verdicts import BAD, Verdict, refusals

MOST_TEXT = 300  # characters of a failure's detail
Work = tuple[str, int, str]  # family, seed, subject
Found = tuple[list[Verdict], float]  # verdicts and seconds
KEPT = 3  # seeds of failures that are kept for each family, subject and verdict


class Failure(NamedTuple):
    family: str
    seed: int
    subject: str
    verdict: str
    detail: str


@dataclass
class Tally:
    """What a run found: instances by family, subject and verdict, programs by family, instances by family and subject that the first
    method did not answer, so that another had to (`later`), the first failures of each kind, and seconds by subject."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    later: Counter[tuple[str, str]] = field(default_factory=Counter)
    programs: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    seconds: Counter[str] = field(default_factory=Counter)
    last: tuple[str, int] | None = None

    def add(self, family: str, seed: int, subject: str, verdicts: Iterable[Verdict], seconds: float) -> None:
        self.programs[family] += self.last != (family, seed)
        self.last = family, seed
        self.seconds[subject] += seconds
        for verdict in verdicts:
            self.counts[family, subject, verdict.verdict] += 1
            self.later[family, subject] += not verdict.first
            if verdict.verdict in (*BAD, "missed"):
                kind = (family, subject, verdict.verdict)
                known = {f.seed for f in self.failures if (f.family, f.subject, f.verdict) == kind}
                if len(known) < KEPT and seed not in known:
                    self.failures.append(Failure(family, seed, subject, verdict.verdict, verdict.detail[:MOST_TEXT]))

    def join(self, other: Tally) -> None:
        for name in ("counts", "later", "programs", "seconds"):
            getattr(self, name).update(getattr(other, name))
        self.failures += other.failures

    def sums(self, place: int) -> dict[str, tuple[Counter[str], int]]:
        """By family (place 0) or subject (1): verdicts, and how many a later method answered."""
        found = {name: Counter[str]() for name in (self.programs if place == 0 else self.seconds)}
        for key, count in self.counts.items():
            found[key[place]][key[2]] += count
        late = Counter[str]()
        for pair, count in self.later.items():
            late[pair[place]] += count
        return {name: (counts, late[name]) for name, counts in found.items()}

    def verdicts(self) -> Counter[str]:
        return sum((counts for counts, _ in self.sums(0).values()), Counter())

    def bad(self) -> list[tuple[str, str]]:
        """The (family, subject) pairs with a silent wrong answer or a crash."""
        return list(dict.fromkeys(key[:2] for key, count in self.counts.items() if count and key[2] in BAD))


def try_subject(subject: Check, case: Case) -> list[Verdict]:
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


def work_of(seeds: Iterable[int], families: Iterable[str], subjects: Iterable[str]) -> list[Work]:
    """Every subject on the case of every family and seed."""
    return [(family, seed, name) for seed in seeds for family in families for name in subjects]


def verdicts_of(work: Iterable[Work], subjects: Mapping[str, Check] = SUBJECTS) -> Iterator[Found]:
    """Verdicts and seconds of each piece of work."""
    case: Case | None = None
    for family, seed, name in work:
        if case is None or (case.family, case.seed) != (family, seed):
            case = make(family, seed)
        begun = time.process_time()
        yield try_subject(subjects[name], case), time.process_time() - begun


def run(
    seeds: Iterable[int],
    families: Iterable[str] = FAMILIES,
    subjects: Mapping[str, Check] = SUBJECTS,
    tally: Tally | None = None,
) -> Tally:
    """All of the work, in this process."""
    tally, work = tally or Tally(), work_of(seeds, list(families), subjects)
    for piece, found in zip(work, verdicts_of(work, subjects), strict=True):
        tally.add(*piece, *found)
    return tally


def from_plain(held: dict[str, Any]) -> Tally:
    """The tally of a file."""
    counts = Counter({(f, s, v): n for f, by in held["counts"].items() for s, c in by.items() for v, n in c.items()})
    later = Counter({(f, s): n for f, by in held["later"].items() for s, n in by.items()})
    failures = [Failure(**failure) for failure in held["failures"]]
    return Tally(counts, later, Counter(held["programs"]), failures, Counter(held["seconds"]))


def plain(tally: Tally) -> dict[str, Any]:
    """As it stands in a file: family → subject → verdict → count."""
    counts: dict[str, dict[str, dict[str, int]]] = {}
    later: dict[str, dict[str, int]] = {}
    for (family, subject, verdict), count in tally.counts.items():
        counts.setdefault(family, {}).setdefault(subject, {})[verdict] = count
    for (family, subject), count in (+tally.later).items():
        later.setdefault(family, {})[subject] = count
    failures = [failure._asdict() for failure in tally.failures]
    seconds = {name: round(value, 2) for name, value in tally.seconds.items()}
    return {"programs": tally.programs, "counts": counts, "later": later, "failures": failures, "seconds": seconds}
