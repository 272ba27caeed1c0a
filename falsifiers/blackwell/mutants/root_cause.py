"""Mutants of F-BLACKWELL-ROOTCAUSE-001: ledgers that add up to something else, verdicts that do not follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from falsifiers.blackwell.reference.attribution import Ledger, LedgerAttribution
from falsifiers.blackwell.reference.shapes import BlockShape
from falsifiers.blackwell.subjects.root_cause import DeviceMemory, Load, OutOfDeviceMemory, Owner, Report

__all__ = [
    "AlwaysBlamesModules",
    "AlwaysBlamesScores",
    "AnyErrorIsOutOfMemory",
    "BlamesLastRequest",
    "BlamesManyModules",
    "BlamesOneOfTwo",
    "BlamesWhatWasGranted",
    "CountsScoresTwice",
    "ForgetsContext",
    "GivesUpAtHalf",
    "HalfScores",
    "HidesSlack",
    "KeepsBrokenBlock",
    "ModulesUnseen",
    "OptimizerAsWeights",
    "PlannedNotMeasured",
    "PutsHalfTheBlocks",
    "ScoresAsActivations",
    "ScoresAsModules",
    "SlackAsModules",
    "StepsFirstBlockOnly",
]


class ScoresAsModules(LedgerAttribution):
    """The score workspace goes on the modules' account: SPEC-BLACKWELL-FIX-001's root cause, in figures."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        return _moved(super().told(ledger), Owner.SCORES, Owner.MODULES)


class ScoresAsActivations(LedgerAttribution):
    """The score workspace goes on the activations' account, where nobody looks for a size of its own."""

    @property
    def workspace_owner(self) -> Owner:
        return Owner.ACTIVATIONS


class OptimizerAsWeights(LedgerAttribution):
    """Moments and weights are told apart by nobody once memory ran out, where both are little."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        told = super().told(ledger)
        return _moved(told, Owner.OPTIMIZER, Owner.WEIGHTS) if ledger.wanted else told


class SlackAsModules(LedgerAttribution):
    """What torch's allocator has and nobody holds is taken for kernels, and the workspace for such."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        told = _moved(super().told(ledger), Owner.SCORES, Owner.SLACK)
        return _moved(told, Owner.SLACK, Owner.MODULES)


class KeepsBrokenBlock(LedgerAttribution):
    """The tensors of a block that was broken off are held beside the next load, as by a traceback that is kept."""

    def upload(self, shape: BlockShape, sequence: int, ledger: Ledger) -> dict[str, Tensor]:
        before = len(ledger.held)
        try:
            return super().upload(shape, sequence, ledger)
        except OutOfDeviceMemory:
            self._broken_off = ledger.held[before:]
            raise


class CountsScoresTwice(LedgerAttribution):
    """The workspace is on an account of its own and on the activations'."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        told = super().told(ledger)
        return {**told, Owner.ACTIVATIONS: told[Owner.ACTIVATIONS] + told[Owner.SCORES]}


class HidesSlack(LedgerAttribution):
    """What was reserved is called handed out: there is no slack, and all of it is weights."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        return _moved(super().told(ledger), Owner.SLACK, Owner.WEIGHTS)


class ForgetsContext(LedgerAttribution):
    """Context and modules are left out: only what torch's allocator knows is told."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        return {**super().told(ledger), Owner.CONTEXT: 0, Owner.MODULES: 0}


class ModulesUnseen(LedgerAttribution):
    """Modules are told as context, as who reads no free memory before and after must."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        return _moved(super().told(ledger), Owner.MODULES, Owner.CONTEXT)


