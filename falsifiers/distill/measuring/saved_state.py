"""Reads a checkpoint, which is one file or a folder of files, such as a Trainer's `checkpoint-20`."""

import contextlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

from falsifiers.distill.measuring import metadata
from falsifiers.distill.measuring.weight_comparison import is_readable, metadata_of, same_tensor, unlike_tensors
from falsifiers.distill.measuring.weight_files import Unreadable, WeightFiles

_ZIPS = frozenset({".pt", ".pth", ".bin"})
_STATE = "trainer_state.json"


def saved(files: WeightFiles, directory: Path, steps: int) -> dict[int, Path]:
    """The checkpoints of a run with this many steps, by step in order; empty if there is no directory."""
    called = {name: path for path, name in files.checkpoints(directory).items()} if directory.is_dir() else {}
    names = {step: files.name(step) for step in range(1, steps + 1)}
    return {step: called[name] for step, name in names.items() if name in called}


def is_whole(path: Path, like: Path | None = None) -> bool:
    """Whether each file can be read to its end.

    Args:
        like: another checkpoint. If it is a folder, the files that it has must be there.
    """
    files = list(_files(path))
    if path.is_dir():
        names = {file.relative_to(path) for file in files}
        if not names or (like is not None and {file.relative_to(like) for file in _files(like)} - names):
            return False
    return all(map(_is_readable, files))


def largest_file(path: Path) -> int:
    """The size of the largest file of a checkpoint in bytes."""
    return max((file.stat().st_size for file in _files(path)), default=0)


def is_misnumbered(path: Path, step: int) -> bool:
    """Whether a checkpoint contains another step number."""
    says = [metadata_of(file) for file in _files(path) if file.suffix == ".safetensors"]
    with contextlib.suppress(OSError, ValueError, KeyError):
        says.append({"step": str(json.loads((path / _STATE).read_text())["global_step"])})
    return any(metadata.untrue_step(text, step) for text in says)


def unlike(files: WeightFiles, first: Path, second: Path) -> list[str]:
    """The names of the tensors that two checkpoints do not both hold with the same dtype, shape and bits."""
    if not (first.is_dir() or second.is_dir()):
        return unlike_tensors(first, second)
    try:
        (first_tensors, _), (second_tensors, _) = files.read_checkpoint(first), files.read_checkpoint(second)
    except (OSError, Unreadable) as error:
        return [f"{first.name}: {error}"]
    return sorted(first_tensors.keys() ^ second_tensors.keys()) + [
        name
        for name in sorted(first_tensors.keys() & second_tensors.keys())
        if not same_tensor(first_tensors[name], second_tensors[name])
    ]


def _files(path: Path) -> Iterator[Path]:
    return (file for file in sorted(path.rglob("*")) if file.is_file()) if path.is_dir() else iter([path])


def _is_readable(file: Path) -> bool:
    if file.suffix == ".safetensors":
        return is_readable(file)
    with contextlib.suppress(OSError, ValueError, zipfile.BadZipFile):
        if file.suffix in _ZIPS:
            with zipfile.ZipFile(file) as archive:
                return archive.testzip() is None
        if file.suffix == ".json":
            json.loads(file.read_bytes())
        return True
    return False
