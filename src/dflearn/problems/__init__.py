"""Problems: each a program, a generator of data for it, and the exact mean of the costs given the features."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
