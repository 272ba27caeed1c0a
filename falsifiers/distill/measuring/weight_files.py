"""How a subject's weight files are named and read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError, safe_open
from torch import Tensor


class Unreadable(ValueError):
    """A file that cannot be parsed to its end; the text says why."""


class WeightFiles(Protocol):
    """How a subject's weight files are named and read.

    Attributes:
        in_memory: True; hidden if the shown weights come from such files and not from memory.
        no_metadata: replaces the metadata of a file that has none.
    """

    in_memory: bool
    no_metadata: Mapping[str, str]

    def read_export(self, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The tensors of an export, on the CPU, and its metadata. Raises OSError or Unreadable."""
        ...

    def read_checkpoint(self, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The tensors of a checkpoint, on the CPU, and its metadata. Raises OSError or Unreadable."""
        ...

    def name(self, step: int) -> str:
        """The name of the checkpoint of a step."""
        ...

    def checkpoints(self, directory: Path) -> dict[Path, str]:
        """The files with a checkpoint's name, complete or not, with that name."""
        ...


class OwnFiles:
    """Safetensors or APR v2, with the names that claims prescribe for a trainer in this process. See `WeightFiles`."""

    in_memory = True
    no_metadata: Mapping[str, str] = {}

    def read_export(self, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        if path.suffix != ".apr":
            return read_safetensors(path)
        from falsifiers.distill.measuring.weight_formats import read_weights  # which needs this module

        with path.open("rb") as file:
            if file.read(4) != b"APR\0":
                raise Unreadable(f"{path} is no APR v2 file")

        return read_weights(path)

    def read_checkpoint(self, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        return self.read_export(path)

    def name(self, step: int) -> str:
        return f"ckpt-step-{step:06}"

    def checkpoints(self, directory: Path) -> dict[Path, str]:
        return {path: path.stem for path in directory.iterdir() if "ckpt" in path.name} if directory.is_dir() else {}


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a safetensors file, cloned out of the mapping, and its metadata.

    Raises:
        OSError, Unreadable: it cannot be read, or does not parse to its end.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name).clone() for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError as error:
        raise Unreadable(str(error)) from error


def weight_files(subject: Any) -> WeightFiles:
    """How the files of a subject are named and read: as it says itself if it is a trainer in another process."""
    files: WeightFiles = getattr(subject, "weight_files", None) or OwnFiles()
    return files
