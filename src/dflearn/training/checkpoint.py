"""Checkpoints: one file, written whole or not at all, readable without running code, and tied to its run."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
from pathlib import Path
from typing import Any

import torch

from dflearn.data import DecisionDataset
from dflearn.errors import CheckpointError
from dflearn.files import replacing

FORMAT = "dflearn checkpoint 1"


def save(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write tensors and plain values to `path`, atomically."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        torch.save({"format": FORMAT, **content}, file)


def load(path: str | os.PathLike[str], config: dict[str, Any]) -> dict[str, Any] | None:
    """What `save` wrote; `None` where there is no file; an error where it is damaged or of another `config`."""
    if not os.path.exists(path):
        return None
    try:
        content = torch.load(path, weights_only=True, map_location="cpu")
    except (RuntimeError, pickle.UnpicklingError, EOFError, KeyError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read as a checkpoint: {error}; delete it to start afresh") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a {FORMAT!r}; name another file")
    held = content["config"]
    differences = [
        f"{name}: {held.get(name)!r} there, {config.get(name)!r} here"
        for name in sorted(held.keys())  # what an older file does not know cannot differ
        if held.get(name) != config.get(name)
    ]
    if differences:
        raise CheckpointError(
            f"{path} belongs to another run; " + "; ".join(differences) + ". Name another file, or delete this one"
        )
    return content


def describe(thing: Any) -> str:
    """The `repr` of a model, loss or optimizer, without addresses in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(thing))


def fingerprint(data: DecisionDataset | None) -> str | None:
    """A hash of all that a data set holds."""
    if data is None:
        return None
    digest = hashlib.sha256()
    batch = data.batch()
    named = {"features": batch.features, "costs": batch.costs, "decisions": batch.decisions, "ids": batch.ids}
    for name, tensor in {**named, **(batch.instance.present() if batch.instance else {})}.items():
        if tensor is not None:
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
