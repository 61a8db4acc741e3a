"""A Ray cluster of one and of two nodes, one core each, all on this machine: what the second node buys.

    python benchmarks/speed/cluster.py [--quick] [--json results/bench/cluster.json]

Study: eight runs of the paper (`dfl run`), from nothing, on the wall clock, apart from the start of the cluster.
Labels: 100,000 instances in batches of 32 through `label`. The object store is looked at ten times a second: what piles
up there would show. Needs a machine with nothing else to do.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from dflearn.data.labels import label
from dflearn.problems import problem_named
from dflearn.studies.config import Settings, resolve
from dflearn.studies.driver import run_study
from dflearn.studies.executors import InProcess
from dflearn.studies.store import Store
from harness import command_line, parser, report

LOOPBACK = "127.0.0.2"  # Ray would replace 127.0.0.1 by the machine's address
STORE = 200 * 2**20


def on_a_cluster(nodes: int, work: Any) -> Any:
    import ray
    from ray.cluster_utils import Cluster

    from dflearn.integrations.ray import connect

    common = {"node_ip_address": LOOPBACK, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**common, "num_cpus": 0, "include_dashboard": False})
    for _ in range(nodes):
        cluster.add_node(num_cpus=1, **common)
    connect(cluster.address)
    try:
        return work()
    finally:
        ray.shutdown()
        cluster.shutdown()


def study(quick: bool) -> dict[str, Any]:
    from dflearn.integrations.ray import RayExecutor

    settings = Settings(points=400, test=200, epochs=3) if quick else Settings()
    methods = ("SPO+^relax", "SCE^DYS", "SCE^CVX", "SPO+^CVX")
    configs = [resolve("SP-5", method, seed, settings) for method in methods for seed in (1, 2)]

    def seconds(executor: Any) -> float:
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "study.sqlite") as store, executor:
            run_study(configs[:1], store, executor, progress=False)  # imports, and what is compiled
            begun = time.perf_counter()
            run_study(configs[1:], store, executor, progress=False)
            return time.perf_counter() - begun

    row: dict[str, Any] = {"what": f"{len(configs) - 1} runs", "one process s": seconds(InProcess())}
    for nodes in (1, 2):
        row[f"{nodes} node{'s' * (nodes > 1)} s"] = on_a_cluster(nodes, lambda: seconds(RayExecutor()))
    return row | {"speed-up": row["1 node s"] / row["2 nodes s"]}


class Watch:
    """The most that the object store held meanwhile, in MiB."""

    def __enter__(self) -> Watch:
        self.most, self.going = 0.0, True
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()
        return self

    def _look(self) -> None:
        import ray

        while self.going:
            total, free = ray.cluster_resources(), ray.available_resources()
            held = total.get("object_store_memory", 0.0) - free.get("object_store_memory", 0.0)
            self.most = max(self.most, held / 2**20)
            time.sleep(0.1)

    def __exit__(self, *exception: object) -> None:
        self.going = False
        self.thread.join()


def labels(quick: bool, name: str, count: int) -> dict[str, Any]:
    from dflearn.integrations.ray import OnRay

    problem = problem_named(name, seed=1)
    data = problem.generate(count // 20 if quick else count)
    begun = time.perf_counter()
    here = label(data, problem.solver(), progress=False)
    row: dict[str, Any] = {"what": f"{len(data):,} labels of {name}", "one process s": time.perf_counter() - begun}

    def work() -> tuple[float, float]:
        solver = OnRay(problem.solver())
        label(data.subset(slice(64)), solver, progress=False)
        with Watch() as watch:
            begun = time.perf_counter()
            there = label(data, solver, progress=False)
            seconds = time.perf_counter() - begun
        assert torch.equal(here.decisions, there.decisions)
        return seconds, watch.most

    for nodes in (1, 2):
        row[f"{nodes} node{'s' * (nodes > 1)} s"], most = on_a_cluster(nodes, work)
    return row | {"speed-up": row["1 node s"] / row["2 nodes s"], "object store MiB": most}


def main() -> None:
    options = parser(__doc__, repeats=1).parse_args()
    torch.set_num_threads(1)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    rows = [study(options.quick), labels(options.quick, "SP-5", 100_000), labels(options.quick, "KP-30", 2_000)]
    report("A Ray cluster on this machine", {"one node and two": rows}, options.json, command_line())


if __name__ == "__main__":
    main()
