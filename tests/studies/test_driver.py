"""The driver and its executors: what is run, what is not, and what an interruption leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dflearn.errors import OptionError
from dflearn.studies.config import RunConfig, read_study
from dflearn.studies.driver import run_study
from dflearn.studies.executors import Executor, InProcess, LocalProcesses, Outcome, available_cores
from dflearn.studies.store import Store
from support.study_records import made_up, tiny

FAILING = tiny("CFL-6x2", "SCE^DYS", parameters={"alpha": -1.0})  # refused when the layer is made


class Recorder(Executor):
    """Ends every run at once, with a made-up record or an error, and remembers the order."""

    def __init__(self, slots: int = 1, fails: tuple[RunConfig, ...] = (), losses: int = 0) -> None:
        self.slots, self.fails, self.losses = slots, fails, losses
        self.seen: list[RunConfig] = []
        self.waiting: list[RunConfig] = []

    def submit(self, config: RunConfig) -> None:
        self.seen.append(config)
        self.waiting.append(config)
        assert len(self.waiting) <= self.slots

    def next(self, timeout: float | None = None) -> Outcome | None:
        config = self.waiting.pop()
        if self.losses:
            self.losses -= 1
            return Outcome(config, error="the node is gone", lost=True)
        return Outcome(config, error="broken") if config in self.fails else Outcome(config, made_up(config))

    def close(self) -> None:
        self.waiting.clear()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "study.sqlite")


def test_finished_runs_are_not_repeated_and_failed_ones_on_request_only(store: Store) -> None:
    configs = [tiny(seed=seed) for seed in range(1, 6)]
    first = Recorder(slots=2, fails=(configs[2],))
    summary = run_study([*configs, configs[0]], store, first, progress=False)
    assert (first.seen, summary.done, summary.failed) == (configs, 4, [configs[2]])
    second = Recorder()
    assert run_study(configs, store, second, progress=False).skipped == [configs[2]]
    assert second.seen == []
    third = Recorder()
    assert run_study(configs, store, third, progress=False, retry_failed=True).done == 1
    assert third.seen == [configs[2]]
    assert store.progress().done == configs


def test_a_run_whose_machine_is_lost_is_tried_again_so_often_and_no_more(store: Store) -> None:
    configs = [tiny(seed=1), tiny(seed=2)]
    executor = Recorder(losses=2)
    assert run_study(configs, store, executor, progress=False).done == 2
    assert executor.seen == [configs[0], configs[0], configs[0], configs[1]]
    unlucky = tiny(seed=3)
    summary = run_study([unlucky], store, Recorder(losses=2), retries=1, progress=False)
    assert summary.failed == [unlucky]
    assert store.progress().failed[0].error == "the node is gone (tried 2 times)"
    assert run_study([unlucky], store, Recorder(), retry_failed=True, progress=False).done == 1
    assert store.progress().failed == []


def test_a_budget_leaves_out_what_would_not_fit(store: Store) -> None:
    configs = [tiny(seed=seed) for seed in (1, 2, 3)]
    seconds = {1: 10.0, 2: 1e6, 3: 20.0}
    executor = Recorder()
    estimate = lambda config: seconds[config.seed]  # noqa: E731
    summary = run_study(configs, store, executor, budget=1000.0, estimate=estimate, progress=False)
    assert executor.seen == [configs[0], configs[2]]
    assert summary.left == [configs[1]]
    assert store.progress().missing == [configs[1]]


def test_a_run_that_raises_is_recorded_and_the_others_go_on(store: Store, cache: Path) -> None:
    summary = run_study([FAILING, tiny()], store, InProcess(cache), progress=False)
    assert (summary.done, summary.failed) == (1, [FAILING])
    (failure,) = store.progress().failed
    assert failure.error.startswith("ProgramError: ")
    assert "alpha > 0" in failure.error


def test_processes_survive_one_that_dies(store: Store, cache: Path) -> None:
    """One worker is killed in the middle of a run that would take minutes; another serves the runs after it."""
    endless = tiny("SP-10", "SCE^DYS", parameters={"iterations": 1_000_000})
    with LocalProcesses(1, cache) as executor:
        executor.submit(endless)
        (worker,) = executor._busy
        assert executor.next(0.01) is None
        os.kill(worker.process.pid or 0, signal.SIGKILL)
        outcome = executor.next()
        assert outcome is not None
        assert "ended by signal 9" in outcome.reason
        assert outcome.lost
        assert run_study([tiny(), FAILING], store, executor, progress=False).done == 1


def test_more_jobs_than_cores_are_refused() -> None:
    with pytest.raises(OptionError, match=f"there are {available_cores()} cores"):
        LocalProcesses(available_cores() + 1)


STUDY = """
problems = ["SP-4"]
methods = ["MSE", "SPO+^relax", "SCE^DYS dense", "SqDE^DYS dense", "Regret^DYS dense", "SPO+^DYS dense"]  # long enough to interrupt
seeds = [1]
[settings]
points = 200
test = 100
epochs = 10
"""


def test_an_interrupted_study_ends_as_an_undisturbed_one(tmp_path: Path, cache: Path) -> None:
    """Ctrl-C after the first run, `kill -9` after the third, then to the end."""
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    configs = read_study(study).runs()
    disturbed = tmp_path / "study.sqlite"

    class Interrupted(InProcess):
        def next(self, timeout: float | None = None) -> Outcome | None:
            if self._waiting[0] == configs[1]:
                raise KeyboardInterrupt
            return super().next(timeout)

    with Store(disturbed) as store, pytest.raises(KeyboardInterrupt):
        run_study(configs, store, Interrupted(cache), progress=False)
    command = [sys.executable, "-m", "dflearn", "run", str(study), "--jobs", "1", "--cache", str(cache)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    driver = subprocess.Popen(command, **pipes, text=True, start_new_session=True)
    ended = _wait_for(disturbed, 1, driver)
    ended |= _wait_for(disturbed, 3, driver)
    workers = _children(driver.pid)
    driver.kill()
    driver.communicate(timeout=60)
    assert workers
    deadline = time.monotonic() + 60
    while any(_is_running(worker) for worker in workers):
        assert time.monotonic() < deadline, "a worker outlives its driver"
        time.sleep(0.05)

    with Store(tmp_path / "undisturbed.sqlite") as quiet, Store(disturbed) as store:
        run_study(configs, quiet, InProcess(cache), progress=False)
        assert run_study(configs, store, InProcess(cache), progress=False).done <= 3
        for config in configs:
            there, here = store.get(config), quiet.get(config)
            assert there is not None
            assert here is not None
            assert there.metrics == here.metrics
            assert there.history["loss"] == here.history["loss"]
            np.testing.assert_array_equal(there.regrets, here.regrets)
            if config.key in ended:  # finished before an interruption, so not run again
                assert there.machine["ended"] == ended[config.key]
    assert len(ended) >= 3


def _wait_for(path: Path, count: int, driver: subprocess.Popen[str]) -> dict[str, str]:
    """When each of the finished runs ended, as soon as there are `count` of them."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        assert driver.poll() is None, "the study ended before it could be interrupted"
        if path.exists():
            with Store(path) as store:
                found = {record.config.key: record.machine["ended"] for record in store.records()}
            if len(found) >= count:
                return found
        time.sleep(0.02)
    raise AssertionError(f"no {count} runs in time")


def _children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _is_running(process: int) -> bool:
    """Neither gone nor a zombie that nobody has looked at."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
