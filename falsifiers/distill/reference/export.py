"""Writes files of tensors atomically, as safetensors or APR v2."""

import contextlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from falsifiers.distill.reference.apr_files import write_apr

_UNFINISHED = ".unfinished"
_CHECKPOINT = re.compile(r"ckpt-step-(\d{6,})\.safetensors")


def checkpoint_path(directory: Path, step: int) -> Path:
    """The path of the checkpoint after `step`. At least six digits: names sort up to step 999,999."""
    return directory / f"ckpt-step-{step:06}.safetensors"


def checkpoint_steps(directory: Path) -> list[int]:
    """The steps of the checkpoints in a directory, sorted as numbers."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sorted(int(match[1]) for path in directory.iterdir() if (match := _CHECKPOINT.fullmatch(path.name)))
    return []


def save_weights(weights: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str]) -> Path:
    """Write tensors and string metadata. After a crash, `path` holds all of it or nothing new.

    The suffix .apr stands for APR v2, any other one for safetensors.

    The directory is created if necessary. The file is written in a folder beside its place, flushed to the disk, and
    renamed; the folder is then removed, with leftovers of an earlier crash. A directory has one writer at a time.

    Raises:
        OSError: the directory cannot be created or written; nothing is left of the attempt.
    """
    unfinished = path.parent / _UNFINISHED
    unfinished.mkdir(parents=True, exist_ok=True)
    try:
        beside = unfinished / path.name
        if path.suffix == ".apr":
            write_apr(weights, beside, metadata)
        else:
            save_file({name: tensor.detach().contiguous() for name, tensor in weights.items()}, beside, dict(metadata))
        _flush(beside)
        beside.replace(path)
    except SafetensorError as error:  # safetensors raises its own error for errors of the system
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
