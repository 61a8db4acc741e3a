"""dflearn: decision-focused learning for linear and mixed-integer programs."""

import lazy_loader

from dflearn._version import __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
