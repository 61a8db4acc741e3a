"""The whole way from features to decisions: `train` and `decide` on tables, and an estimator of scikit-learn's kind."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
