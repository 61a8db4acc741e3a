# %% [markdown]
# # A loss of your own
#
# A loss gives one value for each instance. Ours is a squared error that looks only where a decision looks: at costs that
# the best decision uses, or that the decision for the prediction uses.
#
# $$\ell(\hat y) = \sum_j (w^*_j + w_j(\hat y))\,(\hat y_j - y_j)^2$$

# %%
# # %pip install dflearn  # for Colab: remove the first sign once dflearn is on the package index

# %%
import torch

import dflearn as dfl
from dflearn.losses import Loss, LossOutput
from dflearn.testing import check_loss


class ErrorWhereItCounts(Loss):
    """Σ_j (Sᵀw* + Sᵀw)_j (ŷ_j − y_j)², w = layer(ŷ), held constant."""

    needs = ("costs", "decisions")

    def _output(self, predicted, batch):
        solution = self.layer.solve(predicted.detach(), batch.instance, batch.start).check()
        used = self.layer.objective.transpose(batch.require("decisions") + solution.decision)
        return LossOutput((used * (predicted - batch.require("costs")) ** 2).sum(-1), solution)


# %% [markdown]
# `check_loss` tests the contract: shapes, dtypes, batches of none and one, missing data, copies, and the gradient
# against differences. It says nothing if all is well.

# %%
problem = dfl.problems.ShortestPath(4, 4, seed=1)
data = dfl.label(problem.generate(600), problem.solver(), progress=False)
train, _, test = data.split(seed=0, test=200)
loss = ErrorWhereItCounts(dfl.Exact(problem.solver()))
few = train.subset(range(6))
guess = few.costs + 0.1 * torch.randn(few.costs.shape, generator=torch.Generator().manual_seed(0))
check_loss(loss, guess, dfl.Batch(features=few.features, costs=few.costs, decisions=few.decisions))

# %% [markdown]
# It trains like every other loss. Does it help? Ask the test set, not the idea.

# %%
for name, tried in {
    "MSE": dfl.losses.MSE(),
    "our own": loss,
    "SPO+": dfl.losses.SPOPlus(dfl.Exact(problem.solver())),
}.items():
    model = dfl.models.Linear(train.features.shape[1], problem.program.p, seed=0)
    dfl.fit(model, tried, train, epochs=10, lr=0.02, seed=0, progress=False)
    print(f"{name:8} regret {dfl.evaluate(model, problem, test, progress=False).ratio_of_sums:.1%}")
