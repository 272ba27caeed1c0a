"""F-BLACKWELL-ROOTCAUSE-001: the arena counts as torch's allocator does, and the ledger agrees with it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.blackwell.faults.memory import BrokenMemory, DeviceFault
from falsifiers.blackwell.measuring.device_memory import Arena
from falsifiers.blackwell.reference.attribution import Ledger, LedgerAttribution
from falsifiers.blackwell.reference.shapes import BlockShape
from falsifiers.blackwell.root_cause import _loads, block_bytes
from falsifiers.blackwell.subjects.root_cause import DeviceMemory, Load, OutOfDeviceMemory, Owner, Report
from falsifiers.blackwell.watching.memory import WatchedMemory
from harness import NotMeasured, Setting
from harness.base.vocabulary import Outcome
from harness.contract.project import Project
from tests.falsifiers.in_process import judged

_CONTRACT = Project.find(Path(__file__).parent).contract("F-BLACKWELL-ROOTCAUSE-001")
_PROFILE = _CONTRACT.profiles["reduced"]
_MIB = 2**20


def setting(tmp_path: Path, **parameters: Any) -> Setting:
    """A setting of the reduced profile."""
    return Setting({**_PROFILE.parameters, **parameters}, "cpu", 1, tmp_path, tmp_path)


@given(st.lists(st.tuples(st.sampled_from([*Owner][:4]), st.integers(1, 2_000_000))), st.lists(st.integers(1, _MIB)))
def test_the_ledger_adds_up(tensors: list[tuple[Owner, int]], modules: list[int]) -> None:
    """The ledger adds up for any requests, also if memory runs out."""
    memory = Arena(24 * _MIB)
    ledger = Ledger(memory)
    try:
        for size in modules:
            ledger.module(size)
        for owner, numbers in tensors:
            ledger.tensor(owner, numbers)
    except OutOfDeviceMemory:
        assert len(ledger.wanted) == 1
    accounts = ledger.accounts()
    assert sum(accounts.values()) == memory.used() <= 24 * _MIB
    assert min(accounts.values()) >= 0
    assert accounts[Owner.UNKNOWN] == 0


def test_small_tensors_share_a_segment() -> None:
    """Tensors of 512 bytes share 2 MiB. A tensor of 1 MiB and one byte has its own segments."""
    memory = Arena(64 * _MIB)
    held = [memory.tensor([1]) for _ in range(100)]
    assert (memory.allocated(), memory.reserved()) == (51_200, 2 * _MIB)
    held.append(memory.tensor([_MIB // 4 + 1]))
    assert (memory.allocated(), memory.reserved()) == (51_200 + _MIB + 512, 4 * _MIB)
    held.clear()
    memory.clear()
    assert memory.reserved() == 0


def test_what_nobody_holds_is_slack_and_what_somebody_holds_stays() -> None:
    """Memory without an owner is slack.

    As on a GPU, `clear` frees empty segments, and a view keeps the whole tensor.
    """
    memory = Arena(64 * _MIB)
    gone, view = memory.tensor([_MIB]), memory.tensor([2, _MIB])[0]
    del gone
    assert (memory.allocated(), memory.reserved()) == (8 * _MIB, 12 * _MIB)
    memory.clear()
    assert (memory.allocated(), memory.reserved()) == (8 * _MIB, 8 * _MIB)
    del view
    memory.clear()
    assert memory.reserved() == 0


def test_who_writes_a_tensor_is_seen() -> None:
    """A tensor starts as NaN, so a write shows. Zeros do not count, because an optimizer starts with them."""
    memory = WatchedMemory(Arena(64 * _MIB))
    tensors = [memory.tensor([3, 4]) for _ in range(4)]
    assert memory.written([3, 4]) == 0
    tensors[0].normal_()
    tensors[1].zero_()
    memory.tensor([4, 3]).normal_()
    assert memory.written([3, 4]) == 1
    tensors[2].fill_(1.0)
    del tensors[0]
    assert memory.written([3, 4]) == 1


def test_broken_memory_fails_at_the_second_tensor() -> None:
    """The error is not an out-of-memory, and memory is free."""
    memory = BrokenMemory(Arena(64 * _MIB))
    memory.tensor([1])
    with pytest.raises(DeviceFault):
        memory.tensor([1])
    assert memory.free() > 60 * _MIB


def test_the_workspace_of_the_post_mortem() -> None:
    """By the contract's own rule, the workspace has 60,129,542,144 and 234,881,024 bytes in the full profile."""
    full = _CONTRACT.profiles["full"].parameters
    assert 4 * full["heads"] * full["longest"] ** 2 == 60_129_542_144
    assert 4 * full["heads"] * full["cap"] ** 2 == 234_881_024


