"""What the tests of front ends share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gurobipy
import pytest


@pytest.fixture(scope="session")
def gurobi_environment() -> Iterator[Any]:
    """One silent Gurobi environment for all models."""
    with gurobipy.Env(params={"OutputFlag": 0, "Threads": 1}) as environment:
        yield environment
