# %% [markdown]
# # Tables and a model file
#
# You have an optimization model in an LP file, a table of features, and a table of past costs. This is enough to train
# a model, to see whether it pays, and to decide for new rows.

# %%
# # %pip install "dflearn[sklearn]" pandas  # for Colab: remove the first sign once dflearn is on the package index

# %%
from pathlib import Path

import numpy as np
import pandas as pd

import dflearn as dfl

Path("transport.lp").write_text("""
Minimize
 cost: 4 ship_a1 + 6 ship_a2 + 5 ship_b1 + 3 ship_b2 + 9 rent
Subject To
 a: ship_a1 + ship_a2 <= 30
 b: ship_b1 + ship_b2 - 20 rent <= 10
 one: ship_a1 + ship_b1 >= 18
 two: ship_a2 + ship_b2 >= 16
Bounds
 rent <= 2
General
 rent
End
""")
program = dfl.from_lp("transport.lp", costs="ship*")
print("predicted:", *program.cost_names)

# %% [markdown]
# Eighty days of past. The columns of the costs are called like the variables of the file.

# %%
rng = np.random.default_rng(0)
x = pd.DataFrame(
    {"diesel": rng.normal(size=80), "demand": rng.normal(size=80), "weekday": rng.choice(["Mon", "Tue", "Wed"], 80)}
)
effect = np.array([[0.5, 0.1, -0.4, 0.2], [0.2, -0.5, 0.3, 0.4]])
costs = 4 * np.exp(x[["diesel", "demand"]].to_numpy() @ effect) * rng.uniform(0.9, 1.1, (80, 4))
y = pd.DataFrame(costs, columns=program.cost_names)

# %% [markdown]
# `dfl.train` sets test rows aside, trains several models, chooses one by its regret on the validation rows and
# compares it with the squared error on the test set.

# %%
result = dfl.train(program, x, y, losses=["spo+"], epochs=5)
print(result)

# %% [markdown]
# The saved model decides for new rows.

# %%
result.save("model.dfl")
decided = dfl.decide("model.dfl", x.tail(3))
print(pd.DataFrame(decided.columns).round(2).to_string(index=False))
