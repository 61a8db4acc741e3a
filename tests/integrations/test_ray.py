"""Runs and solves on a Ray cluster of two nodes on this machine, on loopback: the same figures, whatever is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from dflearn import evaluate, label
from dflearn.cli import main
from dflearn.data.labels import solve_cached
from dflearn.errors import DataError
from dflearn.problems import problem_named
from dflearn.studies import methods
from dflearn.studies.config import read_study
from dflearn.studies.driver import run_study
from dflearn.studies.executors import Outcome
from dflearn.studies.modules import sources
from dflearn.studies.run import run
from dflearn.studies.store import Store, read_records

pytestmark = [
    pytest.mark.xdist_group("ray"),  # one cluster for all of them
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
    ),  # Ray's
]

LOOPBACK = "127.0.0.2"  # Ray takes 127.0.0.1 for "the address that others know me by"
MEMORY = 300 * 2**20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that runs nothing, and two nodes of one core each."""
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }  # as urgent as the tests that wait for them
    from ray.cluster_utils import Cluster

    common = {"node_ip_address": LOOPBACK, "object_store_memory": 80 * 2**20}
    found = Cluster(initialize_head=True, head_node_args={**common, "num_cpus": 0, "include_dashboard": False})
    found.own_nodes = [found.add_node(num_cpus=1, **common) for _ in range(2)]
    found.new_node = lambda: found.add_node(num_cpus=1, **common)
    yield found
    found.shutdown()


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:1", "ray://127.0.0.1:1"])
def test_an_address_without_a_cluster(address: str) -> None:
    from dflearn.integrations.ray import connect

    with pytest.raises(DataError, match=f"no Ray cluster answers at {address} .*: start one with"):
        connect(address)


@pytest.fixture
def connected(cluster: Any) -> Iterator[Any]:
    import ray

    from dflearn.integrations.ray import connect

    assert connect(cluster.address)
    assert not connect(cluster.address)
    yield cluster
    ray.shutdown()