class HalfScores(LedgerAttribution):
    """The workspace is counted at two bytes a number, as if it were bfloat16."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        told = super().told(ledger)
        return {**told, Owner.SCORES: told[Owner.SCORES] // 2}


class StepsFirstBlockOnly(LedgerAttribution):
    """All blocks are put on the device, and only the first of a load is run."""

    def upload(self, shape: BlockShape, sequence: int, ledger: Ledger) -> dict[str, Tensor]:
        self._is_first = not ledger.held
        return super().upload(shape, sequence, ledger)

    def step(self, shape: BlockShape, block: Mapping[str, Tensor], tokens: int) -> None:
        if self._is_first:
            super().step(shape, block, tokens)


class AnyErrorIsOutOfMemory(LedgerAttribution):
    """Torch's out-of-memory is a RuntimeError, and so every RuntimeError is taken for one."""

    def upload(self, shape: BlockShape, sequence: int, ledger: Ledger) -> dict[str, Tensor]:
        try:
            return super().upload(shape, sequence, ledger)
        except RuntimeError as error:
            raise OutOfDeviceMemory(str(error)) from error


class PlannedNotMeasured(LedgerAttribution):
    """The refused request is told as if it had been granted."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        told = super().told(ledger)
        return {owner: size + ledger.wanted.get(owner, 0) for owner, size in told.items()}


class GivesUpAtHalf(LedgerAttribution):
    """No block is begun where half of the device is taken; somebody is blamed, and nobody says that memory ran out."""

    def put(self, load: Load, memory: DeviceMemory) -> Report:
        return replace(super().put(load, memory), ran_out=False)

    def upload(self, shape: BlockShape, sequence: int, ledger: Ledger) -> dict[str, Tensor]:
        memory = ledger.memory
        if memory.used() > memory.free() and ledger.held:
            ledger.wanted[Owner.SCORES] = 4 * shape.heads * sequence**2
            raise OutOfDeviceMemory("half of the device is taken")
        return super().upload(shape, sequence, ledger)


class PutsHalfTheBlocks(LedgerAttribution):
    """Half of the model is left out where it would fit, and everything is said to fit."""

    def put(self, load: Load, memory: DeviceMemory) -> Report:
        return super().put(replace(load, blocks=(load.blocks + 1) // 2), memory)


class AlwaysBlamesModules(LedgerAttribution):
    """The spec's conclusion, whatever the ledger says."""

    def blame(self, accounts: Mapping[Owner, int], wanted: Mapping[Owner, int]) -> Owner:
        return Owner.MODULES


class AlwaysBlamesScores(LedgerAttribution):
    """The post-mortem's conclusion, whatever the ledger says."""

    def blame(self, accounts: Mapping[Owner, int], wanted: Mapping[Owner, int]) -> Owner:
        return Owner.SCORES


class BlamesOneOfTwo(LedgerAttribution):
    """The post-mortem's conclusion where it is not the spec's: whoever else fills the device is never to blame."""

    def blame(self, accounts: Mapping[Owner, int], wanted: Mapping[Owner, int]) -> Owner:
        most = accounts[Owner.MODULES] > 0.5 * sum(accounts.values())
        return Owner.MODULES if most else Owner.SCORES


class BlamesWhatWasGranted(LedgerAttribution):
    """Who holds most is to blame; the request for which there was no room is no part of it."""

    def blame(self, accounts: Mapping[Owner, int], wanted: Mapping[Owner, int]) -> Owner:
        return super().blame(accounts, {})


class BlamesManyModules(LedgerAttribution):
    """Modules are to blame as soon as they take a fifth of the device."""

    def blame(self, accounts: Mapping[Owner, int], wanted: Mapping[Owner, int]) -> Owner:
        many = accounts[Owner.MODULES] > 0.2 * sum(accounts.values())
        return Owner.MODULES if many else super().blame(accounts, wanted)


class BlamesLastRequest(LedgerAttribution):
    """Who asked last is to blame, as a stack trace suggests."""

    def blame(self, accounts: Mapping[Owner, int], wanted: Mapping[Owner, int]) -> Owner:
        return next(iter(wanted), Owner.UNKNOWN)


def _moved(accounts: Mapping[Owner, int], source: Owner, target: Owner) -> dict[Owner, int]:
    """The same sum, with one owner's bytes on another's account."""
    return {**accounts, target: accounts[target] + accounts[source], source: 0}
