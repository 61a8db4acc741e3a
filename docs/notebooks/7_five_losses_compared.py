# %% [markdown]
# # Five losses compared
#
# One problem, one linear model, five losses. All see the same rows and start from the same weights.

# %%
# # %pip install "dflearn[plot]"  # for Colab: remove the first sign once dflearn is on the package index

# %%
import matplotlib.pyplot as plt

import dflearn as dfl
from dflearn.report.style import color_of

problem = dfl.problems.ShortestPath(5, 5, seed=1)
data = dfl.label(problem.generate(800), problem.solver(), progress=False)
train, _, test = data.split(seed=1, test=300)

exact, smoothed = dfl.Exact(problem.solver()), dfl.Smoothed(problem.program, mu=1.0)
losses = {
    "MSE": dfl.losses.MSE(),
    "SPO+": dfl.losses.SPOPlus(exact),
    "sSPO+": dfl.losses.SmoothedSPOPlus(smoothed),
    "SCE": dfl.losses.SCE(smoothed),
    "PFY": dfl.losses.FenchelYoung(dfl.Perturbed(problem.solver(), sigma=1.0, samples=2)),
}
found = {}
for name, loss in losses.items():
    model = dfl.models.Linear(train.features.shape[1], problem.program.p, seed=0)
    dfl.fit(model, loss, train, epochs=8, lr=0.02, seed=0, progress=False)
    found[name] = dfl.evaluate(model, problem, test, progress=False)

# %% [markdown]
# The bars show the regret, with 95 % intervals. Intervals of single methods overlap easily. The paired comparison below is sharper,
# since all methods decided on the same rows.

# %%
figure, axes = plt.subplots(figsize=(6, 3))
for name, evaluation in found.items():
    value, low, high = evaluation.metrics["ratio_of_sums"]
    axes.bar(name, value, yerr=[[value - low], [high - value]], color=color_of(name), capsize=3)
axes.set_ylabel("regret / optimum")
plt.show()

# %%
for name in list(found)[1:]:
    value, low, high = dfl.compare(found[name], found["MSE"]).ratio_of_sums
    print(f"{name:6} minus MSE: {value:+.1%} [{low:+.1%}, {high:+.1%}]")

# %% [markdown]
# One problem and one seed are no ranking: the order differs between problems. For several seeds and problems, write a study.
