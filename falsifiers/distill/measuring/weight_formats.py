"""Reads weights from a file of any format that trainers write. It trusts nothing in the file and runs no code of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from falsifiers.distill.measuring.weight_files import Unreadable
from harness.tools.inspect.checkpoint import Refused, formats
from harness.tools.inspect.checkpoint.bounded_file import opened
from harness.tools.inspect.checkpoint.scan import numbers, refuse_endless_views
from harness.tools.trainer.model_folder import weight_paths

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""By safetensors' names; tensors of other quantised types are decoded to float32."""


def read_weights(path: Path, prefix: str = "") -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors, APR v2, PyTorch zip, npz or GGUF file by name, on the CPU, and its metadata.

    Args:
        path: the file, or the folder of a model.
        prefix: the prefix of the weights' names, which is removed; tensors with other names are left out.

    Raises:
        Unreadable: it is no complete file of these formats, or holds a tensor that cannot be decoded.
    """
    paths = weight_paths(path)
    if not paths:
        raise Unreadable(f"{path} holds no file with weights: no model.safetensors, pytorch_model.bin or model.apr")
    tensors: dict[str, Tensor] = {}
    metadata: dict[str, str] = {}
    for part in paths:
        weights, stated = _read(part, prefix)
        tensors |= weights
        metadata |= stated
    return tensors, metadata


def _read(path: Path, prefix: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of one file."""
    try:
        with opened(path) as source:
            contents = formats.read(source)
            refuse_endless_views(source, list(contents.entries))
            tensors = {
                entry.name.removeprefix(prefix): _tensor(source, entry)
                for entry in contents.entries
                if entry.name.startswith(prefix)
            }
            return tensors, _texts(contents.metadata)
    except Refused as error:
        raise Unreadable(str(error)) from error


def _tensor(source: Any, entry: Any) -> Tensor:
    if entry.dtype.decode is None or entry.held != entry.elements:
        raise Unreadable(f"{entry.name} of dtype {entry.dtype.name} cannot be decoded")
    pieces = [np.array(piece) for piece in numbers(source, entry)]
    flat = torch.from_numpy(np.concatenate(pieces)) if pieces else torch.empty(0)
    return flat.to(_DTYPES.get(entry.dtype.name, torch.float32)).reshape(entry.shape)


def _texts(metadata: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): value if isinstance(value, str) else str(value) for key, value in metadata.items()}
