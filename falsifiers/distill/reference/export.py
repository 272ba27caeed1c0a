"""How the reference writes files of tensors: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["checkpoint_path", "checkpoint_steps", "save_weights"]

_UNFINISHED = ".unfinished"
_CHECKPOINT = re.compile(r"ckpt-step-(\d{6,})\.safetensors")


def checkpoint_path(directory: Path, step: int) -> Path:
    """Where the checkpoint after `step` belongs; at least six digits, so that names sort up to step 999,999."""
    return directory / f"ckpt-step-{step:06}.safetensors"


def checkpoint_steps(directory: Path) -> list[int]:
    """The steps of the checkpoints in a directory, ordered as numbers: names no longer sort from step 1,000,000 on."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sorted(int(match[1]) for path in directory.iterdir() if (match := _CHECKPOINT.fullmatch(path.name)))
    return []


def save_weights(weights: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str]) -> Path:
    """Write tensors and string metadata as safetensors, so that a crash leaves under `path` all of it or nothing new.

    The directory is made first. The file is written in a folder beside its place, flushed to the disk, and renamed;
    the folder is then removed, with what an earlier crash may have left in it. One writer a directory at a time.

    Raises:
        OSError: the directory cannot be made or written; nothing is left of the attempt.
    """
    unfinished = path.parent / _UNFINISHED
    unfinished.mkdir(parents=True, exist_ok=True)
    try:
        beside = unfinished / path.name
        save_file({name: tensor.detach().contiguous() for name, tensor in weights.items()}, beside, dict(metadata))
        _flush(beside)
        beside.replace(path)
    except SafetensorError as error:  # safetensors tells the system's errors as its own
        raise OSError(f"{path} cannot be written: {error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    _flush(path.parent)  # the new name, too, must survive a loss of power
    return path


def _flush(path: Path) -> None:
    """Wait until a file's content, or a directory's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
