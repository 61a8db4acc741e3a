# %% [markdown]
# # Maps, seen by a small net
#
# The features are images of terrain. The cost of entering a tile is not shown. A small convolutional net predicts it, and
# a shortest path crosses the map. The net learns from the path.

# %%
# # %pip install "dflearn[plot]"  # for Colab: remove the first sign once dflearn is on the package index

# %%
import matplotlib.pyplot as plt
import torch

import dflearn as dfl

torch.manual_seed(0)
problem = dfl.problems.Terrain(6, seed=1)
data = dfl.label(problem.generate(260), problem.solver(), progress=False)
train, _, test = data.split(seed=0, test=60)
print(train)

# %% [markdown]
# The loss compares decisions through random perturbations of the costs: only a solver is needed, no constraints.

# %%
layer = dfl.Perturbed(problem.solver(), sigma=0.5, samples=4)
losses = {"MSE": dfl.losses.MSE(), "Fenchel-Young": dfl.losses.FenchelYoung(layer)}
for name, loss in losses.items():
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.AvgPool2d(problem.pixels), torch.nn.Conv2d(8, 1, 1),
        torch.nn.Flatten(), torch.nn.Softplus(),
    )  # fmt: skip
    dfl.fit(net, loss, train, epochs=15, lr=0.03, progress=False)
    print(f"{name:14} regret {dfl.evaluate(net, problem, test, progress=False).ratio_of_sums:.1%}")

# %% [markdown]
# One map of the test set, the predicted costs, and the way that they lead to (points).

# %%
with torch.no_grad():
    predicted = net(test.features[:1])
    way = problem.solver().solve(predicted).check().decision[0]
entered = {0, *problem.arcs()[way.numpy() > 0.5, 1].tolist()}
figure, (left, right) = plt.subplots(1, 2, figsize=(6, 3))
left.imshow(test.features[0].permute(1, 2, 0).numpy(), extent=(-0.5, 5.5, 5.5, -0.5))
right.imshow(predicted.reshape(6, 6).numpy(), cmap="Greys")
for axes in (left, right):
    axes.plot([tile % 6 for tile in entered], [tile // 6 for tile in entered], "o", color="#d55e00")
    axes.set_axis_off()
plt.show()
