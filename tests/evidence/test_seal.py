"""Sealing: a bundle is complete or absent."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import Fate
from harness.evidence import bundle_layout, trial_files
from harness.evidence.bundle import Bundle
from harness.evidence.seal import Sealer, SealError
from harness.evidence.verification import find_bundles, verify
from harness.execution.logs import Steps
from harness.judging.observation import Observation
from harness.judging.record import Record
from tests.contracts import document, healthy
from tests.evidence.factory import claim_result, contract_in, files_of, mutant_lines, sealed, sealer

ROOT = Path(__file__).parents[2]


def everything_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_a_bundle_lies_at_its_place_with_all_its_files(tmp_path: Path) -> None:
    """The place is evidence/<issue>/<claim>/<run>/, and there is nothing beside it."""
    bundle = sealed(tmp_path)
    assert bundle == tmp_path / "evidence/DEMO-1/F-DEMO-SORT-001/2026-11-20T201503Z-cpu-3f2a9c"
    assert [path.name for path in bundle.parent.iterdir()] == [bundle.name]
    assert files_of(bundle) == [
        "MANIFEST.sha256", "contract.json", "environment.json", "metrics.csv", "mutants.jsonl", "observation.json",
        "record.json", "telemetry.csv", "trials.log",
    ]  # fmt: skip
    assert verify(bundle).findings == ()


def test_what_is_sealed_is_what_was_measured(tmp_path: Path) -> None:
    """Records and observations come back from their files, with numbers that are not finite."""
    measured = healthy(smallest=math.nan, largest=math.inf, values=[0.1, 1e-300, -math.inf])
    result = claim_result(tmp_path, measurements=measured)
    bundle = sealer(tmp_path).seal(result)
    observation = Observation.from_json(json.loads((bundle / "observation.json").read_text()))
    assert repr(observation.measurements) == repr(measured)
    record = Record.from_json(json.loads((bundle / "record.json").read_text()))
    assert repr(record.to_json()) == repr(result.record.to_json())
    assert (bundle / "contract.json").read_bytes() == result.contract.path.read_bytes()
    assert verify(bundle).findings == ()


def test_texts_that_have_no_utf8_are_sealed_all_the_same(tmp_path: Path) -> None:
    """A file name in an exception can hold half of a surrogate pair."""
    result = claim_result(
        tmp_path,
        output="no such file: \udcff\n",
        profile_reason="no such file: \udcff\x1b[31m",
    )
    bundle = sealer(tmp_path).seal(result)
    assert (
        Record.from_json(json.loads((bundle / "record.json").read_text())).profile_reason
        == result.record.profile_reason
    )
    assert b"\n| no such file: \\udcff\n" in (bundle / "trials.log").read_bytes()
    assert verify(bundle).findings == ()


def test_metrics_hold_the_union_of_what_was_recorded(tmp_path: Path) -> None:
    """The columns are step and seconds, then every column that any step has.

    A cell is empty if its step lacks the value.
    """
    result = claim_result(tmp_path)
    steps = (
        {"step": 1, "seconds": 0.5, "loss": 2.0},
        {"step": 2, "seconds": 0.9, "loss": math.nan, "rate": {"nonfinite": "Infinity"}, "phase": 'warm, "up"'},
        {"step": 3, "seconds": 1.4, "ok": True},
    )
    bundle = sealer(tmp_path).seal(replace(result, subject=replace(result.subject, steps=Steps(steps, 3))))
    rows = list(csv.reader((bundle / "metrics.csv").open(newline="")))
    assert rows == [
        ["step", "seconds", "loss", "rate", "phase", "ok"],
        ["1", "0.5", "2.0", "", "", ""],
        ["2", "0.9", "NaN", "Infinity", 'warm, "up"', ""],
        ["3", "1.4", "", "", "", "true"],
    ]
    assert verify(bundle).findings == ()


def test_a_bundle_of_twenty_mutants_and_fifty_steps_stays_under_150_kilobytes(tmp_path: Path) -> None:
    """The bundle has a log of each trial, and at most fifteen files."""
    mutants = [
        {"id": f"mutant-{number}", "subject": "a.b:C", "violates": ["nothing-lost"], "defect": "loses an item"}
        for number in range(20)
    ]
    contract = contract_in(tmp_path, mutants=mutants)
    left = tmp_path / "left"
    left.mkdir()
    for number in range(30):
        (left / f"{number}.txt").write_text("x")
    bundle = sealed(
        tmp_path,
        contract=contract,
        mutants={mutant["id"]: {"returned": 2} for mutant in mutants},
        rows=50,
        output="a line of the log, with words\n" * 40,
        artifacts=left,
    )
    files = files_of(bundle)
    assert len(files) <= bundle_layout.MOST_FILES
    assert sum((bundle / name).stat().st_size for name in files) < 150_000
    assert verify(bundle).findings == ()


def test_the_subject_keeps_its_whole_series(tmp_path: Path) -> None:
    """Ten thousand steps are kept. The telemetry has evenly thinned samples, and the record has their number."""
    bundle = sealed(tmp_path, rows=10_000)
    series = json.loads((bundle / "record.json").read_text())["series"]
    assert len(Bundle(bundle).metrics) == series["metrics"]["kept"] == series["metrics"]["rows"] == 10_000
    rows = list(csv.DictReader((bundle / "telemetry.csv").open(newline="")))
    assert (series["telemetry"]["rows"], series["telemetry"]["kept"]) == (10_000, len(rows))
    assert len(rows) <= trial_files.MOST_SAMPLES
    assert [rows[0]["seconds"], rows[1]["seconds"]] == ["0.0", str(series["telemetry"]["stride"] / 4)]
    assert rows[-1]["rss_bytes"] == str(series["telemetry"]["peaks"]["rss_bytes"]) == "19999"
    assert verify(bundle).findings == ()


def test_a_killed_mutant_keeps_what_its_clauses_read(tmp_path: Path) -> None:
    """If the mutant is judged again, it violates the same clauses. A survivor keeps everything."""
    bundle = sealed(tmp_path, mutants={"forgets-one": {"returned": 2}, "stops-early": {}})
    lines = mutant_lines(bundle)
    assert set(lines["forgets-one"]["observation"]["measurements"]) == {"given", "returned"}
    assert set(lines["forgets-one"]["left_out"]) == {"values", "smallest", "largest"}
    assert lines["forgets-one"]["series"]["metrics"] == {"rows": 3}
    assert lines["forgets-one"]["failed"] == ["nothing-lost"]
    assert lines["stops-early"]["left_out"] == []
    fates = {mutant.id: mutant.fate for mutant in Bundle(bundle).record.mutants}
    assert fates["forgets-one"] is Fate.KILLED
    assert fates["stops-early"] is not Fate.KILLED
    assert verify(bundle).findings == ()


def test_the_log_of_a_mutant_is_bounded(tmp_path: Path) -> None:
    """Head and tail are kept, with the size and the digest of the whole."""
    output = "first\n" + "x" * 100_000 + "last\n"
    logs = Bundle(sealed(tmp_path, output=output)).logs
    for trial, limit in (("subject", 64 << 10), ("mutant forgets-one", 4 << 10)):
        stream = logs[trial, "stdout"]
        assert limit < len(stream.text) < limit + 100
        assert stream.text.startswith("first\n")
        assert stream.text.endswith("last\n")
        assert (stream.size, stream.sha256) == (len(output), hashlib.sha256(output.encode()).hexdigest())


def test_a_reader_with_jq_and_the_record_learns_everything(tmp_path: Path) -> None:
    """The record has the claim, the verdict, every clause with value and bound, and what killed each mutant."""
    record = json.loads((sealed(tmp_path) / "record.json").read_text())
    assert (record["id"], record["verdict"], record["proven"]) == ("F-DEMO-SORT-001", "PASS", True)
    assert (record["title"], record["claim"]) == (document()["title"], document()["claim"])
    clauses = {clause["id"]: clause for clause in record["clauses"]}
    assert {clause["outcome"] for clause in clauses.values()} == {"PASS"}
    assert clauses["nothing-lost"]["value"] == {"given": 3, "returned": 3}
    assert all(clause["bound"] for clause in clauses.values())
    mutants = {mutant["id"]: (mutant["fate"], mutant["failed"]) for mutant in record["mutants"]}
    assert mutants["forgets-one"] == ("killed", ["nothing-lost"])
    assert mutants["silent-fallback"] == ("not run", [])


# Artifacts


def test_small_artifacts_are_copied_and_all_are_listed(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """A large file, a link, a pipe and git's own files are only in the index."""
    left = tmp_path / "left"
    (left / "deep").mkdir(parents=True)
    (left / "deep" / "header.bin").write_bytes(b"\0" * 100)
    (left / "model.safetensors").write_bytes(b"w" * 300_000)
    (left / "secret").symlink_to("/etc/hostname")
    (left / "up").symlink_to("..")
    os.mkfifo(left / "pipe")
    (left / "INDEX.json").write_text("{}")
    (left / ".gitignore").write_text("*")
    (left / "two\nlines").write_text("x")
    os.close(os.open(os.fsencode(left) + b"/half\xff", os.O_CREAT))
    bundle = sealed(tmp_path, artifacts=left)
    index = {entry["name"]: entry for entry in json.loads((bundle / "artifacts/INDEX.json").read_text())["artifacts"]}
    assert everything_below(bundle / "artifacts") == {"INDEX.json", "deep", "deep/header.bin"}
    assert [name for name, entry in index.items() if entry["copied"]] == ["deep/header.bin"]
    assert index["model.safetensors"]["size"] == 300_000
    assert len(index["model.safetensors"]["sha256"]) == 64
    assert "symbolic link" in index["secret"]["reason"]
    assert "symbolic link" in index["up"]["reason"]
    assert index["pipe"]["reason"] == snapshot
    assert {".gitignore", "INDEX.json", "two\nlines", "half\udcff"} <= set(index)
    assert verify(bundle).findings == ()


