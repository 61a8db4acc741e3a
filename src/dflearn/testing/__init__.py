"""Contract checks for people who write their own solver, layer, loss or problem: call one from a test of your own."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
