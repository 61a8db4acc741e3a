"""Runs in a process of their own, so that one that dies (in a back end's compiled code) is a verdict and not the end."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from fuzz.cases import Case
from fuzz.families import make
from fuzz.run import Tally, in_turn, try_subject
from fuzz.shrink import as_test, failure, shrink
from fuzz.subjects import SUBJECTS
from fuzz.verdicts import Verdict

TOGETHER = 100  # seeds of one process
MOST_SECONDS = 120  # without a word from the process: it hangs

Work = tuple[str, int, str]  # family, seed, subject


def run_isolated(
    seeds: Sequence[int], families: Sequence[str], subjects: Sequence[str], tally: Tally, turns: int = 1
) -> Iterator[int]:
    """As `run.run`, into `tally`; gives each seed that is done.

    One process serves `TOGETHER` seeds, so that imports and compiled code are loaded once for many programs, and what a back end
    never frees does not pile up.
    """
    for begin in range(0, len(seeds), TOGETHER):
        work = [
            (family, seed, name)
            for seed in seeds[begin : begin + TOGETHER]
            for family in families
            for name in in_turn(subjects, seed, turns)
        ]
        while work:
            done, death = 0, ""
            for message in _messages(_run_all, work):
                if isinstance(message, str):
                    death = message
                    continue
                yield from _told(work, done, *message, tally)
                done += 1
            if death:
                yield from _told(work, done, [Verdict("crash", f"the process died: {death}")], 0.0, tally)
                done += 1
            work = work[done:]


def _told(work: list[Work], k: int, verdicts: list[Verdict], seconds: float, tally: Tally) -> Iterator[int]:
    """Count the k-th piece of work; the seed, where it was its last."""
    family, seed, name = work[k]
    tally.add(family, seed, name, verdicts, seconds)
    after = work[k + 1] if k + 1 < len(work) else None
    if after is None or after[:2] != (family, seed):
        tally.programs[family] += 1
    if after is None or after[1] != seed:
        yield seed


def _run_all(pipe: Connection, work: list[Work]) -> None:
    _quiet()
    case: Case | None = None
    for family, seed, name in work:
        if case is None or (case.family, case.seed) != (family, seed):
            case = make(family, seed)
        begun = time.process_time()
        verdicts = try_subject(SUBJECTS[name], case)
        pipe.send((verdicts, time.process_time() - begun))


def shrink_isolated(family: str, seed: int, name: str, verdict: str) -> str:
    """The source of a test of the smallest program that was reached; empty where the failure is not to be had again."""
    text = ""
    for message in _messages(_shrink, (family, seed, name, verdict)):
        text = (
            f"# the process died while this was made smaller: {message}\n{text}"
            if isinstance(message, str)
            else message[0]
        )
    return text


def _shrink(pipe: Connection, work: tuple[str, int, str, str]) -> None:
    _quiet()
    family, seed, name, verdict = work

    def tell(case: Case) -> None:
        again = failure(case, SUBJECTS[name], verdict)
        if again is not None:
            pipe.send((as_test(case, name, again),))

    tell(shrink(make(family, seed), SUBJECTS[name], verdict, tell))


def _messages(target: Any, work: Any) -> Iterable[Any]:
    """What the process sends and, where it dies or hangs, a string that says so."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(there, work), daemon=True)
    process.start()
    there.close()
    try:
        while here.poll(MOST_SECONDS):
            yield here.recv()
        yield f"no answer for {MOST_SECONDS} s"
    except EOFError:
        process.join()
        if process.exitcode:
            yield f"exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()


def _quiet() -> None:
    import torch

    torch.set_num_threads(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # back ends print there