def test_memory_runs_out_at_the_third_block(tmp_path: Path) -> None:
    """Two blocks fit, and the workspace is blamed. With capped sequences, no owner is blamed."""
    subject = LedgerAttribution(setting(tmp_path))
    memory = Arena(180 * _MIB)
    uncapped = subject.put(Load("qwen2-tiny", 24, 2048, 0, 0), memory)
    assert (uncapped.blocks, uncapped.ran_out, uncapped.blamed) == (2, True, Owner.SCORES)
    assert uncapped.accounts[Owner.SCORES] == 2 * 4 * 4 * 2048**2
    capped = subject.put(Load("qwen2-tiny", 4, 256, 0, 0), memory)
    assert (capped.blocks, capped.ran_out, capped.blamed) == (4, False, None)


class FreesBrokenBlock(LedgerAttribution):
    """Frees the tensors of an interrupted block, but keeps them in the ledger."""

    def upload(self, shape: BlockShape, sequence: int, ledger: Ledger) -> dict[str, Tensor]:
        before = len(ledger.held)
        try:
            return super().upload(shape, sequence, ledger)
        except OutOfDeviceMemory:
            del ledger.held[before:]
            raise


class AsksForGradients(LedgerAttribution):
    """After every step, keeps tensors as large as the weights without an entry in the ledger."""

    def put(self, load: Load, memory: DeviceMemory) -> Report:
        self._memory = memory
        return super().put(load, memory)

    def step(self, shape: BlockShape, block: Any, tokens: int) -> None:
        super().step(shape, block, tokens)
        self._held.extend(self._memory.tensor(size) for size in shape.parameters().values())


class ForgetsKeptInput(LedgerAttribution):
    """Books one of the eleven kept tensors of a block as unknown."""

    def put(self, load: Load, memory: DeviceMemory) -> Report:
        report = super().put(load, memory)
        accounts = report.accounts
        forgotten = accounts[Owner.ACTIVATIONS] // 20
        activations, unknown = accounts[Owner.ACTIVATIONS] - forgotten, accounts[Owner.UNKNOWN] + forgotten
        return replace(report, accounts={**accounts, Owner.ACTIVATIONS: activations, Owner.UNKNOWN: unknown})


class AddsUpRefusals(LedgerAttribution):
    """Adds the refused requests of earlier loads."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._refused = 0

    def blame(self, accounts: Any, wanted: Any) -> Owner:
        self._refused += wanted.get(Owner.SCORES, 0)
        return super().blame(accounts, {**wanted, Owner.SCORES: self._refused})


class CountsBrokenBlock(LedgerAttribution):
    """Counts the interrupted block if there are several."""

    def put(self, load: Load, memory: DeviceMemory) -> Report:
        report = super().put(load, memory)
        return replace(report, blocks=report.blocks + (report.ran_out and report.blocks > 2))


class TellsNoNumber(LedgerAttribution):
    """Reports NaN, which must not pass the comparisons."""

    def put(self, load: Load, memory: DeviceMemory) -> Report:
        report = super().put(load, memory)
        untold: Any = math.nan
        return replace(report, accounts={**report.accounts, Owner.UNKNOWN: untold})


class ZeroesMoments(LedgerAttribution):
    """Sets everything to zeros, like AdamW's first moments, and runs no step."""

    def step(self, shape: BlockShape, block: Any, tokens: int) -> None:
        for tensor in block.values():
            torch.nn.init.zeros_(tensor)


