# %% [markdown]
# # A newsvendor with scenarios
#
# Papers are ordered before demand is known. A paper left over loses 0.5, a missing one 9. Here the *right-hand side* is
# predicted, and what was decided is corrected later, at a price.

# %%
# # %pip install "dflearn[plot]"  # for Colab: remove the first sign once dflearn is on the package index

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch

import dflearn as dfl
from dflearn.report.style import color_of

torch.manual_seed(0)
one = dfl.Program(A=[[1.0]], b=[0.0], B=[[1.0]], S=np.zeros((1, 1)), d=[1.0], upper=100, name="newsvendor")
program = one.elastic("predicted", (0.5, 9.0))  # the price of too much, and of too little

rng = np.random.default_rng(0)
x = rng.uniform(-1, 1, (500, 1))
demand = 10 + 3 * x + (1 + 2 * (x + 1)) * rng.gumbel(size=(500, 1))  # the spread grows with x
demand = np.maximum(demand, 0)
data = dfl.DecisionDataset(torch.tensor(x), torch.tensor(demand))
train, test = data.subset(range(300)), dfl.label(data.subset(range(300, 500)), program, progress=False)

# %% [markdown]
# An order at the forecast mean is too small here: a missing paper is dear. A forecast that is trained by the cost after recourse
# (`TaskLoss`) moves to the right quantile by itself.

# %%
layer = dfl.Smoothed(program, mu=1e-3)
found = {}
for name, loss in {"MSE": dfl.losses.MSE(), "cost after recourse": dfl.losses.TaskLoss(layer)}.items():
    model = torch.nn.Linear(1, 1).double()
    model.bias.data += 10
    dfl.fit(model, loss, train, epochs=30, lr=0.05, progress=False)
    found[name] = model
    print(f"{name:20} mean regret {dfl.evaluate(model, program, test, progress=False).absolute_regret:.2f}")

# %% [markdown]
# Instead of one number, predict three scenarios. `program.scenarios` decides once for all of them.

# %%
weights = [0.5, 0.3, 0.2]
together = program.scenarios(weights)
three = torch.nn.Linear(1, 3).double()
three.bias.data += torch.tensor([8.0, 10.0, 14.0])
dfl.fit(
    three,
    dfl.losses.TaskLoss(dfl.Smoothed(together, mu=1e-3), program=program),
    train,
    epochs=30,
    lr=0.05,
    progress=False,
)
with torch.no_grad():
    orders = (
        dfl.HiGHS(together).solve(three(test.features)).check().decision[:, :1]
    )  # the order comes first, then what corrects it
print(
    f"three scenarios      mean regret {dfl.evaluate(orders.numpy(), program, test, progress=False).absolute_regret:.2f}"
)

# %%
grid = torch.linspace(-1, 1, 50).double()[:, None]
figure, axes = plt.subplots(figsize=(6, 3.2))
axes.plot(test.features, test.costs, ".", color="#d9dde3")
for name, model in found.items():
    axes.plot(grid, model(grid).detach(), color=color_of(name), label=name)
axes.set(xlabel="feature x", ylabel="demand, and orders")
axes.legend()
plt.show()
