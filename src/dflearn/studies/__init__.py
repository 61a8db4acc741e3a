"""Studies: a grid of runs from a TOML file, and a store that keeps every finished one.

`register`, `register_problem` and `register_model` add methods, problems and models that a study can name.
"""

from dflearn.problems.registry import register_problem as register_problem
from dflearn.studies.methods import (
    Method as Method,
    Prepared as Prepared,
    RunContext as RunContext,
    register as register,
)
from dflearn.studies.models import register_model as register_model

__all__ = ["Method", "Prepared", "RunContext", "register", "register_model", "register_problem"]