def test_a_thousand_artifacts_are_listed_and_the_rest_counted(tmp_path: Path) -> None:
    """The bundle can still be verified."""
    left = tmp_path / "left"
    left.mkdir()
    for number in range(1010):
        (left / f"{number:04}").touch()
    bundle = sealed(tmp_path, artifacts=left)
    index = json.loads((bundle / "artifacts/INDEX.json").read_text())
    assert (len(index["artifacts"]), index["omitted"]) == (1000, 10)
    assert verify(bundle).findings == ()


# What must not be sealed


def test_the_contract_that_ran_is_sealed(tmp_path: Path) -> None:
    """If the contract changes during a long run, the bundle keeps the contract that ran."""
    result = claim_result(tmp_path)
    before = result.contract.path.read_bytes()
    result.contract.path.write_bytes(before + b" ")
    assert (sealer(tmp_path).seal(result) / "contract.json").read_bytes() == before


@pytest.mark.parametrize("run", ["../../outside", "", ".", "a/b", ".hidden", "a\nb", "x" * 200])
def test_a_run_cannot_leave_its_folder(tmp_path: Path, run: str) -> None:
    """Nothing is written for an id that is not the name of a folder."""
    with pytest.raises(SealError) as refused:
        sealer(tmp_path).seal(claim_result(tmp_path / "contracts", run=run))
    assert isinstance(refused.value.__cause__, ValueError)
    assert repr(run) in str(refused.value)
    assert everything_below(tmp_path) == {
        "contracts",
        "contracts/F-DEMO-SORT-001",
        "contracts/F-DEMO-SORT-001/contract.json",
    }


