"""Limits of the rule of `dflearn.engine.certify` that its kernels share, apart from numba."""

NOTHING = 1e-13  # a sum that is smaller, relative to its terms, is rounding
DOUBT = 1e-7  # beside all costs, what rounding of reduced costs may hide before it counts
