"""Studies: a grid of runs from a TOML file, and a store that keeps every finished one."""
