"""Records that disagree with the files beside them about the machine or the trial."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.base.device import Device
from harness.evidence.bundle_checks import MOST_FINDINGS, _machine
from harness.evidence.findings import Code, Detail
from harness.evidence.verification import verify
from harness.search.counterexample import Counterexample
from tests.evidence.factory import DEFECTIVE, claim_result, found, reseal, rewrite, sealed, sealer, set_at

GPU = {"name": "NVIDIA H200", "compute_capability": "9.0", "memory_bytes": 150 << 30, "unified": False, "uuid": "GPU-1"}
TRIAL = {"seconds": 1.2504, "logs": {"stdout": {"size": 0, "sha256": "0"}, "stderr": {"size": 0, "sha256": "0"}}}


def test_a_device_that_the_machine_does_not_have(tmp_path: Path) -> None:
    """The device is renamed in the record and in every observation, which would discharge a claim about that device."""
    bundle = sealed(tmp_path)
    assert verify(bundle).sound
    for name in ("record.json", "observation.json"):
        rewrite(bundle, name, set_at("device", "name", "another CPU"))
    for mutant in DEFECTIVE:
        rewrite(bundle, "mutants.jsonl", set_at(mutant, "observation", "device", "name", "another CPU"))
    assert found(verify(bundle)) == {(Code.REJUDGED_DIFFERENTLY, "record.json")}


@pytest.mark.parametrize(
    ("host", "changes", "agrees"),
    [
        ({"gpus": [{**GPU, "uuid": "GPU-0"}, {"index": 1, **GPU}]}, {}, True),
        ({"gpus": [{"index": 0, **GPU}]}, {"name": "NVIDIA GB10"}, False),
        ({"gpus": [{"index": 0, **GPU}]}, {"compute_capability": "12.1"}, False),
        ({"gpus": [{**GPU, "uuid": "GPU-0"}, {**GPU, "unified": True}]}, {}, False),
        ({"gpus": []}, {}, False),
        ({}, {}, False),
    ],
)
def test_a_gpu_is_one_of_the_machine_s(
    tmp_path: Path, host: Mapping[str, Any], changes: Mapping[str, Any], agrees: bool
) -> None:
    """Every recorded field belongs to one GPU of the machine."""
    record = replace(claim_result(tmp_path).record, device=Device("cuda", **{**GPU, **changes}))
    environment = {"host": {"machine": "x86_64", **host}}
    assert [one.pointer for one in _machine(record, environment)] == ([] if agrees else ["/device"])


def test_a_processor_is_the_machine_s(tmp_path: Path) -> None:
    """The architecture is its name. All other recorded fields must agree too."""
    host = {"machine": "aarch64", "memory_bytes": 1 << 30, "gpus": [GPU]}
    plain = claim_result(tmp_path).record
    for device, agrees in (
        ({"name": "aarch64"}, True),
        ({"name": "aarch64", "memory_bytes": 1 << 30}, True),
        ({"name": "x86_64"}, False),
        ({"name": "aarch64", "memory_bytes": 1 << 31}, False),
        ({"name": "aarch64", "uuid": "GPU-1"}, False),
        ({"name": GPU["name"]}, False),
    ):
        record = replace(plain, device=Device("cpu", **device))
        assert [one.pointer for one in _machine(record, {"host": host})] == ([] if agrees else ["/device"])


@pytest.mark.parametrize("started", ["2026-99-99T99:99:99Z", "0000-01-01T00:00:00Z", "2026-02-30T00:00:00+00:00"])
def test_a_time_that_is_none(tmp_path: Path, started: str) -> None:
    """It has the schema's form, but cannot be compared with the time of another run."""
    bundle = sealed(tmp_path)
    rewrite(bundle, "record.json", set_at("started", started))
    assert found(verify(bundle)) == {(Code.INVALID, "record.json")}


def test_what_killed_a_mutant_is_what_the_record_says(tmp_path: Path) -> None:
    bundle = sealed(tmp_path)
    rewrite(bundle, "mutants.jsonl", set_at("forgets-one", "failed", ["ordered"]))
    findings = [(one.code, one.file, one.pointer) for one in verify(bundle).findings]
    assert findings == [(Code.REJUDGED_DIFFERENTLY, "mutants.jsonl", "/forgets-one/failed")]


@pytest.mark.parametrize("subject", ["a.b:First", "z.y:Last"])
def test_a_subject_of_another_contract_is_named(tmp_path: Path, subject: str) -> None:
    """However its name compares with the contract's."""
    bundle = sealed(tmp_path)
    assert verify(bundle).subject is None
    rewrite(bundle, "record.json", set_at("subject", subject))
    assert verify(bundle).subject == subject


def test_findings_beyond_the_most_are_counted(bundle: Path) -> None:
    """Each added file has two: the manifest does not list it, and a bundle has no such file. Remarks count too."""
    remarks = len(verify(bundle).remarks)
    for number in range(130):
        (bundle / f"{number}.txt").touch()
    findings = verify(bundle).findings
    assert len(findings) == MOST_FINDINGS + 1 == 201
    assert (findings[-1].detail, findings[-1].fields) == (Detail.MORE, {"count": 260 + remarks - MOST_FINDINGS})


def test_a_copy_that_is_gone_and_one_that_is_not_listed(tmp_path: Path) -> None:
    """Each is named once, by its own finding."""
    left = tmp_path / "left"
    left.mkdir()
    (left / "gone.txt").write_text("x")
    bundle = sealer(tmp_path).seal(claim_result(tmp_path, artifacts=left))
    (bundle / "artifacts/gone.txt").rename(bundle / "artifacts/other.txt")
    reseal(bundle)
    details = [(one.detail, one.file) for one in verify(bundle).findings]
    index = "artifacts/INDEX.json"
    assert details == [(Detail.UNLISTED_ARTIFACT, index), (Detail.NO_COPY, "artifacts/gone.txt")]


@pytest.mark.parametrize(
    ("clauses", "details"),
    [
        (("values[].type",), []),
        (("values[].type", "values[].minimum"), [Detail.CASE_SPARES]),
        (("subject.completes",), [Detail.CASE_VIOLATES]),
    ],
)
def test_a_counterexample_violates_what_it_names(
    tmp_path: Path, clauses: tuple[str, ...], details: list[Detail]
) -> None:
    """No more, and no less. That the subject did not complete is nothing that a measurement shows."""
    left = tmp_path / "left"
    left.mkdir()
    case = Counterexample({"n": 1}, clauses, {"values": "no number"})
    (left / "counterexample.json").write_text(json.dumps(case.to_json()))
    bundle = sealer(tmp_path).seal(claim_result(tmp_path, artifacts=left))
    assert [one.detail for one in verify(bundle).findings] == details
