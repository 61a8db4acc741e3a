"""Sparse Cholesky factors and vectors over the lanes of a batch."""
