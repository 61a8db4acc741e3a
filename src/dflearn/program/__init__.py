"""The one canonical form: `Program`, its `Objective`, and what differs from instance to instance."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
