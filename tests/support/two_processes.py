"""Training in two processes, as a script that `test_lightning.py` runs: each process writes down what it sees.

    python tests/support/two_processes.py FOLDER

Lightning starts the second process itself, by calling this script again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer

sys.path.insert(0, str(Path(__file__).parents[1]))

from dflearn.errors import DivergenceError
from dflearn.integrations.lightning import DecisionModule
from dflearn.layers.base import Exact
from dflearn.losses import MSE, LossOutput, SPOPlus
from dflearn.models import Linear
from dflearn.solvers.highs import HiGHS
from support.small_problem import FEATURES, ITEMS, PROGRAM, RELAXED, knapsack_data
from support.training_helpers import weighted, weights

# Batches of 16 leave one instance in the end, which leaves one process with none; or five, three for one and two for the
# other. The run without warm starts has weights.
RUNS, EPOCHS, BATCH_SIZE = ((49, True), (53, False)), 2, 8  # instances, warm starts
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
OPTIONS: dict[str, Any] = {"validation": knapsack_data(21, 2), "problem": HiGHS(PROGRAM), "lr": 0.05, "seed": 7}


def spo_plus() -> SPOPlus:
    return SPOPlus(Exact(HiGHS(RELAXED)))


class BreaksOnOne(MSE):
    """Not a number for instance 3, so in one of the processes only."""

    def _output(self, predicted: torch.Tensor, batch: Any) -> LossOutput:
        value = super()._output(predicted, batch).value
        return LossOutput(value + torch.where(batch.ids == 3, torch.nan, 0.0))


def trainer() -> Trainer:
    return Trainer(max_epochs=EPOCHS, accelerator="cpu", devices=2, strategy="ddp", **QUIET)


def main(folder: Path) -> None:
    found: dict[str, Any] = {}
    for count, warm_start in RUNS:
        data, model = knapsack_data(count, 1), Linear(FEATURES, ITEMS)
        data = data if warm_start else weighted(data)
        module = DecisionModule(model, spo_plus(), data, batch_size=BATCH_SIZE, warm_start=warm_start, **OPTIONS)
        trainer().fit(module)
        found[f"{count} {warm_start}"] = {
            "rows": module.history.rows,
            "weights": weights(model).tolist(),
            "warm": module.starts and (module.starts.rows >= 0).all(1).nonzero().flatten().tolist(),
        }
    try:
        trainer().fit(DecisionModule(Linear(FEATURES, ITEMS), BreaksOnOne(), knapsack_data(53, 1)))
    except DivergenceError as error:
        found["error"] = [str(error), *error.__notes__]
    (folder / f"process_{module.global_rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