def failed(tmp_path: Path, kind: type[LedgerAttribution]) -> set[str]:
    """The clauses that a subject of this kind fails."""
    judgment = judged(_CONTRACT, f"{__name__}:{kind.__name__}", tmp_path)
    assert not judgment.with_outcome(Outcome.NOT_MEASURED)
    return {clause.id for clause in judgment.with_outcome(Outcome.FAIL)}


@pytest.mark.parametrize(
    ("kind", "clauses"),
    [
        (LedgerAttribution, set()),
        (FreesBrokenBlock, {"accounts_off[].maximum", "accounts[]{}.minimum"}),
        (AsksForGradients, {"accounts_off[].maximum"}),
        (ForgetsKeptInput, {"accounts_off_own[].maximum"}),
        (AddsUpRefusals, {"blamed_modules.const"}),
        (CountsBrokenBlock, {"accounts_off_own[].maximum"}),
        (TellsNoNumber, {"unaccounted[].maximum"}),
        (ZeroesMoments, {"blocks_without_step[].maximum"}),
    ],
)
def test_the_verdict_follows_the_bytes(tmp_path: Path, kind: type[LedgerAttribution], clauses: set[str]) -> None:
    """The figures refute the spec's root cause, and every subject that states it."""
    found = failed(tmp_path, kind)
    assert clauses <= found
    assert clauses or not found


@pytest.mark.parametrize("name", ["always-blames-modules", "scores-as-modules", "keeps-gradients"])
def test_a_mutant_fails_its_clauses(tmp_path: Path, name: str) -> None:
    (mutant,) = (mutant for mutant in _CONTRACT.mutants if mutant.id == name)
    judgment = judged(_CONTRACT, mutant.subject, tmp_path, mutant)
    assert set(mutant.violates) <= {clause.id for clause in judgment.with_outcome(Outcome.FAIL)}


@pytest.mark.parametrize("mebibytes", [100, 1500])
def test_a_device_on_which_the_loads_do_something_else_is_no_verdict(tmp_path: Path, mebibytes: int) -> None:
    """In one case no block fits, as if other processes held the GPU.

    In the other all blocks fit, as in the reduced profile on a GPU.
    """
    with pytest.raises(NotMeasured, match="MiB"):
        judged(_CONTRACT, _CONTRACT.subject, tmp_path, arena_bytes=mebibytes * _MIB)


@pytest.mark.parametrize(("free_gib", "uncapped"), [(88.0, 1), (96.0, 1), (113.0, 1), (121.0, 1), (138.0, 2)])
def test_the_full_profile_follows_the_memory_of_the_device(free_gib: float, uncapped: int) -> None:
    """A block of the longest sequence fits beside the modules of each load, and the modules have less than half."""
    profile = _CONTRACT.profiles["full"]
    room = int(free_gib * 2**30)
    loads = _loads(profile.parameters, room)
    held = {name: load.modules * load.module_bytes for name, load in loads.items()}
    block = block_bytes(loads["uncapped"])
    assert (room - held["uncapped"]) // block == uncapped
    assert (room - held["both"]) // block >= 1
    assert held["both"] / (held["both"] + block) < 0.5
    assert held["modules"] / room >= 0.5
    assert block_bytes(loads["refused"]) > room - held["refused"]
    assert loads["uncapped"].sequence == 32768
    assert profile.requires["memory_gib"] >= 88.0


def test_a_device_on_which_the_stated_block_does_not_fit_measures_nothing() -> None:
    """The sequence is not cut for it."""
    with pytest.raises(NotMeasured, match="MiB are free"):
        _loads(_CONTRACT.profiles["full"].parameters, 80 * 2**30)
