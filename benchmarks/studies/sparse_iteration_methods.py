"""The authors' iteration in float64, sparse and dense, as methods: model, loss and data stay in float32."""

from __future__ import annotations

from functools import partial

import torch

from dflearn.paper.as_published import AsPublished, SparseAsPublished
from dflearn.paper.methods import as_published, dys_parameters
from dflearn.studies.methods import Method, register

for _loss in ("SCE", "SPO+"):
    for _name, _kind in (("", SparseAsPublished), (" dense", AsPublished)):
        register(
            Method(
                f"{_loss}^DYS{_name} float64",
                "DYS-Net as in the authors' code, in float64",
                as_published(_loss, partial(_kind, dtype=torch.float64)),
                dys_parameters(_loss, False),
            )
        )
