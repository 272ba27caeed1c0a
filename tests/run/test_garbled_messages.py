"""For any line that a subject writes to the pipe of its trial, the run continues and the bundle is sound."""

from __future__ import annotations

import json
import os
import tempfile
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.base.beneath import Beneath
from harness.base.removal import remove
from harness.base.vocabulary import Fate, Verdict
from harness.contract.project import Project
from harness.contract.reasons import ReasonCode
from harness.evidence.bundle import Bundle
from harness.evidence.seal import Sealer
from harness.evidence.verification import verify
from harness.execution.authentication import signer
from harness.execution.local_executor import LocalExecutor
from harness.execution.messages import Imports, Start
from harness.judging.observation import EndingKind
from harness.judging.record import Record
from harness.machine.host import probe
from harness.running.engine import Engine
from harness.running.request import RunRequest
from tests.contracts import healthy
from tests.run.pretending import Pretenders

PID = os.getpid()
UNSIGNED = b"!"
"""The beginning of a line that the subject itself writes."""


class Scripted:
    """A fork server whose trials of the subject write these lines. Other trials measure a defective subject."""

    def __init__(self, place: Path, lines: list[bytes]) -> None:
        self.folder, self.place, self.lines = place, Beneath(place.parent, place.name), lines

    def import_modules(self, modules: object) -> Imports:
        return Imports({}, {})

    def start(self, trial: Start, descriptors: list[int]) -> None:
        lines = self.lines if trial.subject.endswith(":Sorter") else said(**healthy(returned=2))
        trial_signs, supervisor_signs = (signer(os.dup(key)) for key in descriptors[4:])
        for line in lines:
            sign = supervisor_signs if line.startswith((b'["Started"', b'["Exited"')) else trial_signs
            os.write(descriptors[2], line[1:] if line.startswith(UNSIGNED) else sign(line))

    obstacle = ""

    def close(self) -> list[str]:
        return remove(self.place)


class Pretender(LocalExecutor):
    """An executor with a scripted server."""

    def __init__(self, *arguments: Any, lines: list[bytes]) -> None:
        super().__init__(*arguments)
        self._lines = lines

    def __enter__(self) -> Pretender:
        self._server = Scripted(Path(tempfile.mkdtemp()), self._lines)  # type: ignore[assignment]
        return self


def message(name: str, /, **fields: Any) -> bytes:
    return json.dumps([name, fields]).encode()


END = [
    message("Ended", kind="completed", reason="", traceback=None, allocator_peak_bytes=None),
    message("Exited", code=0, signal=None),
]


def said(*more: bytes, **measured: Any) -> list[bytes]:
    """The lines of a trial with these measurements, and more lines before the end."""
    resolved = message("Resolved", values={"device": "cpu", "steps": 3})
    return [message("Started", pid=PID), message("Measured", values=measured), resolved, *more, *END]


def run(project: Project, evidence: Path, lines: list[bytes]) -> tuple[Record, Bundle]:
    """Run the claim with a subject that writes this; return its record and its sound bundle."""

    contract = project.contract("F-DEMO-SORT-001")
    executors = Pretenders(lambda: Pretender(project, contract, evidence / "cache", lines=lines))
    engine = Engine(
        project, probe(project.root), lambda: executors, Sealer(evidence).seal, lambda event: None, "harness run"
    )
    (record,) = engine.run(RunRequest([contract], all_mutants=True)).records
    place = evidence / record.issue / record.id / record.run
    verified = verify(place)
    assert verified.sound, verified.findings
    return record, Bundle(place)


