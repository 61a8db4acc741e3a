"""Checkpoints: one file, written whole or not at all, readable without running code, and tied to its run.

A checkpoint is what `torch.save` writes, a zip. Its comment holds the SHA-256 of all bytes before it, so that a file in
which a single bit has changed is refused.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import zipfile
from collections.abc import Collection
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.errors import CheckpointError
from dflearn.files import check_target, write_whole
from dflearn.layers.base import Layer
from dflearn.program import Program
from dflearn.reading import check_zip

FORMAT = "dflearn checkpoint 2"
PLAIN = (int, float, str, bool, type(None))  # what rows of a history may hold
SEAL = b"sha256 "
SEAL_SIZE = len(SEAL) + 64


def save(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    buffer = io.BytesIO()  # an interrupt inside the write to a file ends in an error of torch's own
    torch.save({"format": FORMAT, **content}, buffer)
    write_whole(Path(path), _sealed(buffer.getbuffer()))


def load(
    path: str | os.PathLike[str], config: dict[str, Any], scheduled: Collection[str] = ()
) -> dict[str, Any] | None:
    """What `save` wrote; `None` without a file; an error if it is damaged or of another `config`, up to `scheduled` numbers."""
    if not os.path.exists(path):
        return None
    check_target(path)
    try:
        with open(path, "rb") as file:
            _check_seal(file)
            _check_parts(file)
            content = torch.load(file, weights_only=True, map_location="cpu")
            _check_tensors(content)
    except Exception as error:  # whatever bytes may do to zipfile and pickle
        remedy = "name another file, or delete it to start afresh"
        raise CheckpointError(f"{path} cannot be read: {error}; {remedy}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a {FORMAT!r}; name another file")
    held = content.get("config")
    if not isinstance(held, dict):
        raise CheckpointError(f"{path} does not say which run it belongs to; delete it to start afresh")
    differences = [
        f"{name}: {held.get(name)!r} there, {config.get(name)!r} here"
        for name in sorted({*held, *config})
        if _compared(name, held.get(name), scheduled) != _compared(name, config.get(name), scheduled)
    ]
    if differences:
        raise CheckpointError(f"{path} is of another run; " + "; ".join(differences) + ". Name another, or delete it")
    return content


def _compared(name: str, value: Any, scheduled: Collection[str]) -> Any:
    if name != "loss" or not isinstance(value, str) or not scheduled:
        return value
    return re.sub(rf"\b({'|'.join(map(re.escape, scheduled))})=[^,()\n]*", r"\1", value)


def _sealed(archive: memoryview) -> bytes:
    """The bytes of a zip with their checksum in its comment, the last of its bytes."""
    content = bytes(archive[:-2]) + SEAL_SIZE.to_bytes(2, "little")  # the length of the comment, until now zero
    return content + SEAL + hashlib.sha256(content).hexdigest().encode()


def _check_seal(file: BinaryIO) -> None:
    """An error where the file has no checksum, or its content another."""
    digest, rest = hashlib.sha256(), os.fstat(file.fileno()).st_size - SEAL_SIZE
    while rest > 0 and (block := file.read(min(rest, 2**20))):
        digest.update(block)
        rest -= len(block)
    seal = file.read()
    file.seek(0)
    if seal != SEAL + digest.hexdigest().encode():
        raise CheckpointError("it is none, or damaged: it has no checksum, or another than when it was written")


def _check_parts(file: BinaryIO) -> None:
    """An error where the parts are compressed, which `torch.save` never does, so that reading takes no more than the file's size."""
    size = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        check_zip(archive, size)
        if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
            raise CheckpointError("its parts are compressed")
    file.seek(0)


def _check_tensors(content: Any) -> None:
    """An error where a tensor has more numbers than bytes stand behind it, as one with a stride of zero."""
    seen, rest = set(), [content]
    while rest:
        one = rest.pop()
        if isinstance(one, Tensor) and (one.layout != torch.strided or one.nbytes > one.untyped_storage().nbytes()):
            raise CheckpointError(f"it holds a tensor of shape {tuple(one.shape)} without its numbers")
        if isinstance(one, (dict, list, tuple, set)) and id(one) not in seen:
            seen.add(id(one))
            rest += [*one.values()] if isinstance(one, dict) else [*one]


def describe(thing: Any) -> str:
    """The `repr` of a model, loss or optimizer, without addresses in memory, and without where layers solve: a run may move."""
    return re.sub(r" at 0x[0-9a-f]+|, solved on [^()\n]*", "", repr(thing))


def parts_of(module: nn.Module) -> list[str]:
    """What a loss holds beside its layers and is not told by its `repr`: programs, tensors that stay as they are, functions."""
    if isinstance(module, Layer):
        return []
    held = {**vars(module), **dict(module.named_buffers(recurse=False))}
    return [f"{name} {part}" for name, value in sorted(held.items()) if (part := _part(value))]


def _part(value: Any) -> str:
    """A hash of a program, a tensor or a function's code; "" for what is none of them."""
    if isinstance(value, Program):
        return value.fingerprint
    if isinstance(value, Tensor):
        return hashlib.sha256(_bytes(value)).hexdigest()[:16]
    if isinstance(value, FunctionType):
        code = value.__code__
        plain = [one for one in code.co_consts if not isinstance(one, CodeType)]  # inner functions count by their names
        return hashlib.sha256(code.co_code + repr((plain, code.co_names)).encode()).hexdigest()[:16]
    return ""


def fingerprint(data: DecisionDataset | None) -> str | None:
    """A hash of all that a data set holds."""
    if data is None:
        return None
    digest, batch = hashlib.sha256(), data.batch()
    named = {name: getattr(batch, name) for name in ("features", "costs", "decisions", "ids", "weights")}
    for name, tensor in {**named, **(batch.instance.present() if batch.instance else {})}.items():
        if tensor is not None:
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() + _bytes(tensor))
    return digest.hexdigest()[:16]


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


MOMENTS = {
    "exp_avg",
    "exp_avg_sq",
    "max_exp_avg_sq",
    "momentum_buffer",
    "square_avg",
}  # of optimizers, shaped like weights


def check_like(name: str, value: Any, wanted: Tensor) -> None:
    if not isinstance(value, Tensor) or value.shape != wanted.shape:
        raise CheckpointError(f"its {name} has not the shape {tuple(wanted.shape)}; delete it to start afresh")


def plain_numbers(state: dict[str, Any]) -> dict[str, Any]:
    """The settings of a scheduler before its first step: numbers and words, no functions."""
    return {name: value for name, value in sorted(state.items()) if type(value) in PLAIN}
