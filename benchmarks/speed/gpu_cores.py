"""The CPU's part of `gpu.py`, in a process of its own: our kernels on all cores and on one, `DavisYin`, an epoch of training.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/speed/gpu_cores.py cores.json [quick]

The kernels share tiles out among as many threads as `torch.get_num_threads()` says, threads of Python's that numba's code runs in
without its lock; numba's own threading layer has no part in it. Threads that torch waits with in between must not spin
(OMP_WAIT_POLICY), since they would take those cores. Times are the median of five calls by the clock on the wall.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpu import MU, QUICK, WHOLE, Extent, forward_and_back, material, training_rows


def milliseconds(run: Callable[[], Any], repeats: int = 5) -> float:
    run()
    times = []
    while len(times) < repeats and sum(times) < 4000:
        begun = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(times)


def layer_rows(extent: Extent) -> list[dict[str, Any]]:
    from dflearn.layers import Smoothed

    rows = []
    for name in extent.problems:
        layer = Smoothed(material(name, 1)[0], MU)
        for batch in extent.of(name):
            run = forward_and_back(layer, material(name, batch)[1])
            rows.append({"problem": name, "batch": batch, "ms": milliseconds(run), "threads": torch.get_num_threads()})
            print("cores", rows[-1], flush=True)
    return rows


def crossover_rows(extent: Extent) -> list[dict[str, Any]]:
    from dflearn.layers import Smoothed

    rows, cores = [], torch.get_num_threads()
    for name in extent.problems[:4]:
        layer = Smoothed(material(name, 1)[0], MU)
        for batch in extent.small:
            row: dict[str, Any] = {"problem": name, "batch": batch}
            for threads, label in ((1, "one_core_ms"), (cores, "all_cores_ms")):
                torch.set_num_threads(threads)
                row[label] = milliseconds(forward_and_back(layer, material(name, batch)[1]))
            rows.append(row)
            print("cores", rows[-1], flush=True)
    return rows


def davis_yin_rows(extent: Extent) -> list[dict[str, Any]]:
    from dflearn.layers import DavisYin

    rows = []
    for name in extent.splitting:
        layer = DavisYin(material(name, 1)[0], MU)
        for batch in extent.splitting_batches:
            for dtype in (torch.float32, torch.float64):
                run = forward_and_back(layer, material(name, batch)[1].to(dtype))
                told = str(dtype).removeprefix("torch.")
                rows.append({"problem": name, "batch": batch, "dtype": told, "ms": milliseconds(run)})
                print("cores", rows[-1], flush=True)
    return rows


def main(path: Path, extent: Extent) -> None:
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    parts = {
        "layer": layer_rows, "crossover": crossover_rows, "training": lambda extent: training_rows(extent, "cpu"),
        "davis_yin": davis_yin_rows,
    }  # fmt: skip
    found: dict[str, Any] = {"threads": torch.get_num_threads()}
    for name, part in parts.items():
        found[name] = part(extent)
        path.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), QUICK if "quick" in sys.argv else WHOLE)
