"""Which rows a model was trained on: its file keeps a hash of each, so that later tables tell seen rows from others."""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import blake2b

import numpy as np

from dflearn.data import DecisionDataset

SIZE = 8  # bytes of a hash
DIGITS = 6  # of features, whose sines may differ in their last bits between machines


def _hashes(data: DecisionDataset) -> list[bytes]:
    """A hash of the features and costs of each row."""
    x, y = data.features.double().flatten(1).numpy(), data.batch().require("costs").double().numpy()
    rows = np.ascontiguousarray(np.column_stack([x.round(DIGITS), y]) + 0.0)  # no −0
    return [blake2b(row.tobytes(), digest_size=SIZE).digest() for row in rows]


def packed(data: DecisionDataset) -> str:
    """The hashes of all rows, in one text."""
    return b64encode(b"".join(sorted(_hashes(data)))).decode()


def seen(data: DecisionDataset, known: str) -> tuple[np.ndarray, bool]:
    """Which rows are among those that `packed` was given, bool `(rows,)`, and whether all of those are here."""
    whole = b64decode(known)
    before = {whole[at : at + SIZE] for at in range(0, len(whole), SIZE)}
    own = _hashes(data)
    return np.array([one in before for one in own], bool), before <= set(own)
