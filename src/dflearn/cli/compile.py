"""dfl compile: all kernels compiled now, so that no first call waits for it."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflearn.cli.answers import Answer
from dflearn.cli.arguments import add_command
from dflearn.errors import SolverError, StorageError

if TYPE_CHECKING:
    from dflearn.layers.base import Layer
    from dflearn.program import Program


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "compile",
        compile_kernels,
        "compile the kernels now, instead of at the first call of each",
        "  dfl compile                                 after the installation, once; a minute or two\n"
        "  dfl compile --all                           for other machines too: in an image, or before a wheel is built",
    )
    parser.add_argument(
        "--all", action="store_true", help="for every level of x86-64 processors that this one has, not the best alone"
    )


def compile_kernels(options: argparse.Namespace) -> Answer:
    from dflearn.kernels import ahead

    begun, levels = time.perf_counter(), ahead.levels() if options.all else ahead.levels()[:1]
    if not levels:
        exercise()
        where = "numba's cache, for this processor"
    else:
        where = f"{ahead.FOLDER}, for {' and '.join(levels)}"
        _empty(ahead.FOLDER)
    for level in levels:
        script = "from dflearn.cli.compile import exercise; exercise()"
        environment = os.environ | ahead.recording(level) | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(ahead.FOLDER, ignore_errors=True)  # rather nothing than a part
            raise SolverError(f"the kernels could not be compiled for {level}: {done.stderr.strip()[-2000:]}")
    seconds = time.perf_counter() - begun
    return Answer(f"compiled in {seconds:.0f} s, into {where}", {"levels": list(levels), "seconds": seconds})


def _empty(folder: Path) -> None:
    """An empty folder at this place, in the package; an error where the package cannot be written."""
    try:
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
    except OSError as error:
        raise StorageError(
            f"compiled kernels belong into {folder}, which cannot be written ({error.strerror}): run dfl compile as the user who "
            "installed dflearn, or while the image is built. Without it numba compiles at the first call, and keeps the code in "
            "the folder that the environment variable NUMBA_CACHE_DIR names"
        ) from error


def exercise() -> None:
    """Call the kernels of the common layers and solvers once, as users' programs do."""
    from dflearn.layers import DavisYin, Smoothed

    exercise_solvers()
    exercise_layer(Smoothed)
    exercise_layer(DavisYin)
    exercise_layer(partial(DavisYin, gradient="unrolled"))


def exercise_solvers() -> None:
    """The solvers of a shortest path, of a knapsack and of small linear programs, and the check of answers."""
    from dflearn.data.labels import label
    from dflearn.problems import problem_named
    from dflearn.solvers import HiGHS, SmallLP

    for name in ("SP-3", "KP-10"):
        problem = problem_named(name, seed=1)
        data = label(problem.generate(4), problem)
        for solver in (problem.solver(), HiGHS(problem.program), SmallLP(problem.relaxation)):
            solver.solve(data.batch().require("costs"))


def exercise_layer(layer: Callable[[Program], Layer]) -> None:
    """A layer there and back, in a batch of one and in a larger one, whose tiles are wider; and one from a start, in a tile of its width."""
    import torch

    from dflearn.problems import problem_named

    program = problem_named("KP-10", seed=1).program.relax()
    for batch in (1, 32):
        y = torch.ones(batch, program.p, requires_grad=True)
        own = layer(program)
        own(y).sum().backward()
        own.solve(y, None, own.no_start(batch)).decision.sum().backward()
