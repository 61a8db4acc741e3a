"""dflearn: decision-focused learning for linear and mixed-integer programs."""

from dflearn._version import __version__

__all__ = ["__version__"]
