"""Rules about ptxas, and settings for Triton, with one known defect each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from falsifiers.nanochat.reference.ptxas import NvidiaAssembler, TritonVariables

__all__ = [
    "AnyTwelve", "ByName", "ChangelogVariable", "FileNamedWrongly", "InvertedVersions", "KeptForGood", "MessageLost",
    "MistypedName", "NeighbourTarget", "OnlyThirteen", "PathInFront", "StatusIgnored", "SuffixDropped",
]  # fmt: skip


class InvertedVersions(NvidiaAssembler):
    """Old programs are said to know the target, and new ones not."""

    def accepts(self, version: str, target: str) -> bool:
        """Say the opposite of a new target."""
        right = super().accepts(version, target)
        return not right if "121" in target else right


class OnlyThirteen(NvidiaAssembler):
    """The changelog's rule: 13.0 or newer. 12.9 knows the target too."""

    def accepts(self, version: str, target: str) -> bool:
        """Refuse every release before 13."""
        return super().accepts(version, target) and not ("121" in target and "release 12." in version)


class AnyTwelve(NvidiaAssembler):
    """Every release since 12.8 is trusted with every Blackwell."""

    def accepts(self, version: str, target: str) -> bool:
        """Take 12.8 for new enough."""
        return super().accepts(version.replace("release 12.8", "release 12.9"), target)


class SuffixDropped(NvidiaAssembler):
    """sm_80a is taken for sm_80."""

    def accepts(self, version: str, target: str) -> bool:
        """Forget the letter."""
        return super().accepts(version, target.rstrip("af"))


class StatusIgnored(NvidiaAssembler):
    """The exit status is not looked at, and an image of another target stands in."""

    def assemble(self, ptxas: Path, ptx: Path, target: str, image: Path) -> tuple[int, str]:
        """Fall back to sm_90, and report success."""
        status, told = super().assemble(ptxas, ptx, target, image)
        if status:
            super().assemble(ptxas, ptx, "sm_90", image)
        return 0, told


class NeighbourTarget(NvidiaAssembler):
    """What is compiled for sm_120 is given out as sm_121a."""

    def assemble(self, ptxas: Path, ptx: Path, target: str, image: Path) -> tuple[int, str]:
        """Take the neighbour."""
        return super().assemble(ptxas, ptx, target.replace("sm_121a", "sm_120"), image)


class MessageLost(NvidiaAssembler):
    """What ptxas says is thrown away."""

    def assemble(self, ptxas: Path, ptx: Path, target: str, image: Path) -> tuple[int, str]:
        """Keep the status only."""
        return super().assemble(ptxas, ptx, target, image)[0], ""


class ChangelogVariable(TritonVariables):
    """The one variable that the changelog names. Since Triton 3.6 it does not reach sm_121a."""

    def variables(self, ptxas: Path) -> Mapping[str, str]:
        """Set it alone."""
        return {"TRITON_PTXAS_PATH": str(ptxas)}


class PathInFront(TritonVariables):
    """The program is put in front of PATH, where Triton does not look."""

    def variables(self, ptxas: Path) -> Mapping[str, str]:
        """Extend PATH."""
        return {"PATH": f"{ptxas.parent}{os.pathsep}{os.environ.get('PATH', '')}"}


class MistypedName(TritonVariables):
    """The name of the variable is wrong by a word."""

    def variables(self, ptxas: Path) -> Mapping[str, str]:
        """Leave _PATH out."""
        return {name.removesuffix("_PATH"): value for name, value in super().variables(ptxas).items()}


class FileNamedWrongly(TritonVariables):
    """A file is named that is not there; Triton falls back to its own without a word."""

    def variables(self, ptxas: Path) -> Mapping[str, str]:
        """Name another file."""
        return super().variables(ptxas.with_name("ptxas-13"))


class ByName(TritonVariables):
    """A script is named that looks for ptxas on PATH."""

    def variables(self, ptxas: Path) -> Mapping[str, str]:
        """Write the script."""
        script = ptxas.with_name("by-name")
        script.write_text('#!/bin/sh\nexec ptxas "$@"\n')
        script.chmod(0o755)
        return super().variables(script)


class KeptForGood(TritonVariables):
    """The variables are set in the process for good."""

    def variables(self, ptxas: Path) -> Mapping[str, str]:
        """Set them."""
        os.environ.update(super().variables(ptxas))
        return super().variables(ptxas)
