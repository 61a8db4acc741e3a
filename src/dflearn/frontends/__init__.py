"""Other people's models → `Program`: one file per front end, and the two steps that all of them share.

`costs` tells which objective coefficients are predicted, `linear_model` turns rows with limits into a `Program`.
"""