def test_an_impatient_user_after_the_seal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption after sealing does not lose the bundle.

    Before that, neither a bundle nor a part of one exists.
    """

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.evidence.seal.sync_folder", interrupted)
    place = sealer(tmp_path).seal(claim_result(tmp_path))
    assert (place / "MANIFEST.sha256").is_file()
    monkeypatch.setattr("harness.evidence.seal.sync_tree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sealer(tmp_path).seal(claim_result(tmp_path, run="later"))
    assert list(place.parent.iterdir()) == [place]


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    """A run never replaces a bundle, not even its own."""
    bundle = sealed(tmp_path)
    before = (bundle / "MANIFEST.sha256").read_bytes()
    with pytest.raises(SealError, match="exists already"):
        sealed(tmp_path, output="another\n")
    assert (bundle / "MANIFEST.sha256").read_bytes() == before
    assert everything_below(bundle.parent) & {f".unfinished-{bundle.name}"} == set()


def test_what_nobody_could_verify_is_not_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealing refuses the sizes that verifying would not read."""
    monkeypatch.setattr("harness.evidence.bundle_layout.LARGEST_DOCUMENT", 40_000)
    with pytest.raises(SealError, match=r"\.json has \d+ bytes.*measure less"):
        sealed(tmp_path, measurements=healthy(values=[0.123456789] * 3000))
    assert find_bundles([tmp_path]) == []


