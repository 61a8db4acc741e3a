"""The public names of dflearn.problems, each imported when it is first used."""

from .assignment import FacilityLocation as FacilityLocation, Matching as Matching
from .base import Problem as Problem
from .energy import EnergyDays as EnergyDays, EnergyKnapsack as EnergyKnapsack, load_energy_days as load_energy_days
from .knapsack import Knapsack as Knapsack, Portfolio as Portfolio, Selection as Selection
from .paths import ShortestPath as ShortestPath, Terrain as Terrain
from .registry import (
    PROBLEMS as PROBLEMS,
    problem_forms as problem_forms,
    problem_named as problem_named,
    problem_of_origin as problem_of_origin,
    register_problem as register_problem,
)
from .scheduling import Scheduling as Scheduling
