"""One step of SCE in two processes (DDP, gloo) on one device, as a script: process 0 writes the gradient down.

python tests/support/two_on_a_device.py DEVICE FILE
"""

from __future__ import annotations

import os
import socket
import sys

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dflearn.data import Batch
from dflearn.layers import Smoothed
from dflearn.losses import SCE
from dflearn.problems import problem_named

COUNT = 8


def step(model: nn.Module, features: Tensor, costs: Tensor, decisions: Tensor) -> list[Tensor]:
    """The gradients of the mean loss, on the CPU."""
    program = problem_named("SP-5", seed=1).program
    loss = SCE(Smoothed(program))
    for _ in range(2):  # as in training: the second time, everything is there
        model.zero_grad()
        loss(model(features), Batch(features, costs, decisions)).mean().backward()
    return [parameter.grad.cpu() for parameter in model.parameters() if parameter.grad is not None]


def material(device: str) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    problem = problem_named("SP-5", seed=1)
    data = problem.generate(COUNT, dtype=torch.float64).batch()
    costs = data.require("costs")
    decisions = Smoothed(problem.program, 1e-3)(costs)
    torch.manual_seed(0)
    model = nn.Linear(data.features.shape[-1], problem.program.p, dtype=torch.float64)
    return model.to(device), data.features.double().to(device), costs.to(device), decisions.to(device)


def process(rank: int, port: int, device: str, path: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    model, *data = material(device)
    found = step(DistributedDataParallel(model), *(part[rank::2] for part in data))
    if rank == 0:
        torch.save(found, path)
    torch.distributed.destroy_process_group()


def main(device: str, path: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(process, args=(port, device, path), nprocs=2)


if __name__ == "__main__":
    main(*sys.argv[1:])
