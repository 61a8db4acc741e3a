"""A fuzzer: random programs by seed, exact references, and a verdict on every answer of the library."""
