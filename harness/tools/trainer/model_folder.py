"""Finds the files with a model's weights: one file, or those of a folder, as `save_pretrained` writes them."""

from __future__ import annotations

from pathlib import Path

from harness.base import strictjson

__all__ = ["weight_paths"]

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_NAMES = ("model.safetensors", "pytorch_model.bin", "model.pt", "model.apr", "model.gguf")
_SUFFIXES = (".safetensors", ".apr", ".pt", ".bin", ".gguf", ".npz")


def weight_paths(place: Path) -> list[Path]:
    """The files with the weights at a path: the file itself, or a folder's files in the order of their names.

    In a folder these are the parts that an index names, else the file with a usual name, else the only one with a usual
    suffix. Empty if a folder holds none of these. A path that does not exist is returned as it is.
    """
    if not place.is_dir():
        return [place]
    for name in _INDEXES:
        if (place / name).is_file():
            return _parts(place / name)
    for name in _NAMES:
        if (place / name).is_file():
            return [place / name]
    files = [path for path in place.iterdir() if path.suffix in _SUFFIXES and path.is_file()]
    return files if len(files) == 1 else []


def _parts(index: Path) -> list[Path]:
    """The parts that an index names; only names of files beside it count. Empty if it cannot be read."""
    try:
        named = strictjson.load(index)["weight_map"].values()
        return sorted({index.parent / Path(name).name for name in named})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
