"""Runs in a process of their own, so that one that dies (in a back end's compiled code) is a verdict and not the end."""

import gc
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection

import torch

from fuzz.cases import Case
from fuzz.families import make
from fuzz.processes import messages
from fuzz.run import Found, Tally, Work, verdicts_of, work_of
from fuzz.shrink import as_test, failure, shrink
from fuzz.subjects import SUBJECTS
from fuzz.verdicts import Verdict

TOGETHER = 500  # seeds of one process
MOST_SECONDS = 600  # without a word from the process, on a busy machine too: it hangs


def run_isolated(seeds: Sequence[int], families: Sequence[str], subjects: Sequence[str], tally: Tally) -> Iterator[int]:
    """As `run.run`, into `tally`; gives each seed that is done. One process serves `TOGETHER` seeds, so that imports and compiled
    code are loaded once for many programs, and what a back end never frees does not pile up. It sends what it found program by
    program."""
    for begin in range(0, len(seeds), TOGETHER):
        pairs = [(family, seed) for seed in seeds[begin : begin + TOGETHER] for family in families]
        work = [work_of([seed], [family], subjects) for family, seed in pairs]
        while work:
            done = 0
            for program, found in zip(work, messages(_run_all, work, MOST_SECONDS), strict=False):
                each = _by_subject(program, found) if isinstance(found, str) else found
                for piece, one in zip(program, each, strict=True):
                    tally.add(*piece, *one)
                done += 1
                seed = program[0][1]
                if done == len(work) or work[done][0][1] != seed:
                    yield seed
            work = work[done:]


def _by_subject(program: list[Work], why: str) -> list[Found]:
    """The subjects of a program at which a process died, one by one: which of them was it? The last, if none dies this time."""
    found: list[Found] = []
    died = False
    while len(found) < len(program):
        for message in messages(_run_all, [[piece] for piece in program[len(found) :]], MOST_SECONDS):
            died |= isinstance(message, str)
            found += [_death(message)] if isinstance(message, str) else message
    return found if died else [*found[:-1], _death(f"{why}, and not a second time")]


def _death(why: str) -> Found:
    return [Verdict("crash", f"the process died: {why}")], 0.0


def _run_all(pipe: Connection, work: list[list[Work]]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # nobody sees them
    gc.freeze()  # what is imported stays
    gc.set_threshold(20_000)
    for program in work:
        pipe.send(list(verdicts_of(program)))


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
