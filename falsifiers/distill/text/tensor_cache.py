"""Caches tensors that are slow to compute; a file counts only if its digest is right."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from harness import NotMeasured

_DIGEST_KEY = "content_sha256"


def cached_tensors(
    folder: Path, kind: str, determined_by: Mapping[str, Any], make: Callable[[], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """The tensors that `make` computes, from `folder` if an earlier trial left them there intact.

    The file name is a digest of `determined_by` (strict JSON). The file is written beside its place and renamed, and
    holds a digest of its content: a file that is torn, altered or foreign is replaced. Other trials wait while one
    computes.

    Returns: CPU tensors by name.

    Raises:
        NotMeasured: the folder cannot be read or written; the subject is not to blame.
    """
    try:
        return _cached(folder, kind, determined_by, make)
    except OSError as error:
        raise NotMeasured(f"the cache {folder} cannot be used: {error}; set HARNESS_CACHE_DIR") from error


def _cached(
    folder: Path, kind: str, determined_by: Mapping[str, Any], make: Callable[[], dict[str, Tensor]]
) -> dict[str, Tensor]:
    key = hashlib.sha256(json.dumps(determined_by, sort_keys=True, allow_nan=False).encode()).hexdigest()[:32]
    path = folder / f"{kind}-{key}.safetensors"
    kept = _load(path)
    if kept is not None:
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        kept = _load(path)  # another trial may have written it meanwhile
        if kept is not None:
            return kept
        tensors = {name: tensor.cpu().contiguous() for name, tensor in make().items()}
        beside = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            save_file(tensors, beside, metadata={_DIGEST_KEY: tensors_digest(tensors)})
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        return tensors


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over name, dtype, shape and bytes of CPU tensors, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous()
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()


def _load(path: Path) -> dict[str, Tensor] | None:
    """The tensors of a file whose content matches its digest, else None."""
    with contextlib.suppress(OSError, SafetensorError), safe_open(path, framework="pt") as file:
        # Clones: a mapped file aligns its tensors only to eight bytes and can change later.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a mapping
        if (file.metadata() or {}).get(_DIGEST_KEY) == tensors_digest(tensors):
            return tensors
    return None
