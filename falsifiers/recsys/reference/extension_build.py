"""torch's BuildExtension, called without a setup.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from setuptools import Distribution, Extension
from torch.utils.cpp_extension import BuildExtension

from harness import Setting


class TorchBuild:
    """One extension module of all sources, as `python setup.py build_ext` builds it."""

    def __init__(self, setting: Setting) -> None: ...

    def build(self, sources: Sequence[Path], folder: Path) -> None:
        extension = Extension("many_sources", [str(source) for source in sources], language="c++")
        made = Distribution(
            {"name": "many_sources", "ext_modules": [extension], "cmdclass": {"build_ext": BuildExtension}}
        )
        options = made.get_option_dict("build_ext")
        options["build_lib"] = options["build_temp"] = ("the caller", str(folder))
        made.run_command("build_ext")
