"""dfl compile: all kernels compiled now, so that no first call waits for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import dflearn as dfl
from dflearn.cli.answers import Answer
from dflearn.cli.options import Command
from dflearn.errors import SolverError, StorageError


class Compile(Command):
    """Compile the kernels now (a minute or two), instead of at the first call of each."""

    all: bool = False
    """for other machines too: for every level of x86-64 processors that this one has, not the best alone"""

    def run(self) -> Answer:
        from dflearn.engine import ahead

        begun, levels = time.perf_counter(), ahead.levels() if self.all else ahead.levels()[:1]
        where = f"{ahead.FOLDER}, for {' and '.join(levels)}" if levels else "numba's cache, for this processor"
        if not levels:
            exercise()
        else:
            try:
                if ahead.FOLDER.exists():
                    shutil.rmtree(ahead.FOLDER)
                ahead.FOLDER.mkdir()
            except OSError as error:
                raise StorageError(
                    f"compiled kernels belong into {ahead.FOLDER}, which cannot be written ({error.strerror}): run dfl compile "
                    "as the user who installed dflearn, or while the image is built. Without it numba compiles at the first "
                    "call, and keeps the code in the folder that the environment variable NUMBA_CACHE_DIR names"
                ) from error
        for level in levels:
            script = "from dflearn.cli.compile import exercise; exercise()"
            environment = os.environ | ahead.recording(level) | {"OMP_NUM_THREADS": "1"}
            done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
            if done.returncode:
                shutil.rmtree(ahead.FOLDER, ignore_errors=True)  # rather nothing than a part
                raise SolverError(f"the kernels could not be compiled for {level}: {done.stderr.strip()[-2000:]}")
        seconds = time.perf_counter() - begun
        return Answer(f"compiled in {seconds:.0f} s, into {where}", {"levels": list(levels), "seconds": seconds})


def exercise() -> None:
    """Call the kernels of the common solvers and layers once, as users' programs do."""
    for name in ("SP-3", "KP-10"):
        problem = dfl.problems.problem_named(name, seed=1)
        data = dfl.label(problem.generate(4), problem)
        for solver in (problem.solver(), dfl.HiGHS(problem.program), dfl.solvers.SmallLP(problem.relaxation)):
            solver.solve(data.batch().require("costs"))
    for layer in (dfl.Smoothed, dfl.DavisYin, partial(dfl.DavisYin, gradient="unrolled")):
        exercise_layer(layer)


def exercise_layer(layer: Callable[[dfl.Program], dfl.Layer]) -> None:
    """The forward and backward pass of a layer, in a batch of one and in a larger one, and from a start."""
    import torch

    program = dfl.problems.problem_named("KP-10", seed=1).program.relax()
    for batch in (1, 32):
        y = torch.ones(batch, program.p, requires_grad=True)
        own = layer(program)
        own(y).sum().backward()
        own.solve(y, None, own.no_start(batch)).decision.sum().backward()
