"""Experiments: a grid of runs from a TOML file, a store that keeps every finished one, and the paper's tables."""