def in_the_background(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def processes(title: str) -> list[int]:
    """The workers of our cluster that carry out tasks of this name now; Ray names processes so."""
    names, parents = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                names[int(entry.name)] = (entry / "cmdline").read_bytes()
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended
    ours = {process for process, parent in parents.items() if parent == os.getpid()}
    named = [process for process, name in names.items() if name.startswith(f"ray::{title}".encode())]
    return [process for process in named if parents.get(process) in ours]


def wait_until(happened: Callable[[], Any], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


MODULE = """
from dflearn.losses import MSE
from dflearn.studies import Method, Prepared, register
register(Method("Ours", "from a module beside the study", lambda context: Prepared(MSE(), context.train)))
"""
STUDY = """
import = ["method_of_ours"]
problems = ["SP-4"]
methods = ["MSE", "Ours", "SCE^DYS", "SqDE^DYS", "Regret^DYS", "SPO+^DYS"]
seeds = [1]
[settings]
points = 300
test = 100
epochs = 20
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path, before = tmp_path_factory.mktemp("study") / "study.toml", list(sys.path)
    path.with_name("method_of_ours.py").write_text(MODULE)
    path.write_text(STUDY)
    yield path
    methods._METHODS.pop("Ours", None)
    sys.path[:] = before


@pytest.fixture(scope="module")
def at_home(study: Path) -> dict[str, Any]:
    """The figures of the study's runs, without a cluster."""
    return {config.key: run(config).metrics for config in read_study(study).runs()}


def figures(store: Path) -> dict[str, Any]:
    return {record.config.key: record.metrics for record in read_records(store)}


def test_a_worker_is_killed_and_a_node_is_lost_and_the_study_is_the_same(
    connected: Any, study: Path, at_home: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On nodes that have not seen the study's module."""
    from dflearn.integrations.ray import RayExecutor

    lost: list[Outcome] = []

    class Watched(RayExecutor):
        def next(self, timeout: float | None = None) -> Outcome | None:
            outcome = super().next(timeout)
            if outcome is not None and outcome.lost:
                lost.append(outcome)
            return outcome

    configs, texts = read_study(study).runs(), sources(["method_of_ours"])
    # Workers of a cluster of this machine would find the file by themselves; those of others would not.
    module, elsewhere = study.with_name("method_of_ours.py"), study.with_name("moved.py")
    module.rename(elsewhere)
    monkeypatch.setattr("dflearn.integrations.ray.sources", lambda names: texts)
    node = connected.own_nodes.pop()

    def disturb() -> None:
        wait_until(lambda: len(processes("_carry_out")) == 2)
        os.kill(processes("_carry_out")[0], signal.SIGKILL)
        wait_until(lambda: lost and len(processes("_carry_out")) == 2)
        connected.remove_node(node, allow_graceful=False)

    disturbance = in_the_background(disturb)
    with Store(tmp_path / "study.sqlite") as store, Watched(memory=MEMORY) as executor:
        assert executor.slots == 2
        summary = run_study(configs, store, executor, progress=False)
        disturbance.join()
        records = store.records()
    elsewhere.rename(module)
    connected.own_nodes.append(connected.new_node())
    assert (summary.done, summary.failed) == (len(configs), [])
    assert 2 <= len(lost) <= 3  # a worker, and what the node had
    assert all("lost on the cluster" in str(outcome.error) for outcome in lost)
    assert {record.config.key: record.metrics for record in records} == at_home
    assert 1 <= len({record.machine["node"] for record in records}) <= 2


def test_a_killed_driver_goes_on_where_it_was(
    cluster: Any, study: Path, at_home: dict[str, Any], tmp_path: Path
) -> None:
    """`kill -9` of the driver after the second run; `dfl status` tells where things stand from outside meanwhile."""
    store = tmp_path / "study.sqlite"
    dfl = [sys.executable, "-m", "dflearn"]
    command = [*dfl, "run", str(study), "--store", str(store), "--no-cache", "--executor", "ray"]
    command += ["--address", cluster.address, "--memory", "0.3"]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: driver.poll() is not None or (store.exists() and len(figures(store)) >= 2))
    for _ in range(5):  # stopped inside a write, it holds the lock of the store: let it go on, and ask again
        driver.send_signal(signal.SIGSTOP)  # it alone writes: nothing is finished while the status is asked for
        asked = subprocess.run([*dfl, "status", str(store)], capture_output=True, text=True)
        if asked.returncode == 0:
            break
        driver.send_signal(signal.SIGCONT)
    status = asked.stdout
    driver.kill()
    driver.communicate()
    before = figures(store)
    assert 2 <= len(before) < len(at_home)
    assert "  running: SP-4 " in status, asked.stderr
    second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    assert f"{len(at_home)} of {len(at_home)} runs" in second.stdout
    assert f"{len(at_home) - len(before)} of them new" in second.stdout
    assert figures(store) == at_home


def test_labels_and_evaluation_are_those_of_one_machine(connected: Any, tmp_path: Path) -> None:
    """A worker is killed meanwhile; solves land in the same cache, so that the second call solves nothing."""
    from dflearn.integrations.ray import OnRay

    problem = problem_named("KP-30", seed=1)
    data = problem.generate(400, 3)
    solver = OnRay(problem.solver(), memory=MEMORY)

    def kill() -> None:
        wait_until(lambda: processes("_solve_there"))
        os.kill(processes("_solve_there")[0], signal.SIGKILL)

    disturbance = in_the_background(kill)
    there = label(data, solver, cache=tmp_path, progress=False)
    disturbance.join()
    here = label(data, problem.solver(), progress=False)
    assert torch.equal(there.decisions, here.decisions)
    costs = torch.rand(90, problem.program.p, dtype=torch.float64)
    mine, theirs = problem.solver().solve(costs), solver.solve(costs)
    assert torch.equal(mine.decision, theirs.decision)
    assert torch.equal(mine.objective, theirs.objective)
    judged = [evaluate(data.costs + 1.0, problem, there, s, cache=tmp_path, progress=False) for s in (solver, None)]
    assert judged[0].metrics == judged[1].metrics

    class NothingToDo(OnRay):
        def solve_each(self, batches: Any) -> Iterator[Any]:
            assert list(batches) == []
            yield from ()

    solve_cached(NothingToDo(problem.solver()), data.costs, cache=tmp_path, progress=False)


def test_no_more_is_on_the_cluster_than_it_can_do(connected: Any) -> None:
    """1,280 instances in 40 batches: a batch is made only when there is room for it, two per core at most."""
    from dflearn.integrations.ray import OnRay

    problem = problem_named("SP-3", seed=1)
    solver, made, most = OnRay(problem.solver(), memory=MEMORY), 0, 0

    def batches() -> Iterator[tuple[torch.Tensor, None]]:
        nonlocal made
        for costs in torch.rand(1_280, problem.program.p, dtype=torch.float64).split(32):
            made += 1
            yield costs, None

    with closing(solver.solve_each(batches())) as answers:
        for done, (_, solution) in enumerate(answers):
            most = max(most, made - done)
            solution.check()
    assert (made, most) == (40, 4)


def test_an_address_alone_is_refused(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(study), "--address", "10.0.0.1:6379"]) != 0
    assert "add --executor ray" in capsys.readouterr().err
