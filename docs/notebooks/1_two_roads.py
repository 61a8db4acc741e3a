# %% [markdown]
# # Two roads: an accurate forecast, a poor decision
#
# A driver takes the motorway or the road through the city. A traffic forecast x is known before leaving.
# A line predicts the hours on each road. The hours in the city are not a line, so the model must be wrong somewhere.
# The loss decides where.

# %%
# # %pip install "dflearn[plot]"  # for Colab: remove the first sign once dflearn is on the package index

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch

import dflearn as dfl
from dflearn.report.style import color_of

program = dfl.Program(A=[[1, 1]], b=[1], upper=1, name="two roads")  # take exactly one
solver = dfl.HiGHS(program)


def mornings(count, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 3, (count, 1))
    hours = np.hstack([np.full_like(x, 2.0), 1 + 0.02 * np.exp(2 * x)])  # motorway, city
    hours *= rng.uniform(0.8, 1.2, (count, 2))
    return dfl.DecisionDataset(torch.tensor(x).float(), torch.tensor(hours).float())


train, test = (dfl.label(mornings(count, seed), solver, progress=False) for count, seed in ((400, 0), (1000, 1)))

# %% [markdown]
# The same model, trained by two losses. `MSE` asks for accurate hours. `SPOPlus` asks for good decisions.

# %%
losses = {"MSE": dfl.losses.MSE(), "SPO+": dfl.losses.SPOPlus(dfl.Exact(solver))}
models = {}
for name, loss in losses.items():
    models[name] = dfl.models.Linear(1, 2)
    dfl.fit(models[name], loss, train, epochs=30, lr=0.05, progress=False)
    found = dfl.evaluate(models[name], program, test, progress=False)
    print(f"{name:5} regret {found.ratio_of_sums:.1%}, squared error {found.mse:.2f}")

# %% [markdown]
# Regret is the time lost against the faster road, as a share of the time needed at best. The decision changes where a
# line crosses zero. SPO+ crosses where the truth does, and is far off elsewhere, where it does not matter.

# %%
x = np.linspace(0, 3, 100, dtype=np.float32)[:, None]
figure, axes = plt.subplots(figsize=(6, 3.2))
axes.plot(x, 0.02 * np.exp(2 * x) - 1, color="black", label="truth")
for name, model in models.items():
    motorway, city = model(torch.tensor(x)).detach().numpy().T
    axes.plot(x, city - motorway, color=color_of(name), label=name)
axes.axhline(0, color="grey", linewidth=1)
axes.set(xlabel="traffic forecast x", ylabel="city minus motorway, hours", ylim=(-4, 6))
axes.legend()
plt.show()
