"""Runs in a process of their own, so that one that dies (in a back end's compiled code) is a verdict and not the end."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection

import torch

from fuzz.cases import Case
from fuzz.families import make
from fuzz.processes import messages
from fuzz.run import Tally, Work, verdicts_of, work_of
from fuzz.shrink import as_test, failure, shrink
from fuzz.subjects import SUBJECTS
from fuzz.verdicts import Verdict

TOGETHER = 500  # seeds of one process
MOST_SECONDS = 600  # without a word from the process, on a busy machine too: it hangs


def run_isolated(seeds: Sequence[int], families: Sequence[str], subjects: Sequence[str], tally: Tally) -> Iterator[int]:
    """As `run.run`, into `tally`; gives each seed that is done.

    One process serves `TOGETHER` seeds, so that imports and compiled code are loaded once for many programs, and what a back end
    never frees does not pile up.
    """
    for begin in range(0, len(seeds), TOGETHER):
        work = work_of(seeds[begin : begin + TOGETHER], families, subjects)
        while work:
            done = 0
            for piece, found in zip(work, messages(_run_all, work, MOST_SECONDS), strict=False):
                died = isinstance(found, str)
                verdicts, seconds = ([Verdict("crash", f"the process died: {found}")], 0.0) if died else found
                tally.add(*piece, verdicts, seconds)
                done += 1
                if done == len(work) or work[done][1] != piece[1]:
                    yield piece[1]
            work = work[done:]


def _run_all(pipe: Connection, work: list[Work]) -> None:
    torch.set_num_threads(1)
    gc.freeze()  # what is imported stays
    gc.set_threshold(20_000)
    for found in verdicts_of(work):
        pipe.send(found)


def shrink_isolated(family: str, seed: int, name: str, verdicts: Sequence[str]) -> str:
    """The source of a test of the smallest program that was reached, of the first verdict that is there; empty if none is."""
    text = ""
    for message in messages(_shrink, (family, seed, name, verdicts), MOST_SECONDS):
        died = f"# the process died while this was made smaller: {message}\n{text}"
        text = died if isinstance(message, str) else message[0]
    return text


def _shrink(pipe: Connection, work: tuple[str, int, str, Sequence[str]]) -> None:
    torch.set_num_threads(1)
    family, seed, name, verdicts = work
    case = make(family, seed)
    for verdict in verdicts:
        if failure(case, SUBJECTS[name], verdict) is None:
            continue

        def tell(case: Case, verdict: str = verdict) -> None:
            again = failure(case, SUBJECTS[name], verdict)
            if again is not None:
                pipe.send((f"# {verdict}\n{as_test(case, name, again)}",))

        tell(shrink(case, SUBJECTS[name], verdict, tell))
        return
