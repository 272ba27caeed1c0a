"""torch's BuildExtension, called without a setup.py."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from setuptools import Distribution, Extension
from torch.utils import cpp_extension
from torch.utils.cpp_extension import BuildExtension

from harness import Setting


class TorchBuild:
    """One extension module of all sources, as `python setup.py build_ext` builds it."""

    def __init__(self, setting: Setting) -> None: ...

    def build(self, sources: Sequence[Path], folder: Path) -> None:
        further = _of_cuda() if any(source.suffix == ".cu" for source in sources) else {}
        extension = Extension("many_sources", [str(source) for source in sources], language="c++", **further)
        distribution = Distribution(
            {"name": "many_sources", "ext_modules": [extension], "cmdclass": {"build_ext": BuildExtension}}
        )
        options = distribution.get_option_dict("build_ext")
        options["build_lib"] = options["build_temp"] = ("the caller", str(folder))
        distribution.run_command("build_ext")


def _of_cuda() -> dict[str, Any]:
    """Return what a build of CUDA links. torch looks for the compiler when it is imported, if it has CUDA itself."""
    home = cpp_extension._find_cuda_home()
    if home is None:
        raise FileNotFoundError("no CUDA toolkit is installed")
    cpp_extension.CUDA_HOME = home
    return {"libraries": ["cudart_static", "rt", "dl", "pthread"], "library_dirs": [str(Path(home) / "lib64")]}
