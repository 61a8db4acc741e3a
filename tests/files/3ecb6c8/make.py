"""How the files of this folder were made, at commit 3ecb6c8: one of each kind that must still load.

python make.py FOLDER

`instances.dfl` is of `dfl train --instances`, on the knapsack of tests/cli/test_train.py; `instances.json` holds new rows and
what `dfl decide` answered.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from dflearn.experiments.config import Settings, resolve
from dflearn.experiments.run import run
from dflearn.experiments.store import Store
from dflearn.labels import label

import dflearn as dfl
from dflearn.losses import SCE
from dflearn.models import Linear
from dflearn.problems import problem_named

out = Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
torch.set_num_threads(1)
expected = {}

problem = problem_named("SP-3", seed=1)
data = dfl.label(problem.generate(80), problem.solver(), progress=False)
data.save(out / "data.npz")
X, y = data.features.double().numpy(), data.costs.double().numpy()

regressor = dfl.DecisionFocusedRegressor(problem.program, epochs=3, random_state=0).fit(X, y)
regressor.save(out / "model.dfl", {"note": "kept"})
expected["predictions"] = regressor.predict(X[:3]).tolist()
named = dfl.DecisionFocusedRegressor(problem, loss="spo+", epochs=2, random_state=0).fit(X, y)
named.save(out / "named.dfl")
expected["named"] = named.predict(X[:3]).tolist()


def trained(path, epochs):
    model = Linear(data.features.shape[1], problem.program.p, seed=0)
    dfl.fit(
        model, SCE(dfl.Smoothed(problem.program, 1.0)), data.subset(slice(0, 60)), validation=data.subset(slice(60, 80)),
        problem=problem, epochs=epochs, checkpoint=path, seed=0, progress=False,
    )  # fmt: skip
    return model


trained(out / "run.pt", 2)
with tempfile.TemporaryDirectory() as folder:
    copy = Path(folder) / "run.pt"
    copy.write_bytes((out / "run.pt").read_bytes())
    expected["resumed"] = trained(copy, 4).weight.detach().double().tolist()

knapsack = problem_named("KP-8", seed=1)
label(knapsack.generate(20), dfl.HiGHS(knapsack.program), cache=out / "cache", progress=False)

keys = []
with Store(out / "study.sqlite") as store:
    for method in ("MSE", "SPO+^relax", "SCE^smoothed"):
        config = resolve("SP-3", method, 1, Settings(points=60, test=20, epochs=2))
        store.put(run(config))
        keys.append(config.key)
    store.export(out / "study.jsonl")
expected["keys"] = keys
METHODS = ("MSE", "SCE^DYS", "SCE^CVX", "SPO+^p=5%", "PFY", "CaVE", "SCE^smoothed", "SCE^DYS printed", "sSPO+ scaled")
expected["paper_keys"] = {
    f"{name} {method}": resolve(name, method, 1).key for name in ("SP-5", "KP-100", "CFL-50") for method in METHODS
}
(out / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
