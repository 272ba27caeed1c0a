"""What the claims about launching, building and counting need from a subject."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class BatchFile(Protocol):
    """A file for Slurm's sbatch; built as `Subject(setting)`."""

    def text(self) -> str:
        """Return the file as sbatch would read it."""
        ...


class ImportOrder(Protocol):
    """A program that imports a module of an import cycle; built as `Subject(setting)`."""

    def program(self, first: str, wanted: str) -> str:
        """Return Python source that imports `first`, then `wanted`: alone, `wanted` cannot be imported."""
        ...


class ExtensionBuild(Protocol):
    """A build of one extension module from several sources; built as `Subject(setting)`."""

    def build(self, sources: Sequence[Path], folder: Path) -> None:
        """Build into the folder, with the compilers that CC and CXX name and with the programs on PATH."""
        ...


class Suite(Protocol):
    """Tests for pytest; built as `Subject(setting)`."""

    def folder(self) -> Path:
        """Return the folder with the test files."""
        ...
