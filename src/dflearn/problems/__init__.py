"""Problems: each a program, a generator of data for it, and the exact mean of the costs given the features."""

from dflearn.problems.assignment import FacilityLocation, Matching
from dflearn.problems.base import Problem
from dflearn.problems.energy import EnergyDays, EnergyKnapsack, load_energy_days
from dflearn.problems.knapsack import Knapsack, Portfolio, Selection
from dflearn.problems.paths import ShortestPath, Terrain
from dflearn.problems.registry import PROBLEMS, problem_forms, problem_named, problem_of_origin, register_problem
from dflearn.problems.scheduling import Scheduling

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
