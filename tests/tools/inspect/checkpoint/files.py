"""Checkpoints to inspect, written by each format's own library where it has one."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import safetensors.numpy
import torch

from falsifiers.apr.reference import Reference
from falsifiers.apr.subject import AprFile, TensorRecord
from harness import Setting

__all__ = ["FORMATS", "apr", "gguf_bytes", "npz", "safetensors_bytes", "torch_zip", "with_apr_header", "zero_tensors"]

Arrays = Mapping[str, np.ndarray[Any, Any]]

APR_NUMBERS = {"float32": 0, "float16": 1, "float64": 3, "int32": 4, "int64": 5, "int8": 6, "uint8": 7, "bfloat16": 30}
SETTING = Setting(parameters={}, device="cpu", seed=0, workspace=Path("/nowhere"), cache=Path("/nowhere"))


def safetensors_bytes(arrays: Arrays) -> bytes:
    """Written by the package safetensors."""
    return safetensors.numpy.save(
        {name: np.ascontiguousarray(array) for name, array in arrays.items()}, {"format": "np"}
    )


def torch_zip(arrays: Arrays) -> bytes:
    """Written by torch.save, as a state_dict inside a dict with a step count."""
    file = io.BytesIO()
    torch.save({"model": {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, "step": 7}, file)
    return file.getvalue()


def gguf_bytes(arrays: Arrays, folder: Path) -> bytes:
    """Written by the package gguf."""
    path = folder / "written.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_array("tokenizer.ggml.tokens", [f"token {number}" for number in range(40)])
    writer.add_array("some.numbers", [1, 2, 3])
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def apr(arrays: Arrays, metadata: Mapping[str, Any] | None = None) -> bytes:
    """Written by the reference subject of the APR claims, which shares no code with the inspector."""
    records = [
        TensorRecord(name, APR_NUMBERS[array.dtype.name], array.shape, array.tobytes())
        for name, array in arrays.items()
    ]
    return Reference(SETTING).write(AprFile(records, metadata if metadata is not None else {"model_type": "test"}))


def with_apr_header(data: bytes, at: int, value: bytes) -> bytes:
    """The file with other bytes in its header, and both checksums corrected."""
    changed = bytearray(data)
    changed[at : at + len(value)] = value
    changed[40:44] = struct.pack("<I", zlib.crc32(bytes(changed[:40] + changed[44:64])))
    changed[-4:] = struct.pack("<I", zlib.crc32(bytes(changed[:-4])))
    return bytes(changed)


def zero_tensors() -> bytes:
    """The file of 200 bytes that was once published as a model: metadata and no tensor."""
    said = {
        "teacher_model": "",
        "temperature": "4",
        "alpha": "0.3",
        "epoch": "0",
        "step": "50000",
        "final_loss": "3.58",
    }
    spare = 192 - len(json.dumps({"__metadata__": said}, separators=(",", ":")))
    said["teacher_model"] = "x" * spare
    header = json.dumps({"__metadata__": said}, separators=(",", ":")).encode()
    return struct.pack("<Q", len(header)) + header


def npz(arrays: Arrays) -> bytes:
    """Written by NumPy, whose savez gives "file" a meaning of its own."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=True, **{name: array for name, array in arrays.items() if name != "file"})
    return file.getvalue()


FORMATS = {
    "safetensors": lambda arrays, _folder: safetensors_bytes(arrays),
    "PyTorch zip": lambda arrays, _folder: torch_zip(arrays),
    "GGUF": gguf_bytes,
    "APR v2": lambda arrays, _folder: apr(arrays),
    "NumPy npz": lambda arrays, _folder: npz(arrays),
}
"""The writers of the formats, by the names that the inspector gives the formats."""
