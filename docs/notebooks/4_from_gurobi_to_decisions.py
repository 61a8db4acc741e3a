# %% [markdown]
# # From a Gurobi model to decisions
#
# Nine jobs, three machines, and prices that are predicted. The model is written in gurobipy. dflearn reads it, trains on it,
# and hands decisions back by the names of the variables. The licence that comes with gurobipy is enough here.

# %%
# # %pip install "dflearn[gurobi]"  # for Colab: remove the first sign once dflearn is on the package index

# %%
import gurobipy as gp
import numpy as np
import torch

import dflearn as dfl

JOBS, MACHINES = 9, 3
environment = gp.Env(params={"OutputFlag": 0})
tasks = gp.Model("tasks", env=environment)
assign = tasks.addVars(JOBS, MACHINES, vtype="B", name="assign")
extra = tasks.addVars(MACHINES, obj=0.5, name="extra")  # overtime: a known cost
tasks.addConstrs(assign.sum(i, "*") == 1 for i in range(JOBS))
tasks.addConstrs(assign.sum("*", k) <= 3 + extra[k] for k in range(MACHINES))
program = dfl.from_gurobi(tasks, costs=assign)
print(program)

# %% [markdown]
# Costs depend on two features, not linearly. Labels are the best decisions with hindsight, of Gurobi or of HiGHS.

# %%
rng = np.random.default_rng(0)
x = rng.normal(size=(200, 2))
y = np.exp(0.7 * x @ rng.normal(size=(2, JOBS * MACHINES))) * rng.uniform(0.8, 1.2, (200, JOBS * MACHINES))
data = dfl.DecisionDataset(torch.tensor(x).float(), torch.tensor(y).float())
train, _, test = dfl.label(data, dfl.HiGHS(program), progress=False).split(seed=0, test=60)

# %%
relaxed = dfl.Exact(dfl.HiGHS(program.relax()))  # train on the relaxation, judge on the integer program
for name, loss in {"MSE": dfl.losses.MSE(), "SPO+": dfl.losses.SPOPlus(relaxed)}.items():
    model = dfl.models.Linear(2, program.p)
    dfl.fit(model, loss, train, epochs=12, lr=0.03, progress=False)
    print(f"{name:5} regret {dfl.evaluate(model, program, test, progress=False).ratio_of_sums:.1%}")

# %% [markdown]
# A new day: predict, solve, and give the decision to the variables of the Gurobi model as a start.

# %%
with torch.no_grad():
    decision = dfl.HiGHS(program).solve(model(test.features[:1])).check().decision[0]
for name, value in zip(program.variable_names, decision.tolist(), strict=True):
    tasks.getVarByName(name).Start = value
tasks.update()
plan = {i: next(k for k in range(MACHINES) if assign[i, k].Start > 0.5) for i in range(JOBS)}
print(plan)
