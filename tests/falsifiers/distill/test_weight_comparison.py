"""The comparison of an exported file with the live weights, defect by defect."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from falsifiers.distill.measuring.weight_comparison import checkpoints_in, inspect_export, snapshot, weight_bytes

LIVE = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1.0, 2.0]), "c": torch.tensor([3.0, 4.0])}
INITIAL = {name: tensor - 1.0 for name, tensor in LIVE.items()}

# The shape of the historical metadata: with a path of 63 characters the file has exactly 200 bytes.
HISTORICAL_METADATA = {
    "teacher_model": "/home/distill/models/qwen2.5-coder-0.5b-instruct/teacher.st-f32",
    "temperature": "4.0",
    "alpha": "0.3",
    "epoch": "1",
    "step": "50000",
    "final_loss": "3.580000",
}


def metadata_only(metadata: Mapping[str, str]) -> bytes:
    """A safetensors file without a tensor: a length, and a JSON header padded with spaces to a multiple of eight."""
    header = json.dumps({"__metadata__": dict(metadata)}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header


def test_a_good_file_has_no_findings(tmp_path: Path) -> None:
    """Each tensor is there, and has moved by one."""
    save_file(LIVE, tmp_path / "file", metadata={"step": "3"})
    seen = inspect_export(tmp_path / "file", LIVE, INITIAL)
    assert seen.loadable
    assert seen.metadata == {"step": "3"}
    assert seen.movements == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert seen.file_bytes > weight_bytes(LIVE) == 40
    assert [seen.different, seen.unmoved, seen.mistyped, seen.not_finite] == [[], [], [], []]


@pytest.mark.parametrize(
    ("finding", "names", "tampered"),
    [
        ("missing", ["b"], lambda: {name: LIVE[name] for name in ("a", "c")}),
        ("unexpected", ["d"], lambda: {**LIVE, "d": torch.ones(1)}),
        ("misshapen", ["a"], lambda: {**LIVE, "a": LIVE["a"].T.contiguous()}),
        ("mistyped", ["b"], lambda: {**LIVE, "b": LIVE["b"].half()}),
        ("not_finite", ["b"], lambda: {**LIVE, "b": torch.tensor([1.0, torch.nan])}),
        ("unmoved", ["a"], lambda: {**LIVE, "a": INITIAL["a"]}),
        ("different", ["b", "c"], lambda: {**LIVE, "b": LIVE["c"], "c": LIVE["b"]}),
        ("different", ["a"], lambda: {**LIVE, "a": torch.cat([-torch.zeros(1), torch.arange(1.0, 6.0)]).reshape(2, 3)}),
    ],
)
def test_a_defect_is_found_by_name(
    tmp_path: Path, finding: str, names: list[str], tampered: Callable[[], dict[str, Tensor]]
) -> None:
    """The last case differs only in the sign of a zero."""
    save_file(tampered(), tmp_path / "file")
    assert getattr(inspect_export(tmp_path / "file", LIVE, INITIAL), finding) == names


def test_the_historical_file_is_valid_and_empty(tmp_path: Path) -> None:
    """The file of 200 bytes opens without an error and has no tensor, although it is valid."""
    file = tmp_path / "model.safetensors"
    file.write_bytes(metadata_only(HISTORICAL_METADATA))
    assert file.stat().st_size == 200
    assert len(HISTORICAL_METADATA["teacher_model"]) == 63
    with safe_open(file, framework="pt") as opened:
        assert list(opened.keys()) == []
        assert opened.metadata() == HISTORICAL_METADATA
    seen = inspect_export(file, LIVE, INITIAL)
    assert seen.readable
    assert not seen.loadable
    assert seen.missing == ["a", "b", "c"]
    assert seen.file_bytes == 200


def test_a_file_that_ends_early_is_not_readable(tmp_path: Path) -> None:
    """A missing byte is enough. A missing file, and a folder in its place, are not readable either."""
    file = tmp_path / "file"
    save_file(LIVE, file)
    file.write_bytes(file.read_bytes()[:-1])
    for path in (file, tmp_path / "missing", tmp_path):
        seen = inspect_export(path, LIVE, INITIAL)
        assert not seen.readable
        assert seen.missing == ["a", "b", "c"]


def test_a_snapshot_stays_as_it_was() -> None:
    """Training in place does not change the snapshot."""
    live = {"a": torch.zeros(2)}
    kept = snapshot(live)
    live["a"] += 1
    assert kept["a"].tolist() == [0.0, 0.0]


def test_checkpoints_are_listed_by_number(tmp_path: Path) -> None:
    """A file that is still being written in a subfolder, and a file with another name, are no checkpoints."""
    (tmp_path / ".unfinished").mkdir()
    for name in ("ckpt-step-1000000.apr", "ckpt-step-999999.apr", ".unfinished/ckpt-step-000003.apr", "model.apr"):
        (tmp_path / name).touch()
    assert list(checkpoints_in(tmp_path)) == [999_999, 1_000_000]
    assert checkpoints_in(tmp_path / "model.apr") == checkpoints_in(tmp_path / "missing") == {}
