"""Problems: each a program, a generator of data for it, and the exact mean of the costs given the features."""

from dflearn.problems.base import Problem as Problem
from dflearn.problems.energy import (
    EnergyDays as EnergyDays,
    EnergyKnapsack as EnergyKnapsack,
    load_energy_days as load_energy_days,
)
from dflearn.problems.facility_location import FacilityLocation as FacilityLocation
from dflearn.problems.knapsack import Knapsack as Knapsack
from dflearn.problems.matching import Matching as Matching
from dflearn.problems.portfolio import Portfolio as Portfolio
from dflearn.problems.registry import (
    PROBLEMS as PROBLEMS,
    problem_forms as problem_forms,
    problem_named as problem_named,
    problem_of_origin as problem_of_origin,
    register_problem as register_problem,
)
from dflearn.problems.scheduling import Scheduling as Scheduling
from dflearn.problems.selection import Selection as Selection
from dflearn.problems.shortest_path import ShortestPath as ShortestPath
from dflearn.problems.terrain import Terrain as Terrain

__all__ = [
    "PROBLEMS",
    "EnergyDays",
    "EnergyKnapsack",
    "FacilityLocation",
    "Knapsack",
    "Matching",
    "Portfolio",
    "Problem",
    "Scheduling",
    "Selection",
    "ShortestPath",
    "Terrain",
    "load_energy_days",
    "problem_forms",
    "problem_named",
    "problem_of_origin",
    "register_problem",
]
