"""Training in two processes with Lightning, step by step the same as in one process with batches twice as large.

    python examples/lightning_ddp.py
    python examples/lightning_ddp.py --processes 1
    python examples/lightning_ddp.py --quick

Lightning starts the other processes itself, by calling this script again with the same arguments. Each of them solves its
own part of every batch, and of the validation set.
"""

import argparse
import logging

import torch
from lightning.pytorch import Trainer

import dflearn as dfl
from dflearn.integrations.lightning import DecisionModule

REGRET = "validation_ratio_of_sums"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one process and little data")
    arguments = parser.parse_args()
    processes, count, epochs = (1, 60, 2) if arguments.quick else (arguments.processes, 1250, 5)

    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    torch.set_num_threads(1)  # a process per core, each on one thread
    problem = dfl.problems.ShortestPath(5, 5, seed=1)
    data = dfl.label(problem.generate(count), problem.solver())
    train, validation = data.subset(slice(count // 5, None)), data.subset(slice(count // 5))
    k, p = data.features.shape[-1], problem.program.p

    def loss() -> dfl.losses.SPOPlus:
        return dfl.losses.SPOPlus(dfl.Exact(problem.solver()))

    both = {"validation": validation, "problem": problem}
    module = DecisionModule(dfl.models.Linear(k, p), loss(), train, batch_size=32 // processes, **both)
    trainer = Trainer(
        max_epochs=epochs, accelerator="cpu", devices=processes, strategy="ddp" if processes > 1 else "auto",
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module)
    if trainer.is_global_zero:
        alone = dfl.fit(dfl.models.Linear(k, p), loss(), train, epochs=epochs, **both)
        print(f"in {processes} process(es), batches of {32 // processes} each, and with fit, batches of 32")
        print("epoch   loss        of fit      regret    of fit")
        for row, other in zip(module.history.rows, alone.rows, strict=True):
            losses = f"{row['loss']:.8f}  {other['loss']:.8f}"
            print(f"{row['epoch']:5}   {losses}  {row[REGRET]:8.4%}  {other[REGRET]:8.4%}")


if __name__ == "__main__":
    main()
