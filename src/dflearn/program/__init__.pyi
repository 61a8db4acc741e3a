"""The public names of dflearn.program, each imported when it is first used."""

from .instance import Instance as Instance
from .objective import Objective as Objective, Sense as Sense
from .program import Program as Program
from .quadratic import Quadratic as Quadratic
