"""Builds with one known defect each."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torch.utils.cpp_extension import BuildExtension

from falsifiers.recsys.program_paths import without
from falsifiers.recsys.reference.extension_build import TorchBuild

__all__ = ["AllInOneFile", "LastSourceLost", "NinjaHidden", "NinjaNotUsed", "OneJob", "OwnPool"]


class NinjaHidden(TorchBuild):
    """PATH has no ninja, and the build goes on without it."""

    def build(self, sources: Sequence[Path], folder: Path) -> None:
        """Hide it."""
        os.environ["PATH"] = without("ninja", folder.parent / "hidden")
        super().build(sources, folder)


class NinjaNotUsed(TorchBuild):
    """The command is asked not to use ninja."""

    def command(self) -> Any:
        """Ask."""
        return BuildExtension.with_options(use_ninja=False)


class OneJob(TorchBuild):
    """MAX_JOBS is 1."""

    def build(self, sources: Sequence[Path], folder: Path) -> None:
        """Set it."""
        os.environ["MAX_JOBS"] = "1"
        super().build(sources, folder)


class AllInOneFile(TorchBuild):
    """One file includes all sources."""

    def build(self, sources: Sequence[Path], folder: Path) -> None:
        """Write it."""
        whole = folder.parent / "whole.cpp"
        whole.write_text("".join(f'#include "{source}"\n' for source in sources))
        super().build([whole], folder)


class LastSourceLost(TorchBuild):
    """The last source is not built."""

    def build(self, sources: Sequence[Path], folder: Path) -> None:
        """Leave it out."""
        super().build(sources[:-1], folder)


class OwnPool(TorchBuild):
    """Without ninja, threads start the compilers."""

    def build(self, sources: Sequence[Path], folder: Path) -> None:
        """Compile and link by hand."""
        if shutil.which("ninja"):
            return super().build(sources, folder)
        folder.mkdir()
        objects = [folder / f"{source.stem}.o" for source in sources]
        with ThreadPoolExecutor(len(sources)) as pool:
            list(pool.map(lambda pair: _run("-fPIC", "-c", pair[0], "-o", pair[1]), zip(sources, objects, strict=True)))
        _run("-shared", *objects, "-o", folder / "many_sources.so")
        return None


def _run(*words: object) -> None:
    subprocess.run([os.environ["CXX"], *map(str, words)], check=True)
