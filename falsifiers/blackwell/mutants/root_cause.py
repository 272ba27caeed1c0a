"""Mutants of F-BLACKWELL-ROOTCAUSE-001: wrong accounts, and wrong conclusions from right ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from falsifiers.blackwell.reference.attribution import Ledger, LedgerAttribution
from falsifiers.blackwell.reference.shapes import BlockShape
from falsifiers.blackwell.subjects.root_cause import STEP_RATE, DeviceMemory, Load, OutOfDeviceMemory, Owner, Report

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
    "KeepsGradients",
    "ModulesUnseen",
    "OptimizerAsWeights",
    "PlannedNotMeasured",
    "PutsHalfTheBlocks",
    "ScoresAsActivations",
    "ScoresAsModules",
    "SlackAsModules",
    "StepsFirstBlockOnly",
    "StepsUphill",
]


class ScoresAsModules(LedgerAttribution):
    """Books the score workspace as modules: the root cause of SPEC-BLACKWELL-FIX-001, in figures."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        return _moved(super().told(ledger), Owner.SCORES, Owner.MODULES)


class ScoresAsActivations(LedgerAttribution):
    """Books the score workspace as activations."""

    @property
    def workspace_owner(self) -> Owner:
        return Owner.ACTIVATIONS


class OptimizerAsWeights(LedgerAttribution):
    """Books moments as weights after memory ran out, when both are small."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        told = super().told(ledger)
        return _moved(told, Owner.OPTIMIZER, Owner.WEIGHTS) if ledger.wanted else told


class SlackAsModules(LedgerAttribution):
    """Books slack and the score workspace as modules."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        told = _moved(super().told(ledger), Owner.SCORES, Owner.SLACK)
        return _moved(told, Owner.SLACK, Owner.MODULES)


class KeepsBrokenBlock(LedgerAttribution):
    """Holds the tensors of an interrupted block during the next load, as a stored traceback would."""

    def upload(self, shape: BlockShape, sequence: int, ledger: Ledger) -> dict[str, Tensor]:
        before = len(ledger.held)
        try:
            return super().upload(shape, sequence, ledger)
        except OutOfDeviceMemory:
            self._broken_off = ledger.held[before:]
            raise


class CountsScoresTwice(LedgerAttribution):
    """Books the workspace twice: as scores and as activations."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        told = super().told(ledger)
        return {**told, Owner.ACTIVATIONS: told[Owner.ACTIVATIONS] + told[Owner.SCORES]}


class HidesSlack(LedgerAttribution):
    """Books all reserved bytes as handed out: slack becomes weights."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        return _moved(super().told(ledger), Owner.SLACK, Owner.WEIGHTS)


class ForgetsContext(LedgerAttribution):
    """Omits context and modules: reports only what torch's allocator knows."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        return {**super().told(ledger), Owner.CONTEXT: 0, Owner.MODULES: 0}


class ModulesUnseen(LedgerAttribution):
    """Books modules as context, as code must that does not read free memory before and after a load."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        return _moved(super().told(ledger), Owner.MODULES, Owner.CONTEXT)


class HalfScores(LedgerAttribution):
    """Counts the workspace with two bytes per number, as in bfloat16."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        told = super().told(ledger)
        return {**told, Owner.SCORES: told[Owner.SCORES] // 2}


class StepsFirstBlockOnly(LedgerAttribution):
    """Puts all blocks on the device and runs only the first."""

    def upload(self, shape: BlockShape, sequence: int, ledger: Ledger) -> dict[str, Tensor]:
        self._is_first = not ledger.held
        return super().upload(shape, sequence, ledger)

    def step(self, shape: BlockShape, block: Mapping[str, Tensor], x: Tensor) -> None:
        if self._is_first:
            super().step(shape, block, x)


class StepsUphill(LedgerAttribution):
    """Adds the gradient to the weights."""

    def step(self, shape: BlockShape, block: Mapping[str, Tensor], x: Tensor) -> None:
        super().step(shape, block, x)
        for name in shape.parameters():
            block[name].add_(block[f"mean of {name}"], alpha=2 * STEP_RATE)


class KeepsGradients(LedgerAttribution):
    """Keeps a tensor as large as each weight after every step, from torch and not from the ledger's memory."""

    def step(self, shape: BlockShape, block: Mapping[str, Tensor], x: Tensor) -> None:
        super().step(shape, block, x)
        self._held.extend(block[name].clone() for name in shape.parameters())


