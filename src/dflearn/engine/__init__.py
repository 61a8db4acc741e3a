"""The hot loops, and nothing else: numba functions over plain arrays, called from solvers and layers.

Layout: instances are handled in tiles of `LANES`; a tile array is `(items, LANES)`, so that the innermost loop runs over
instances, is contiguous, and fills vector registers. Importing a module of this package imports numba, but for `elimination`.
"""
