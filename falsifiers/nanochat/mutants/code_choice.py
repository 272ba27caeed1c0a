"""Rules of compatibility with one known defect each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from falsifiers.nanochat.reference.code_choice import DriverRules

__all__ = ["AnyOlderCode", "ExactTarget", "LetterForgotten", "NewerPtx", "PtxFirst", "PtxForgotten"]


class ExactTarget(DriverRules):
    """The changelog's reading: without sm_121 in the list, a GB10 has only PTX."""

    def machine_code_runs(self, target: str, device: int) -> bool:
        """Ask for exactly the target."""
        return int(target.rstrip("af")) == device


class AnyOlderCode(DriverRules):
    """Machine code is taken to run on every newer GPU, as PTX does."""

    def machine_code_runs(self, target: str, device: int) -> bool:
        """Forget the major capability."""
        return int(target.rstrip("af")) <= device if not target.endswith("a") else int(target[:-1]) == device


class LetterForgotten(DriverRules):
    """Code with architecture-specific instructions is taken to run on relatives."""

    def machine_code_runs(self, target: str, device: int) -> bool:
        """Drop the letter."""
        return super().machine_code_runs(target.rstrip("af"), device)


class PtxForgotten(DriverRules):
    """Only machine code is looked at."""

    def ptx_runs(self, target: str, device: int) -> bool:
        """Ignore it."""
        return False


class NewerPtx(DriverRules):
    """PTX is taken to run on older GPUs, too."""

    def ptx_runs(self, target: str, device: int) -> bool:
        """Take any."""
        return target.isdecimal() or super().ptx_runs(target, device)


class PtxFirst(DriverRules):
    """PTX is taken to be preferred, as if it were always compiled."""

    def how(self, architectures: Sequence[str], capability: str) -> Literal["machine code", "PTX", "not at all"]:
        """Leave machine code out if there is PTX."""
        ptx = [one for one in architectures if one.startswith("compute_")]
        found = super().how(ptx, capability)
        return found if found == "PTX" else super().how(architectures, capability)
