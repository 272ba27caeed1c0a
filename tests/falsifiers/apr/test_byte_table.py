"""The byte table agrees with the reference and the inspector, which share no code with it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from falsifiers.apr.byte_table import Layout, Malformed, build, departures, reseal
from falsifiers.apr.crc import REGIONS, damaged
from falsifiers.apr.reference import Reference
from falsifiers.apr.subject import AprFile, Rejected, TensorRecord
from falsifiers.apr.tensor_sets import FILES, KNOWN, file_of
from harness import Setting
from harness.tools.inspect.checkpoint import Kind, Refused, inspect

SUBJECT = Reference(Setting({}, "cpu", 0, Path("/nowhere"), Path("/nowhere")))
FUZZ = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
CASES = st.fixed_dictionaries(FILES)
DAMAGE = {"at": 2**31, "bit": 5, "noise": "00ff"}


@FUZZ
@given(case=CASES, order=st.randoms(use_true_random=False))
def test_three_implementations_agree(case: Mapping[str, Any], order: Any, tmp_path: Path) -> None:
    """The reference reads files that the table writes in any order of tensors, and the inspector has no finding."""
    file = file_of(case)
    places = list(range(len(file.tensors)))
    order.shuffle(places)
    for data in (build(file, places), SUBJECT.write(file)):
        assert departures(data, file) == {name: [] for name in departures(data, file)}
        read = SUBJECT.read(data)
        assert {tensor.name: tensor for tensor in read.tensors} == {tensor.name: tensor for tensor in file.tensors}
        assert read.metadata == file.metadata
        (tmp_path / "file.apr").write_bytes(data)
        seen = inspect(tmp_path / "file.apr")
        assert {name: tensor.shape for name, tensor in seen.tensors.items()} == {
            tensor.name: tensor.shape for tensor in file.tensors
        }
        assert [finding for finding in seen.findings if finding.kind is Kind.LAYOUT] == []


@FUZZ
@given(case=CASES)
def test_the_inspector_refuses_all_damage(case: Mapping[str, Any], tmp_path: Path) -> None:
    """The inspector refuses every damaged file, because the claim applies to it as a reader."""
    data = build(file_of(case))
    for region, how, changed in damaged(data, {**case, **DAMAGE}):
        if changed in (data, data + zlib.crc32(data).to_bytes(4, "little")):
            continue
        (tmp_path / "file.apr").write_bytes(changed)
        with pytest.raises(Refused):
            pytest.fail(f"{region}, {how}: {inspect(tmp_path / 'file.apr')}")


def test_a_file_behind_which_its_own_checksum_stands(tmp_path: Path) -> None:
    """Both checksums miss this one damage.

    The reference rejects the file, and the inspector reads it and shows the bytes.
    """
    data = build(file_of(KNOWN["one byte"]))
    longer = data + zlib.crc32(data).to_bytes(4, "little")
    assert zlib.crc32(longer[:-4]) == int.from_bytes(longer[-4:], "little")
    with pytest.raises(Rejected):
        SUBJECT.read(longer)


def test_every_region_is_damaged() -> None:
    """In a file that has all regions, every one of them is damaged."""
    data = build(file_of(KNOWN["unsorted input"]))
    done = [(region, changed) for region, _, changed in damaged(data, DAMAGE) if changed != data]
    assert {region for region, _ in done} == set(REGIONS)


def test_damage_is_where_it_is_said_to_be() -> None:
    """Damage changes only bytes of its region and of the footer."""
    data = build(file_of(KNOWN["large metadata"]))
    layout = Layout.of(data)
    ranges = {"metadata": [layout.metadata], "index": [layout.index], "footer": [(layout.end, len(data))]}
    ranges |= {"payload": [(entry.offset, entry.offset + entry.size) for entry in layout.entries]}
    ranges |= {"padding": list(layout.padding()), "header": [(0, 64)]}
    for region, how, changed in damaged(data, DAMAGE):
        if region in ranges:
            places = [at for at, (old, new) in enumerate(zip(data[:-4], changed[:-4], strict=True)) if old != new]
            assert all(any(start <= at < end for start, end in ranges[region]) for at in places), (region, how)


@pytest.mark.parametrize(
    ("section", "at", "value"),
    [
        ("header", 4, b"\3"),
        ("header", 63, b"\1"),
        ("metadata", 64, b"["),
        ("index", 24, b"\xff\xff"),
    ],
)
def test_a_departure_is_seen_in_its_section(section: str, at: int, value: bytes) -> None:
    file = AprFile([TensorRecord("a", 0, (2,), bytes(range(8)))], {"k": 1})
    data = build(file)
    assert departures(reseal(data[:at] + value + data[at + len(value) :]), file)[section]


def test_a_file_without_its_fields_is_malformed() -> None:
    for data in (b"", b"APR\0", bytes(64), b"\xff" * 200):
        with pytest.raises(Malformed):
            Layout.of(data)
