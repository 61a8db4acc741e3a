"""Ctrl-C ends a solve, whichever back end it reaches."""

import contextlib
import signal
import subprocess
import sys

import pytest

SCRIPT = """
import signal
import numpy as np, torch
import dflearn as dfl

signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may have inherited another
rng = np.random.default_rng(0)
rows, n = {size}
program = dfl.Program(
    G=rng.random((rows, n)), h=np.full(rows, n / 8), upper=1, S=-np.eye(n), integer={integer}, Q={Q}
)
solver = dfl.{name}(program)
y = torch.as_tensor(rng.random((3, n)))
if {small}:
    solver.solve(y)
print("ready", flush=True)
while True:
    solver.solve(y)
"""
HARD, SMALL = (60, 200), (10, 40)  # hours for one instance; milliseconds


@pytest.mark.parametrize(
    ("name", "package", "size", "integer", "Q"),
    [
        ("Gurobi", "gurobipy", HARD, True, None),
        ("SCIP", "pyscipopt", HARD, True, "0.1 * np.eye(n)"),
        ("HiGHS", "highspy", SMALL, False, None),
        ("HiGHS", "highspy", SMALL, False, "0.1 * np.eye(n) + 0.01"),  # by Clarabel
    ],
)
def test_an_interrupt_during_a_solve_is_raised(
    name: str, package: str, size: tuple[int, int], integer: bool, Q: str | None
) -> None:
    pytest.importorskip(package)
    script = SCRIPT.format(name=name, size=size, integer=integer, Q=Q, small=size != HARD)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)  # it is inside a solve by now
            errors = ""
            for _ in range(8):  # back ends lose a signal now and then, as people know who press the keys again
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    _, errors = process.communicate(timeout=15)
                    break
        finally:
            process.kill()
    assert process.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    assert "KeyboardInterrupt" in errors
