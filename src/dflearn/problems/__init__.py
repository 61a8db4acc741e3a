"""Problems: each a program, a generator of data for it, and the exact mean of the costs given the features."""

from dflearn.problems.base import Problem as Problem
from dflearn.problems.facility_location import FacilityLocation as FacilityLocation
from dflearn.problems.knapsack import Knapsack as Knapsack
from dflearn.problems.registry import (
    PROBLEMS as PROBLEMS,
    problem_named as problem_named,
    problem_of_origin as problem_of_origin,
)
from dflearn.problems.shortest_path import ShortestPath as ShortestPath
from dflearn.problems.top_k import TopK as TopK

__all__ = [
    "PROBLEMS",
    "FacilityLocation",
    "Knapsack",
    "Problem",
    "ShortestPath",
    "TopK",
    "problem_named",
    "problem_of_origin",
]
