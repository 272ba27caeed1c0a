"""F-ALLOC-UNIFIED-001: known devices by name, and the falsifier with wrong rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from falsifiers.blackwell.subjects.alloc_unified import Allocator, Device
from harness import Setting
from harness.contract.entry_point import resolve
from harness.contract.project import Project
from harness.execution.worker_trial import WorkerTrial
from tests.falsifiers.planted import planted

_B200 = Device(True, False, (10, 0))
_GB10 = Device(True, True, (12, 1))
_ORIN = Device(True, True, (8, 7))
_H200 = Device(True, False, (9, 0))


_CONTRACT = Project.find(Path(__file__).parent).contract("F-ALLOC-UNIFIED-001")
_MUTANTS = {mutant.id: mutant for mutant in _CONTRACT.mutants}


def rule(tmp_path: Path) -> Any:
    """The contract's subject, on the CPU."""
    return resolve(_CONTRACT.subject)(Setting({"allocation_bytes": 2**20}, "cpu", 0, tmp_path, tmp_path))


@pytest.mark.parametrize(
    ("device", "chosen"),
    [
        (_B200, "plain"),
        (_H200, "plain"),
        (_GB10, "managed"),
        (_ORIN, "managed"),
        (Device(False, True, (5, 3)), "plain"),
    ],
)
def test_devices_by_name(tmp_path: Path, device: Device, chosen: str) -> None:
    """`auto` equals no override; 0 and 1 decide for every device."""
    subject = rule(tmp_path)
    assert subject.choose(device, None) is subject.choose(device, "auto") is Allocator(chosen)
    assert subject.choose(device, "0") is Allocator.PLAIN
    if device.unified_addressing:
        assert subject.choose(device, "1") is Allocator.MANAGED


@pytest.mark.parametrize(("device", "override"), [(_GB10, "yes"), (_GB10, ""), (Device(False, False, (9, 0)), "1")])
def test_what_cannot_be_meant_is_refused(tmp_path: Path, device: Device, override: str) -> None:
    """A value without a meaning is refused, and the message has a valid value."""
    with pytest.raises(ValueError, match="auto"):
        rule(tmp_path).choose(device, override)


def test_the_first_rule_moves_a_b200(tmp_path: Path) -> None:
    """The rule cc >= 100 is wrong for a B200. This defect led to the claim."""
    with planted(_MUTANTS["by-capability"]):
        subject = rule(tmp_path)
        assert [subject.choose(device, None).value for device in (_B200, _ORIN)] == ["managed", "plain"]


def measured(tmp_path: Path, mutant: str | None = None, size: int = 2**26) -> dict[str, Any]:
    """The measurements of a trial of the reference, or of this mutant."""
    found: dict[str, Any] = {}
    names = (
        "rows wrong wrong_rows moved_by_capability allocated_bytes places_lost allocator_used allocator_right"
        " described_as_driver sizes wrong_sizes"
    )
    setting = Setting({"allocation_bytes": size}, "cpu", 0, tmp_path, tmp_path)
    run = WorkerTrial(
        setting, tmp_path, frozenset(names.split()), lambda message: found.update(getattr(message, "values", {}))
    )
    with planted(_MUTANTS[mutant] if mutant else None):
        run.run(resolve(_CONTRACT.falsifier), resolve(_CONTRACT.subject))
    return found


def test_every_row_is_asked_and_memory_written_to(tmp_path: Path) -> None:
    """1,176 rows are asked, and none is wrong."""
    found = measured(tmp_path)
    assert (found["rows"], found["wrong"], found["places_lost"]) == (1176, [], 0)
    assert found["allocated_bytes"] == 2**26
    assert (found["sizes"], found["wrong_sizes"]) == (19, [])


def test_wrong_rows_name_device_answer_and_expectation(tmp_path: Path) -> None:
    """Each wrong row has the device, the answer and the right answer."""
    found = measured(tmp_path, "by-capability")
    assert found["moved_by_capability"] > 0
    assert any("(10, 0)" in row and "managed" in row and "plain" in row for row in found["wrong"])


@pytest.mark.parametrize("size", [2**24 + 4099, 2**24 + 4100, 2**24 + 4101])
def test_no_place_is_lost_at_any_size(tmp_path: Path, size: int) -> None:
    """The last byte may coincide with the next place."""
    assert measured(tmp_path, size=size)["places_lost"] == 0


def test_words_are_refused_though_switches_often_know_them(tmp_path: Path) -> None:
    """A rule that accepts "true" and "on" gets wrong rows for them."""
    assert any("MANAGED_MEMORY=on:" in row for row in measured(tmp_path, "reads-words")["wrong"])


def test_the_mutant_against_the_rule_takes_plain_memory_where_managed_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant does not always choose managed memory, because the rule chooses it on the claim's target."""
    with planted(_MUTANTS["against-the-rule"]):
        subject = rule(tmp_path)
        monkeypatch.setattr(subject, "device", lambda: _GB10)
        assert len(subject.allocate(2**20)) == 2**20  # on the CPU, which has no managed memory
