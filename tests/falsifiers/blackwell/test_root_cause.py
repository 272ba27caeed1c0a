"""F-BLACKWELL-ROOTCAUSE-001: the arena counts as torch's allocator does, and the ledger adds up to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.blackwell.device_memory import Arena, OutOfDeviceMemory
from falsifiers.blackwell.mutants.attributing import AlwaysBlamesModules, ScoresAsModules
from falsifiers.blackwell.ownership import Load, Owner
from falsifiers.blackwell.reference.attribution import Ledger, LedgerAttribution
from falsifiers.blackwell.root_cause import falsify
from harness import Setting, Trial
from harness.judge import judge
from harness.observation import Observation
from harness.project import Project
from harness.verdict import Outcome

_CONTRACT = Project.find(Path(__file__).parent).contract("F-BLACKWELL-ROOTCAUSE-001")
_PROFILE = _CONTRACT.profiles["reduced"]
_MIB = 2**20


def setting(tmp_path: Path, **parameters: Any) -> Setting:
    """Of the reduced profile."""
    return Setting({**_PROFILE.parameters, **parameters}, "cpu", 1, tmp_path, tmp_path)


@given(st.lists(st.tuples(st.sampled_from([*Owner][:4]), st.integers(1, 2_000_000))), st.lists(st.integers(1, _MIB)))
def test_the_ledger_adds_up(tensors: list[tuple[Owner, int]], modules: list[int]) -> None:
    """Whatever is asked for, and whether or not memory runs out on the way."""
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
    """512 bytes each, and 2 MiB for all of them; 1 MiB and a byte has segments of its own."""
    memory = Arena(64 * _MIB)
    for _ in range(100):
        memory.tensor([1])
    assert (memory.allocated(), memory.reserved()) == (51_200, 2 * _MIB)
    memory.tensor([_MIB // 4 + 1])
    assert (memory.allocated(), memory.reserved()) == (51_200 + _MIB + 512, 4 * _MIB)
    memory.clear()
    assert memory.reserved() == 0


def test_the_workspace_of_the_post_mortem() -> None:
    """By the contract's own rule: 60,129,542,144 and 234,881,024 bytes in the full profile."""
    full = _CONTRACT.profiles["full"].parameters
    assert 4 * full["heads"] * full["longest"] ** 2 == 60_129_542_144
    assert 4 * full["heads"] * full["cap"] ** 2 == 234_881_024


def test_memory_runs_out_at_the_third_block(tmp_path: Path) -> None:
    """Two blocks fit, and the workspace is blamed; with capped sequences nobody is."""
    subject = LedgerAttribution(setting(tmp_path))
    memory = Arena(180 * _MIB)
    uncapped = subject.put(Load("qwen2-tiny", 24, 2048, 0, 0), memory)
    assert (uncapped.blocks, uncapped.ran_out, uncapped.blamed) == (2, True, Owner.SCORES)
    assert uncapped.accounts[Owner.SCORES] == 2 * 4 * 4 * 2048**2
    capped = subject.put(Load("qwen2-tiny", 4, 256, 0, 0), memory)
    assert (capped.blocks, capped.ran_out, capped.blamed) == (4, False, None)


def failed(tmp_path: Path, kind: type[LedgerAttribution]) -> list[str]:
    """The clauses that a subject of this kind fails."""
    measured: dict[str, Any] = {}
    resolved: dict[str, Any] = {}

    def hear(message: dict[str, Any]) -> None:
        if message["kind"] in ("measure", "resolve"):
            (measured if message["kind"] == "measure" else resolved).update(message["values"])

    given_setting = setting(tmp_path)
    declared = frozenset(_CONTRACT.observation["properties"])
    trial: Trial[Any] = Trial(given_setting, tmp_path, declared, hear)
    trial.build(kind)
    falsify(trial)
    observation = Observation(
        subject=_CONTRACT.subject,
        profile="reduced",
        parameters=given_setting.parameters,
        device={"type": "cpu"},
        measurements=measured,
        resolved=resolved,
    )
    judgment = judge(_CONTRACT, observation)
    assert not judgment.with_outcome(Outcome.NOT_MEASURED)
    return [clause.id for clause in judgment.with_outcome(Outcome.FAIL)]


@pytest.mark.parametrize(
    ("kind", "clauses"),
    [
        (LedgerAttribution, set()),
        (AlwaysBlamesModules, {"blamed_uncapped.const", "blamed_both.const"}),
        (ScoresAsModules, {"modules-are-not-the-cause", "workspace-uncapped", "accounts_off[].maximum"}),
    ],
)
def test_the_verdict_follows_the_bytes(tmp_path: Path, kind: type[LedgerAttribution], clauses: set[str]) -> None:
    """The spec's root cause is refuted by the figures, and so is who repeats it against them."""
    assert clauses <= set(failed(tmp_path, kind))
    assert clauses or not failed(tmp_path, kind)
