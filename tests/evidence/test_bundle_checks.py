"""Records that disagree with the other files about the machine or the trial."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.device import Device
from harness.evidence.bundle_checks import MOST_FINDINGS, _machine, check
from harness.evidence.bundle_layout import ATTESTATION, MOST_ARTIFACTS
from harness.evidence.findings import Code, Detail, Finding
from harness.evidence.verification import verify
from harness.judging.counterexample import Counterexample
from tests.evidence.factory import DEFECTIVE, claim_result, found, reseal, rewrite, sealed, sealer, set_at, tamper

GPU = {"name": "NVIDIA H200", "compute_capability": "9.0", "memory_bytes": 150 << 30, "unified": False, "uuid": "GPU-1"}
TRIAL = {"seconds": 1.2504, "logs": {"stdout": {"size": 0, "sha256": "0"}, "stderr": {"size": 0, "sha256": "0"}}}


def test_a_device_that_the_machine_does_not_have(tmp_path: Path) -> None:
    """A bundle is unsound if the record and all observations name a device that the machine does not have."""
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
    """All recorded fields must belong to one GPU of the machine."""
    record = replace(claim_result(tmp_path).record, device=Device("cuda", **{**GPU, **changes}))
    environment = {"host": {"machine": "x86_64", **host}}
    assert [remark.pointer for remark in _machine(record, environment)] == ([] if agrees else ["/device"])


def test_a_processor_is_the_machine_s(tmp_path: Path) -> None:
    """The architecture must be the machine's. All other recorded fields must agree too."""
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
        assert [remark.pointer for remark in _machine(record, {"host": host})] == ([] if agrees else ["/device"])


@pytest.mark.parametrize("subject", ["a.b:First", "z.y:Last"])
def test_a_subject_of_another_contract_is_named(tmp_path: Path, subject: str) -> None:
    """A subject other than the contract's is named, wherever its name sorts."""
    bundle = sealed(tmp_path)
    assert verify(bundle).subject is None
    rewrite(bundle, "record.json", set_at("subject", subject))
    assert verify(bundle).subject == subject


def test_findings_beyond_the_most_are_counted(bundle: Path) -> None:
    """Each added file has two findings, because neither the manifest nor the format has it. Remarks count too."""
    remarks = len(verify(bundle).remarks)
    for number in range(130):
        (bundle / f"{number}.txt").touch()
    findings = verify(bundle).findings
    assert len(findings) == MOST_FINDINGS + 1 == 201
    assert (findings[-1].detail, findings[-1].fields) == (Detail.MORE, {"count": 260 + remarks - MOST_FINDINGS})


def test_a_copy_that_is_gone_and_one_that_is_not_listed(tmp_path: Path) -> None:
    """Each of the two copies has its own finding, once."""
    left = tmp_path / "left"
    left.mkdir()
    (left / "gone.txt").write_text("x")
    bundle = sealer(tmp_path).seal(claim_result(tmp_path, artifacts=left))
    (bundle / "artifacts/gone.txt").rename(bundle / "artifacts/other.txt")
    reseal(bundle)
    details = [(finding.detail, finding.file) for finding in verify(bundle).findings]
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
    """The named clauses must be exactly the violated ones. A subject that did not complete counts for neither."""
    left = tmp_path / "left"
    left.mkdir()
    case = Counterexample({"n": 1}, clauses, {"values": "no number"})
    (left / "counterexample.json").write_text(json.dumps(case.to_json()))
    bundle = sealer(tmp_path).seal(claim_result(tmp_path, artifacts=left))
    assert [finding.detail for finding in verify(bundle).findings] == details


def add(bundle: Path, name: str, content: str = "") -> None:
    """A file of a bundle, with its folders."""
    (bundle / name).parent.mkdir(parents=True, exist_ok=True)
    (bundle / name).write_text(content)


def change(bundle: Path, name: str, *steps: Any) -> None:
    """Set a value in a JSON file of a bundle and seal it again."""
    rewrite(bundle, name, set_at(*steps))


def fewer_rows(bundle: Path, name: str) -> None:
    """Remove the last line of a series."""
    lines = (bundle / name).read_text().splitlines(keepends=True)
    (bundle / name).write_text("".join(lines[:-1]))
    reseal(bundle)


def relog(bundle: Path, old: str, new: str) -> None:
    """Change the output of trials."""
    text = (bundle / "trials.log").read_text()
    assert old in text
    (bundle / "trials.log").write_text(text.replace(old, new))
    reseal(bundle)


def many_copies(bundle: Path, count: int) -> None:
    """List and add so many copied artifacts."""
    entry = {"copied": True, "size": 0, "sha256": hashlib.sha256().hexdigest(), "reason": ""}
    for number in range(count):
        add(bundle, f"artifacts/{number}")
    rewrite(
        bundle, "artifacts/INDEX.json", set_at("artifacts", [{**entry, "name": str(number)} for number in range(count)])
    )


def forget_and_lie(bundle: Path) -> None:
    """Remove a mutant's trial, and let another mutant fail on other clauses."""
    rewrite(bundle, "mutants.jsonl", lambda lines: {"stops-early": {**lines["stops-early"], "failed": ["ordered"]}})


def broken(bundle: Path, places: int) -> None:
    """Remove the outcome of so many clauses of the record."""
    clauses = json.loads((bundle / "record.json").read_text())["clauses"]
    assert len(clauses) < places
    change(bundle, "record.json", "clauses", [{**clauses[0], "outcome": 1}] * places)