@pytest.fixture(autouse=True)
def leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate folder for leases."""
    monkeypatch.setenv("HARNESS_LEASE_DIR", str(tmp_path / "leases"))


GARBLED = [
    b"{",
    b"\xff\xfe\x00",
    message("Stepped", step="x", values={}),
    message("Stepped", step=True, values={}),
    message("Stepped", step=10**40, values={}),
    message("Stepped", step=1, values={"loss": "text"}),
    message("Stepped", step=1, values={"loss": [1]}),
    message("Stepped", step=1, values={f"loss{number}": 1 for number in range(1001)}),
    b'["Stepped", {"step": 1, "values": {"loss": NaN}}]',
    b'["Measured", {"values": {"returned": ' + b"[" * 200 + b"]" * 200 + b"}}]",
    message("Measured", values=[1]),
    message("Measured", values={"nonfinite": "NaN"}),
    message("Unseen", values={"nonfinite": "NaN"}),
    message("Resolved", values={"device": 5}),
    message("Resolved", values={"weather": "fine"}),
    message("Unseen", values={"returned": 5}),
    message("Read", sources={"sorting.py": 5}),
    message("Read", sources={"sorting.py": "not a digest"}),
    message("Read", sources=[]),
    message("Entered", phase=5),
    message("Started", pid=-1),
    message("Started", pid=10**30),
    message("Exited", code="x", signal=None),
    message("Exited", code=None, signal=5),
    message("Exited", code=None, signal="SIGNIFICANT"),
    message("Lost", reason=5),
    message("Ended", kind="completed", reason=5, traceback=None, allocator_peak_bytes=None),
    message("Ended", kind="interrupted", reason="", traceback=None, allocator_peak_bytes=None),
    message("Ended", kind="completed", reason="", traceback=None, allocator_peak_bytes=-1),
]


@pytest.mark.parametrize(
    ("line", "told"),
    [*zip(GARBLED, cycle((healthy(), healthy(returned=2))), strict=False)],
    ids=lambda line: line[:60].decode(errors="replace") if isinstance(line, bytes) else "",
)
def test_a_garbled_message_measures_nothing(
    project: Project, tmp_path: Path, line: bytes, told: dict[str, Any]
) -> None:
    """The trial is NOT_MEASURED for that reason, whether its measurements hold or violate a clause."""
    record, bundle = run(project, tmp_path, said(line, **told))
    assert record.verdict is Verdict.NOT_MEASURED
    assert bundle.observation.ending.kind is EndingKind.GARBLED
    assert record.reason is not None
    assert ReasonCode.GARBLED in record.reason.codes
    assert [mutant.fate for mutant in record.mutants] == [Fate.KILLED]


def test_more_columns_than_a_file_holds_are_garbled(project: Project, tmp_path: Path) -> None:
    """Each of three steps has few enough names. Together, the table would have too many columns for a bundle."""
    names = (range(400), range(400, 800), range(800, 1001))
    rows = [
        message("Stepped", step=step, values={f"loss{name}": 1.0 for name in names}) for step, names in enumerate(names)
    ]
    record, bundle = run(project, tmp_path, said(*rows, **healthy()))
    assert record.verdict is Verdict.NOT_MEASURED
    assert bundle.observation.ending.kind is EndingKind.GARBLED


def test_the_last_line_of_a_trial_that_died_may_be_cut_short(project: Project, tmp_path: Path) -> None:
    """The ending is then the supervisor's report."""
    cut = [
        *said(**healthy())[:-2],
        UNSIGNED + b'\n0123abcd 7 ["Measured", {"val\n',
        message("Exited", code=None, signal="SIGSEGV"),
    ]
    _, bundle = run(project, tmp_path, cut)
    assert bundle.observation.ending.kind is EndingKind.DIED


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just({"nonfinite": "NaN"}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = {
    "Measured": ["values"], "Stepped": ["step", "values"], "Resolved": ["values"], "Unseen": ["values"],
    "Entered": ["phase"], "Started": ["pid"], "Read": ["sources"], "Lost": ["reason"], "Exited": ["code", "signal"],
    "Ended": ["kind", "reason", "traceback", "allocator_peak_bytes"], "Import": ["modules", "root"],
    "Imports": ["failures", "sources"],
}  # fmt: skip
MESSAGES = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda kind: st.fixed_dictionaries(dict.fromkeys(FIELDS[kind], VALUES)).map(
        lambda fields: json.dumps([kind, fields]).encode()
    )
)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(MESSAGES | st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=6))
def test_no_message_makes_an_unsound_bundle(project: Project, tmp_path: Path, lines: list[bytes]) -> None:
    """The messages are of every kind, with any values. `run` asserts that the bundle is sound."""
    run(project, tmp_path, said(*lines, **healthy()))


FORGED = [
    message("Measured", values=healthy()),
    message("Resolved", values={"device": "cuda"}),
    message("Started", pid=1),
    message("Exited", code=None, signal="SIGKILL"),
    message("Lost", reason="no process"),
    END[0],
    b"0" * 64 + b" 0 " + END[0],
]


@pytest.mark.parametrize("line", FORGED, ids=lambda line: line[:60].decode(errors="replace"))
def test_a_message_without_proof_measures_nothing(project: Project, tmp_path: Path, line: bytes) -> None:
    """The trial is NOT_MEASURED, whatever the message says and the trial itself measured."""
    for measurements in (healthy(), healthy(returned=2)):
        record, bundle = run(project, tmp_path, said(UNSIGNED + b"\n" + line + b"\n", **measurements))
        assert record.verdict is Verdict.NOT_MEASURED
        assert bundle.observation.ending.kind is EndingKind.GARBLED
        assert record.reason is not None
        assert ReasonCode.GARBLED in record.reason.codes