def test_a_defect_of_ours_is_an_oserror_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine handles one kind of failure, so a defect of the harness is an OSError too."""

    def broken(*arguments: object) -> None:
        raise KeyError("no such figure")

    monkeypatch.setattr("harness.evidence.seal.mutant_line", broken)
    with pytest.raises(SealError, match="no such figure"):
        sealed(tmp_path)
    assert not any(path.is_file() for path in (tmp_path / "evidence").rglob("*"))


def test_a_trial_without_artifacts_or_steps_is_sealed(tmp_path: Path) -> None:
    """If no trial ran, the bundle has neither artifacts nor steps."""
    bundle = sealed(tmp_path, measurements={}, mutants={}, rows=0, output="")
    assert (bundle / "metrics.csv").read_text() == "step,seconds\n"
    assert verify(bundle).findings == ()


def test_a_sparse_artifact_is_named_by_its_size(tmp_path: Path) -> None:
    """A sparse file of enormous size does not end the run."""
    folder = tmp_path / "artifacts"
    folder.mkdir()
    (folder / "small.txt").write_text("small")
    with (folder / "sparse.bin").open("wb") as file:
        file.truncate(1 << 40)
    bundle = sealer(tmp_path).seal(claim_result(tmp_path, artifacts=folder))
    (small, sparse) = json.loads((bundle / "artifacts/INDEX.json").read_text())["artifacts"]
    assert (small["copied"], sparse["copied"], sparse["size"], sparse["sha256"]) == (True, False, 1 << 40, None)
    assert verify(bundle).sound


def test_thinned_rows_are_as_dense_as_they_can_be() -> None:
    """The stride is the smallest that fits, and the last row is there."""
    for count in range(1, 40):
        for limit in range(2, 12):
            rows, stride = trial_files.thinned(range(count), limit)
            assert (rows[0], rows[-1]) == (0, count - 1)
            assert len(rows) <= limit
            assert stride == next(number for number in range(1, 40) if (count - 1) / number <= limit - 1)
            assert rows == sorted({*range(0, count, stride), count - 1})


def test_the_folder_of_evidence_is_made_before_the_run(tmp_path: Path) -> None:
    """The folder is made with the folders above it.

    A second call changes nothing, and nothing is left in the folder.
    """
    folder = tmp_path / "a" / "b"
    for _ in range(2):
        Sealer(folder).prepare()
        assert list(folder.iterdir()) == []


def test_a_folder_of_evidence_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """The folder is refused, because a file is above it."""
    (tmp_path / "a").write_text("")
    with pytest.raises(SealError):
        Sealer(tmp_path / "a" / "b").prepare()
