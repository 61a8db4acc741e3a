# %% [markdown]
# # A battery, modelled in Pyomo
#
# A battery buys power when it is cheap and sells when it is dear. The prices of the day are predicted.
# The Pyomo model is read as it is, and decisions go back into its variables.

# %%
# # %pip install "dflearn[plot,pyomo]"  # for Colab: remove the first sign once dflearn is on the package index

# %%
import matplotlib.pyplot as plt
import numpy as np
import pyomo.environ as pe
import torch

import dflearn as dfl

HOURS = 12
model = pe.ConcreteModel("battery")
model.hours = pe.RangeSet(0, HOURS - 1)
model.price = pe.Param(model.hours, mutable=True)  # predicted: no value is needed
model.charge = pe.Var(model.hours, bounds=(0, 1))
model.sell = pe.Var(model.hours, bounds=(0, 1))
model.level = pe.Var(model.hours, bounds=(0, 3))
model.flow = pe.Constraint(
    model.hours, rule=lambda m, t: m.level[t] == (m.level[t - 1] if t else 1.0) + m.charge[t] - m.sell[t]
)
model.profit = pe.Objective(
    expr=sum(model.price[t] * (0.9 * model.sell[t] - model.charge[t]) for t in model.hours), sense=pe.maximize
)
program = dfl.from_pyomo(model, costs=model.price)
print(program)

# %% [markdown]
# Prices follow the hour, and wind lowers them more the more there is. The model is linear in the wind, so it is wrong
# on calm days or on windy ones.

# %%
rng = np.random.default_rng(1)
hour, wind = np.arange(HOURS), rng.uniform(0, 2, (500, 1))
shape = 3 + np.sin(2 * np.pi * hour / HOURS) + 1.5 * np.cos(4 * np.pi * hour / HOURS) * (wind - 1) ** 2
prices = shape * rng.uniform(0.9, 1.1, (500, HOURS))
data = dfl.DecisionDataset(torch.tensor(wind).float(), torch.tensor(prices).float())
train, _, test = dfl.label(data, dfl.HiGHS(program), progress=False).split(seed=0, test=200)

for name, loss in {"MSE": dfl.losses.MSE(), "SPO+": dfl.losses.SPOPlus(dfl.Exact(dfl.HiGHS(program)))}.items():
    predictor = dfl.models.Linear(1, HOURS)
    dfl.fit(predictor, loss, train, epochs=20, lr=0.05, progress=False)
    found = dfl.evaluate(predictor, program, test, progress=False)
    print(f"{name:5} regret {found.ratio_of_sums:.1%} of the best profit")

# %% [markdown]
# Decide for one day, and write the decision into the Pyomo model.

# %%
with torch.no_grad():
    decision = dfl.HiGHS(program).solve(predictor(test.features[:1])).check().decision[0]
for name, value in zip(program.variable_names, decision.tolist(), strict=True):
    model.find_component(name).set_value(value)

figure, axes = plt.subplots(figsize=(6, 3))
axes.step(hour, test.costs[0], where="mid", color="black", label="price")
axes.bar(
    hour, [pe.value(model.sell[t] - model.charge[t]) for t in model.hours], color="#56b4e9", label="sold, less bought"
)
axes.set(xlabel="hour")
axes.legend()
plt.show()
