"""APR files of a finished run: each fault fails its clause, and no other clause passes without a measurement."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from falsifiers.apr import crc, layout
from falsifiers.apr.byte_table import Layout, build, reseal
from falsifiers.apr.external import Recorded
from falsifiers.apr.tensor_sets import KNOWN, file_of
from harness import Setting
from harness.authoring.reports import Measured, TrialReport
from harness.base.device import Device
from harness.base.vocabulary import Outcome
from harness.contract.project import Project
from harness.execution.worker_trial import WorkerTrial
from harness.judging.judge import judge
from harness.judging.observation import Observation
from tests.cli.harness_command import harness

PROJECT = Project.find(Path(__file__).parent)
LAYOUT, CRC = "F-APR-V2-LAYOUT-001", "F-APR-V2-CRC-001"
FALSIFIERS = {LAYOUT: layout.falsify, CRC: crc.falsify}
HEALTHY = build(file_of(KNOWN["unsorted input"]))


def failed(claim: str, folder: Path, *files: bytes) -> set[str]:
    """The clauses that fail for a run with these files."""
    run = folder / "run"
    run.mkdir()
    for number, data in enumerate(files, 1):
        (run / f"ckpt-step-{number:06}.apr").write_bytes(data)
    contract = PROJECT.contract(claim)
    parameters = {"trainer": str(PROJECT.root / "trainers" / "apr-distill.toml"), "dir": str(run), "cases": 40}
    measured: dict[str, Any] = {}

    def report(said: TrialReport) -> None:
        if isinstance(said, Measured):
            measured.update(said.values)

    setting = Setting(parameters, "cpu", 0, folder, folder)
    run = WorkerTrial(setting, folder, frozenset(contract.document["observation"]["properties"]), report)
    run.run(FALSIFIERS[claim], Recorded)
    observation = Observation(contract.subject, "full", parameters, Device("cpu", "a CPU"), measured)
    return {clause.id for clause in judge(contract, observation).with_outcome(Outcome.FAIL)}


def changed(at: int, *values: int, sealed: bool = True) -> bytes:
    """The healthy file with other bytes at `at`. With `sealed`, both checksums are corrected."""
    data = HEALTHY[:at] + bytes(values) + HEALTHY[at + len(values) :]
    return reseal(data) if sealed else data


PLACES = Layout.of(HEALTHY)
FIRST = PLACES.index[0] + 2 + len(PLACES.entries[0].name)
GAP = next(start for start, end in PLACES.padding() if start < end)
FAULTS = {
    "version": (changed(4, 1), {"header_wrong[].maxItems"}),
    "row-major not said": (changed(7, 0), {"header_wrong[].maxItems"}),
    "reserved bytes": (changed(50, 1), {"header_wrong[].maxItems"}),
    "metadata are no JSON": (changed(PLACES.metadata[0], ord("!")), {"metadata_wrong[].maxItems"}),
    "index not sorted": (changed(PLACES.index[0] + 2, ord("~")), {"index_wrong[].maxItems"}),
    "a size that the dtype has not": (changed(FIRST, 0), {"index_wrong[].maxItems"}),
    "a dtype that is none": (changed(FIRST, 99), {"index_wrong[].maxItems"}),
    "padding": (changed(GAP, 1), {"padding_wrong[].maxItems"}),
    "footer": (changed(len(HEALTHY) - 1, HEALTHY[-1] ^ 1, sealed=False), {"footer_wrong[].maxItems"}),
    "a bit of the payload": (
        changed(PLACES.data, HEALTHY[PLACES.data] ^ 1, sealed=False), {"footer_wrong[].maxItems"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("claim", FALSIFIERS)
@pytest.mark.parametrize("known", KNOWN)
def test_a_healthy_file_is_not_refuted(claim: str, known: str, tmp_path: Path) -> None:
    assert failed(claim, tmp_path, build(file_of(KNOWN[known])), HEALTHY) == set()


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_falls_on_the_clause_that_names_it(fault: str, tmp_path: Path) -> None:
    """The fault fails its clause, although the run also has a healthy file."""
    data, clauses = FAULTS[fault]
    assert failed(LAYOUT, tmp_path, HEALTHY, data) == clauses


def test_a_file_that_ends_too_early(tmp_path: Path) -> None:
    assert {"index_wrong[].maxItems", "footer_wrong[].maxItems"} <= failed(LAYOUT, tmp_path, HEALTHY[:100])


@pytest.mark.parametrize("data", [HEALTHY[:-4], HEALTHY[:100], b"APR\0", b"", changed(45, 1, sealed=False)])
def test_a_file_whose_checksums_are_wrong_is_none_that_a_reader_may_open(data: bytes, tmp_path: Path) -> None:
    assert failed(CRC, tmp_path, data) == {"healthy_rejected[].maxItems"}


def test_from_the_command_line(tmp_path: Path) -> None:
    """A run without an APR file is NOT_MEASURED, and one with a damaged file is FAIL.

    The claims take no command as a subject.
    """
    run = tmp_path / "run"
    run.mkdir()

    def said(subject: str, claim: str = LAYOUT) -> subprocess.CompletedProcess[str]:
        words = ["run", claim, "--no-mutants", "--evidence", str(tmp_path / "evidence"), "--subject", subject]
        return harness(PROJECT.root, *words, *(["-P", f"dir={run}"] if "recorded" in subject else []), home=tmp_path)

    empty = said("recorded:trainers/apr-distill.toml")
    assert empty.returncode == 3, empty.stdout
    (run / "model.apr").write_bytes(FAULTS["padding"][0])
    done = said("recorded:trainers/apr-distill.toml")
    assert (done.returncode, "model.apr" in done.stdout) == (1, True), done.stdout
    refused = said("command:trainers/apr-distill.toml")
    assert refused.returncode == 2, refused.stderr
    assert {LAYOUT, "recorded:trainers/apr-distill.toml"} <= set(re.split(r"[\s;,]+", refused.stderr))
    for record in (tmp_path / "evidence").rglob("record.json"):
        assert json.loads(record.read_text())["verdict"] in ("FAIL", "NOT_MEASURED")
