"""From tables of people to decisions: columns as numbers, `train` and `decide`, and an estimator of scikit-learn's kind."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
