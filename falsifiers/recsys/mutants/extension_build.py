"""A build whose defect is too large for a patch."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from falsifiers.recsys.reference.extension_build import TorchBuild


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
