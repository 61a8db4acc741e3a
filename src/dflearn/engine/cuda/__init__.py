"""The smoothed LP and Davis-Yin iterations on a GPU: one block of threads solves one instance, in the block's own memory.

`source` holds the kernels, method by method as in `engine`; `plan` makes of a matrix what they walk through; `nvrtc`
compiles them with the compiler that torch brings, `driver` loads and launches them; `rows` and `splitting` are what
layers call.
"""
