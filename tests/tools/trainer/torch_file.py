"""Writes and reads the files of torch.save without torch, as far as train_bigrams.py needs it."""

from __future__ import annotations

import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

_REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
_HOOKS = b"ccollections\nOrderedDict\n)R"


def save(value: Any, path: Path) -> None:
    """Write nested dictionaries of texts, whole numbers and float32 arrays."""
    storages: list[bytes] = []
    pickled = b"\x80\x02" + _pickled(value, storages) + b"."
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{path.stem}/data.pkl", pickled)
        file.writestr(f"{path.stem}/byteorder", "little")
        for key, storage in enumerate(storages):
            file.writestr(f"{path.stem}/data/{key}", storage)
        file.writestr(f"{path.stem}/version", "3\n")


def load(path: Path) -> dict[str, np.ndarray]:
    """Read a dictionary of float32 arrays that `save` wrote."""
    with zipfile.ZipFile(path) as file:
        return _Unpickler(file, path.stem).load()


def _pickled(value: Any, storages: list[bytes]) -> bytes:
    """The opcodes of protocol 2 that make a value."""
    if isinstance(value, str):
        return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, tuple):
        return b"(" + b"".join(_pickled(item, storages) for item in value) + b"t"
    if isinstance(value, dict):
        pairs = (_pickled(key, storages) + _pickled(item, storages) for key, item in value.items())
        return b"}(" + b"".join(pairs) + b"u"
    kind = b"ctorch\nFloatStorage\n"
    strides = tuple(stride // value.itemsize for stride in value.strides)
    key, size = _pickled(str(len(storages)), storages), _pickled(value.size, storages)
    storages.append(value.astype("<f4").tobytes())
    storage = b"(" + _pickled("storage", storages) + kind + key + _pickled("cpu", storages) + size + b"tQ"
    shape = _pickled(0, storages) + _pickled(value.shape, storages) + _pickled(strides, storages)
    return _REBUILD + b"(" + storage + shape + b"\x89" + _HOOKS + b"tR"


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: zipfile.ZipFile, stem: str) -> None:
        super().__init__(file.open(f"{stem}/data.pkl"))
        self._file, self._stem = file, stem

    def find_class(self, module: str, name: str) -> Any:
        found = {"FloatStorage": None, "OrderedDict": dict, "_rebuild_tensor_v2": _rebuilt}
        return found[name]

    def persistent_load(self, pid: Any) -> np.ndarray:
        return np.frombuffer(self._file.read(f"{self._stem}/data/{pid[2]}"), "<f4")


def _rebuilt(storage: np.ndarray, offset: int, shape: tuple[int, ...], *_: Any) -> np.ndarray:
    return storage[offset:].reshape(shape).copy()
