"""The one canonical form: `Program`, its `Objective`, and what differs from instance to instance."""

from dflearn.program.instance import Instance as Instance
from dflearn.program.objective import Objective as Objective, Sense as Sense
from dflearn.program.program import Program as Program

__all__ = ["Instance", "Objective", "Program", "Sense"]