SPOILT: dict[str, Callable[[Path], Any]] = {
    "nothing": lambda bundle: None,
    "added": lambda bundle: add(bundle, "notes.txt"),
    "added and listed": lambda bundle: (add(bundle, "notes.txt"), reseal(bundle)),
    "changed": tamper,
    "no manifest": lambda bundle: (bundle / "MANIFEST.sha256").unlink(),
    "no manifest, signed": lambda bundle: (add(bundle, ATTESTATION, "{}"), (bundle / "MANIFEST.sha256").unlink()),
    "bad manifest": lambda bundle: add(bundle, "MANIFEST.sha256", "x"),
    "badly signed": lambda bundle: add(bundle, ATTESTATION, "{}"),
    "missing": lambda bundle: (bundle / "metrics.csv").unlink(),
    "missing and not listed": lambda bundle: ((bundle / "observation.json").unlink(), reseal(bundle)),
    "empty folder": lambda bundle: (bundle / "artifacts/none").mkdir(),
    "link": lambda bundle: (bundle / "artifacts/link").symlink_to("INDEX.json"),
    "no index": lambda bundle: ((bundle / "artifacts/INDEX.json").unlink(), add(bundle, "artifacts/a"), reseal(bundle)),
    "index of nothing": lambda bundle: ((bundle / "artifacts/INDEX.json").unlink(), reseal(bundle)),
    "most copies": lambda bundle: many_copies(bundle, MOST_ARTIFACTS),
    "a copy too many": lambda bundle: many_copies(bundle, MOST_ARTIFACTS + 1),
    "problems": lambda bundle: broken(bundle, 25),
    "fewer metrics": lambda bundle: fewer_rows(bundle, "metrics.csv"),
    "fewer samples": lambda bundle: fewer_rows(bundle, "telemetry.csv"),
    "a ghost": lambda bundle: rewrite(
        bundle, "mutants.jsonl", lambda lines: {**lines, "ghost": {**lines["forgets-one"], "id": "ghost"}}
    ),
    "a lost mutant": lambda bundle: rewrite(
        bundle, "mutants.jsonl", lambda lines: {"stops-early": lines["stops-early"]}
    ),
    "a lost mutant and another finding": forget_and_lie,
    "other device and verdict": lambda bundle: (
        change(bundle, "record.json", "device", "name", "another"),
        change(bundle, "record.json", "verdict", "FAIL"),
    ),
    "other time": lambda bundle: change(bundle, "record.json", "started", "2026-02-30T00:00:00+00:00"),
    "other size of a log": lambda bundle: change(bundle, "record.json", "logs", "stdout", "size", 7),
    "other digest of a log": lambda bundle: change(bundle, "record.json", "logs", "stderr", "sha256", "0" * 64),
    "no log of the subject": lambda bundle: relog(bundle, "==> subject stdout", "==> mutant silent-fallback stdout"),
    "no log of what a mutant did": lambda bundle: relog(bundle, "==> mutant stops-early log", "==> mutant ghost log"),
    "other log of what the subject did": lambda bundle: change(bundle, "record.json", "logs", "log", "size", 7),
    "untrue log": lambda bundle: relog(bundle, "hello", "hallo"),
    "log of no trial": lambda bundle: relog(bundle, "mutant stops-early", "mutant ghost"),
    "other run": lambda bundle: change(bundle, "record.json", "run", "2026-11-21T201503Z-cpu-3f2a9c"),
    "other claim": lambda bundle: change(bundle, "record.json", "id", "F-DEMO-AAA-001"),
    "other issue": lambda bundle: change(bundle, "record.json", "issue", "DEMO-2"),
    "other subject": lambda bundle: change(bundle, "record.json", "subject", "a.b:C"),
    "later": lambda bundle: change(bundle, "record.json", "started", "2999-01-01T00:00:00+00:00"),
}


def line(finding: Finding) -> str:
    """A finding without the texts of other libraries and without the present time."""
    fields = {
        name: value for name, value in finding.fields.items() if name != "text" and finding.code is not Code.CLOCK_AHEAD
    }
    return f"{finding} {finding.detail} {json.dumps(fields, default=str)}"


@pytest.mark.parametrize("name", SPOILT)
def test_all_that_is_found(bundle: Path, name: str, snapshot: SnapshotAssertion) -> None:
    """Each finding and remark has its fields. The snapshot leaves out the texts of a schema."""
    SPOILT[name](bundle)
    known, origin = check(bundle, {})
    lines = [line(remark) for remark in (*known.findings, *known.remarks)]
    named = (known.id, known.issue, known.run, known.profile, known.device, known.verdict, known.proven)
    rest = (known.reason and known.reason.code, known.mutants, known.subject, known.overrides, origin is not None)
    assert [*lines, json.dumps(named, default=str), json.dumps(rest, default=str)] == snapshot
    if known.manifest is not None:
        assert known.manifest == hashlib.sha256((bundle / "MANIFEST.sha256").read_bytes()).hexdigest()


def test_the_name_of_a_folder_says_what_it_is(bundle: Path, snapshot: SnapshotAssertion) -> None:
    """Outside the folders of an issue and a claim, names are not compared."""
    above = bundle.parent.parent.parent
    places = (".unfinished-a", ".unpacking-a", "missing", ".unfinished-a/b/run", "G-A/run", "a/F-A/run")
    found = {}
    for place in places:
        if place != "missing":
            shutil.copytree(bundle, above / place)
        found[place] = [line(finding) for finding in check(above / place, {})[0].findings]
        shutil.rmtree(above / place, ignore_errors=True)
    assert found == snapshot
