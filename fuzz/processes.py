"""Work in processes of its own, so that one that dies (in a back end's compiled code) is a verdict and not the end."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dflearn

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def messages(target: Callable[..., None], work: Any, seconds: float, method: str = "spawn") -> Iterator[Any]:
    """What target(pipe, work) sends and, where its process dies or is silent for so long, a string that says so."""
    context: Any = multiprocessing.get_context(method)
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_quietly, args=(target, there, work), daemon=True)
    process.start()
    there.close()
    try:
        while here.poll(seconds):
            yield here.recv()
        yield f"no answer for {seconds:.0f} s"
    except EOFError:
        process.join()
        if process.exitcode:
            yield f"exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()


def _quietly(target: Callable[..., None], pipe: Any, work: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # back ends print there
    target(pipe, work)


def script(module: str, *arguments: str) -> subprocess.Popen[str]:
    """python -m module arguments, on one thread; what it prints is kept."""
    path = os.pathsep.join(str(Path(file).parents[1]) for file in (dflearn.__file__, __file__))
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments], env=os.environ | {"PYTHONPATH": path} | ONE_THREAD, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
