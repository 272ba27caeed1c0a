"""Writes and reads tensors as APR v2 files, with this project's writer and reader."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from falsifiers.apr.reference.format import Reference
from falsifiers.apr.subject import AprFile, Rejected, TensorRecord

_DTYPES = {
    torch.float32: 0, torch.float16: 1, torch.float64: 3, torch.int32: 4, torch.int64: 5,
    torch.int8: 6, torch.uint8: 7, torch.bfloat16: 30,
}  # fmt: skip
"""The format's numbers."""
_FORMAT = Reference(None)  # type: ignore[arg-type]  # it ignores the setting
_BY_NUMBER = {number: dtype for dtype, number in _DTYPES.items()}


def write_apr(weights: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str]) -> None:
    """Write tensors and metadata into one file.

    Raises:
        OSError: it cannot be written.
        ValueError: the format has no room for them.
    """
    tensors = [
        TensorRecord(name, _DTYPES[weight.dtype], tuple(weight.shape), _bytes(weight))
        for name, weight in weights.items()
    ]
    path.write_bytes(_FORMAT.write(AprFile(tensors, metadata)))


def read_apr(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a file in host memory, and its metadata.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no undamaged APR v2 file, or has tensors of another kind.
    """
    try:
        file = _FORMAT.read(path.read_bytes())
    except Rejected as error:
        raise ValueError(f"{path}: {error}") from error
    if unknown := sorted(tensor.name for tensor in file.tensors if tensor.dtype not in _BY_NUMBER):
        raise ValueError(f"{path}: quantized tensors are no weights to train: {unknown}")
    tensors = {tensor.name: _tensor(tensor) for tensor in file.tensors}
    return tensors, {key: str(value) for key, value in file.metadata.items()}


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _tensor(record: TensorRecord) -> Tensor:
    flat = torch.frombuffer(bytearray(record.data), dtype=torch.uint8).view(_BY_NUMBER[record.dtype])
    return flat.reshape(record.shape)
