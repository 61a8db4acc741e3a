"""Exact solvers as kernels: simplex, few rows, shortest paths."""
