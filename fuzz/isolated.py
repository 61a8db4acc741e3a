"""Runs in a process of their own, so that one that dies (in a back end's compiled code) is a verdict and not the end."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from fuzz.cases import Case
from fuzz.families import make
from fuzz.run import Tally, in_turn, try_subject
from fuzz.shrink import as_test, failure, shrink
from fuzz.subjects import SUBJECTS
from fuzz.verdicts import Verdict

MOST_SECONDS = 120  # without a word from the process: it hangs

Work = tuple[str, int, str]  # family, seed, subject


def run_isolated(
    seeds: Iterable[int], families: Sequence[str], subjects: Sequence[str], tally: Tally, turns: int = 1
) -> None:
    """As `run.run`, into `tally`."""
    work: list[Work] = []
    for seed in seeds:
        for family in families:
            tally.programs[family] += 1
            work += [(family, seed, name) for name in in_turn(subjects, seed, turns)]
    while work:
        done, death = 0, ""
        for message in _messages(_run_all, work):
            if isinstance(message, str):
                death = message
            else:
                tally.add(*work[done], *message)
                done += 1
        if death:
            tally.add(*work[done], [Verdict("crash", f"the process died: {death}")], 0.0)
            done += 1
        work = work[done:]


def _run_all(pipe: Connection, work: list[Work]) -> None:
    _quiet()
    case: Case | None = None
    for family, seed, name in work:
        if case is None or (case.family, case.seed) != (family, seed):
            case = make(family, seed)
        begun = time.perf_counter()
        verdicts = try_subject(SUBJECTS[name], case)
        pipe.send((verdicts, time.perf_counter() - begun))


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
