"""Energy scheduling on real days: nine jobs of a plant, run when electricity is cheap (form of CSPLib 059).

`dflearn.problems.scheduling.Scheduling` is the program; the plant is one of our own. Jobs take one to six hours, draw 60 to
400 kW, and have windows as a shift plan gives them: some any time, some in the working day, some overnight. Jobs that run at
the same time share 140 units of steam. Data, features and origins: `days`.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.practice.case import Case
from benchmarks.practice.days import case_of, price_names
from dflearn.problems.scheduling import Job, Scheduling

# duration, earliest start, latest end (half-hours); MW; steam
JOBS = (
    Job(12, 0, 48, 0.40, (60,)),  # kiln
    Job(8, 0, 30, 0.25, (50,)),  # drying, before the afternoon
    Job(6, 12, 40, 0.30, (40,)),  # pressing, in the working day
    Job(4, 12, 48, 0.15, (40,)),  # coating
    Job(10, 10, 48, 0.18, (30,)),  # mixing
    Job(5, 24, 48, 0.35, (60,)),  # cooling, afternoon or evening
    Job(2, 14, 40, 0.22, (50,)),  # testing
    Job(3, 0, 20, 0.12, (30,)),  # heating up
    Job(6, 20, 48, 0.06, (20,)),  # packing
)


def case(seed: int) -> Case:
    program = replace(Scheduling(JOBS, ((140,),), name="energy scheduling").program, cost_names=price_names())
    return case_of(program, seed, "€ a day")
