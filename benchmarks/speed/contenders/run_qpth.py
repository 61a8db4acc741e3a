"""qpth as a contender: the same smoothed program, bounds as rows, forward and backward.

run_qpth.py layer DATA
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from qpth.qp import QPFunction
from turns import Turns


def main() -> None:
    with np.load(sys.argv[2]) as file:
        data: Any = {name: torch.tensor(file[name]) for name in file.files if file[name].dtype.kind == "f"}
    turns = Turns()
    n = len(data["d"])
    identity = torch.eye(n, dtype=torch.float64)
    rows = torch.cat([data["G"], identity, -identity])
    sides = torch.cat([data["h"], data["upper"], -data["lower"]])
    quadratic = data["mu"] * identity
    solve = QPFunction(verbose=-1, check_Q_spd=False)
    none = torch.empty(0, dtype=torch.float64)
    equalities = (data["A"], data["b"]) if len(data["A"]) else (none, none)

    def call() -> dict[str, np.ndarray]:
        y = data["near"].clone().requires_grad_()
        decision = solve(quadratic, y @ data["S"].T + data["d"], rows, sides, *equalities)
        (decision * data["incoming"]).sum().backward()
        return {"decision": decision.detach().numpy(), "gradient": y.grad.numpy()}

    turns.serve(call)


if __name__ == "__main__":
    main()