class AnyErrorIsOutOfMemory(LedgerAttribution):
    """Takes every RuntimeError for an out-of-memory, because torch's is a RuntimeError."""

    def upload(self, shape: BlockShape, sequence: int, ledger: Ledger) -> dict[str, Tensor]:
        try:
            return super().upload(shape, sequence, ledger)
        except RuntimeError as error:
            raise OutOfDeviceMemory(str(error)) from error


class PlannedNotMeasured(LedgerAttribution):
    """Reports the refused request as if it had been granted."""

    def told(self, ledger: Ledger) -> dict[Owner, int]:
        told = super().told(ledger)
        return {owner: size + ledger.wanted.get(owner, 0) for owner, size in told.items()}


class GivesUpAtHalf(LedgerAttribution):
    """Starts no block once half of the device is in use, and reports that memory did not run out."""

    def put(self, load: Load, memory: DeviceMemory) -> Report:
        return replace(super().put(load, memory), ran_out=False)

    def upload(self, shape: BlockShape, sequence: int, ledger: Ledger) -> dict[str, Tensor]:
        memory = ledger.memory
        if memory.used() > memory.free() and ledger.held:
            ledger.wanted[Owner.SCORES] = 4 * shape.heads * sequence**2
            raise OutOfDeviceMemory("half of the device is taken")
        return super().upload(shape, sequence, ledger)


class PutsHalfTheBlocks(LedgerAttribution):
    """Puts half of the blocks on the device and reports that everything fitted."""

    def put(self, load: Load, memory: DeviceMemory) -> Report:
        return super().put(replace(load, blocks=(load.blocks + 1) // 2), memory)


class AlwaysBlamesModules(LedgerAttribution):
    """Always blames modules, as the spec does."""

    def blame(self, accounts: Mapping[Owner, int], wanted: Mapping[Owner, int]) -> Owner:
        return Owner.MODULES


class AlwaysBlamesScores(LedgerAttribution):
    """Always blames scores, as the post-mortem does."""

    def blame(self, accounts: Mapping[Owner, int], wanted: Mapping[Owner, int]) -> Owner:
        return Owner.SCORES


class BlamesOneOfTwo(LedgerAttribution):
    """Blames modules or scores, and never another owner."""

    def blame(self, accounts: Mapping[Owner, int], wanted: Mapping[Owner, int]) -> Owner:
        most = accounts[Owner.MODULES] > 0.5 * sum(accounts.values())
        return Owner.MODULES if most else Owner.SCORES


class BlamesWhatWasGranted(LedgerAttribution):
    """Blames the owner of most bytes without the refused request."""

    def blame(self, accounts: Mapping[Owner, int], wanted: Mapping[Owner, int]) -> Owner:
        return super().blame(accounts, {})


class BlamesManyModules(LedgerAttribution):
    """Blames modules as soon as they hold a fifth of the device."""

    def blame(self, accounts: Mapping[Owner, int], wanted: Mapping[Owner, int]) -> Owner:
        many = accounts[Owner.MODULES] > 0.2 * sum(accounts.values())
        return Owner.MODULES if many else super().blame(accounts, wanted)


class BlamesLastRequest(LedgerAttribution):
    """Blames the owner of the last request, as a stack trace suggests."""

    def blame(self, accounts: Mapping[Owner, int], wanted: Mapping[Owner, int]) -> Owner:
        return next(iter(wanted), Owner.UNKNOWN)


def _moved(accounts: Mapping[Owner, int], source: Owner, target: Owner) -> dict[Owner, int]:
    """The same sum, with one owner's bytes booked to another."""
    return {**accounts, target: accounts[target] + accounts[source], source: 0}
