"""Where an optional package is missing, its front end says which extra brings it, and the others work."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("cvxpy", "gurobipy", "pyomo", "pyepo"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
import dflearn as dfl
program = dfl.from_linprog(A_ub=[[1, 1]], b_ub=[1])
for call in (
    lambda: dfl.from_cvxpy(None, None), lambda: dfl.from_gurobi(None), lambda: dfl.from_pyomo(None),
    lambda: dfl.from_pyepo(None), lambda: dfl.to_pyepo(program),
):
    try:
        call()
    except dfl.errors.MissingExtraError as error:
        print(error)
"""


def test_missing_extras() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "from_cvxpy needs the package cvxpy: pip install 'dflearn[cvxpy]'",
        "from_gurobi needs the package gurobipy: pip install 'dflearn[gurobi]'",
        "from_pyomo needs the package pyomo: pip install 'dflearn[pyomo]'",
        "from_pyepo needs the package pyepo: pip install 'dflearn[bench]'",
        "to_pyepo needs the package pyepo: pip install 'dflearn[bench]'",
    ]
