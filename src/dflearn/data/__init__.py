"""Data: what a run trains and is judged on, labelled by exact solves."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
