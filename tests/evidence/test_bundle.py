"""Sealing: a bundle is whole, or it is not there."""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from harness.base.schemas import schema_folder
from harness.contract.clauses import ClauseResult
from harness.evidence import series
from harness.evidence.bundle import Sealer, SealError
from harness.evidence.verify import find_bundles, verify
from harness.execution.steps import Steps
from harness.judging.observation import Observation
from harness.judging.record import MutantRecord, Record
from tests.contracts import healthy
from tests.evidence.factory import VIEWS, claim_result, contract_in, sealed, sealer

ROOT = Path(__file__).parents[2]
TRIAL = {"observation.json", "trial.json", "metrics.csv", "telemetry.csv", "stdout.log", "stderr.log"}


def everything_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_a_bundle_lies_at_its_place_with_all_its_files(tmp_path: Path) -> None:
    """evidence/<issue>/<claim>/<run>/, and nothing beside it."""
    bundle = sealed(tmp_path)
    assert bundle == tmp_path / "evidence/DEMO-1/F-DEMO-SORT-001/2026-11-20T201503Z-cpu-3f2a9c"
    assert [path.name for path in bundle.parent.iterdir()] == [bundle.name]
    files = {name for name in everything_below(bundle) if (bundle / name).is_file()}
    assert files == {
        "record.json", "contract.json", "environment.json", "junit.xml", "summary.md", "report.html", "MANIFEST.sha256",
        *TRIAL, *(f"mutants/{mutant}/{name}" for mutant in ("forgets-one", "stops-early") for name in TRIAL),
    }  # fmt: skip
    assert verify(bundle).findings == ()


def test_sha256sum_accepts_the_manifest(tmp_path: Path) -> None:
    """Whoever has no harness checks the files with what every machine has."""
    bundle = sealed(tmp_path)
    command = ["sha256sum", "--check", "--strict", "MANIFEST.sha256"]
    checked = subprocess.run(command, cwd=bundle, capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.count(": OK\n") == len([path for path in bundle.rglob("*") if path.is_file()]) - 1


def test_what_is_sealed_is_what_was_measured(tmp_path: Path) -> None:
    """Records and observations come back from their files, numbers that are not finite among them."""
    measured = healthy(smallest=math.nan, largest=math.inf, values=[0.1, 1e-300, -math.inf])
    result = claim_result(tmp_path, measurements=measured)
    bundle = sealer(tmp_path).seal(result)
    observation = Observation.load(bundle / "observation.json")
    assert repr(observation.measurements) == repr(measured)
    record = Record.from_json(json.loads((bundle / "record.json").read_text()))
    assert repr(record.to_json()) == repr(result.record.to_json())
    assert (bundle / "contract.json").read_bytes() == result.contract.path.read_bytes()
    assert verify(bundle).findings == ()


def test_texts_that_have_no_utf8_are_sealed_all_the_same(tmp_path: Path) -> None:
    """A file name in an exception can hold half of a surrogate pair."""
    result = claim_result(tmp_path, output="no such file: \udcff\n", reason="no such file: \udcff\x1b[31m")
    bundle = sealer(tmp_path).seal(result)
    assert Record.from_json(json.loads((bundle / "record.json").read_text())).reason == result.record.reason
    assert (bundle / "stdout.log").read_bytes() == b"no such file: \\udcff\n"
    assert verify(bundle).findings == ()


def test_metrics_hold_the_union_of_what_was_recorded(tmp_path: Path) -> None:
    """Step and seconds first, then every column that any step has; empty where it was not recorded."""
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


def test_a_full_bundle_with_twelve_mutants_stays_under_500_kilobytes(tmp_path: Path) -> None:
    """Every log at its limit, every series of ten thousand rows; what is left out is counted."""
    mutants = [
        {"id": f"mutant-{number}", "subject": "a.b:C", "violates": ["nothing-lost"], "defect": "loses an item"}
        for number in range(12)
    ]
    contract = contract_in(tmp_path, mutants=mutants)
    bundle = sealed(
        tmp_path,
        contract=contract,
        mutants={mutant["id"]: {"returned": 2} for mutant in mutants},
        rows=10_000,
        output="a line of the log, with words\n" * 2180,
    )
    assert sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file()) < 500_000
    kept = json.loads((bundle / "mutants/mutant-3/trial.json").read_text())
    rows = list(csv.DictReader((bundle / "mutants/mutant-3/telemetry.csv").open(newline="")))
    assert kept["telemetry"]["rows"] == 10_000
    assert kept["telemetry"]["kept"] == len(rows) <= series.MUTANT.telemetry_rows
    assert [rows[0]["seconds"], rows[1]["seconds"]] == ["0.0", str(kept["telemetry"]["stride"] / 4)]
    assert rows[-1]["rss_bytes"] == str(kept["telemetry"]["peaks"]["rss_bytes"]) == "19999"
    assert "bytes left out here" in (bundle / "mutants/mutant-3/stdout.log").read_text()
    assert verify(bundle).findings == ()


@pytest.mark.parametrize("count", [0, 1, 2, 9, 10, 11, 19, 20, 101, 1000])
def test_thinning_keeps_both_ends_and_the_limit(count: int) -> None:
    """Evenly spaced, except before the last."""
    kept, stride = series.thinned(range(count), 10)
    assert len(kept) <= 10
    assert kept == sorted({*range(0, count, stride), *([count - 1] if count else [])})


# Artifacts


def test_small_artifacts_are_copied_and_all_are_listed(tmp_path: Path) -> None:
    """What is large, a link, a pipe, or git's stands in the index only."""
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
    assert index["pipe"]["reason"] == "neither a file nor a folder"
    assert {".gitignore", "INDEX.json", "two\nlines", "half\udcff"} <= set(index)
    assert verify(bundle).findings == ()


def test_artifacts_together_have_a_limit(tmp_path: Path) -> None:
    """A megabyte is copied, the rest named."""
    left = tmp_path / "left"
    left.mkdir()
    for number in range(8):
        (left / f"{number}.bin").write_bytes(b"x" * 200_000)
    bundle = sealed(tmp_path, artifacts=left)
    copied = list((bundle / "artifacts").glob("*.bin"))
    assert len(copied) == 5
    assert verify(bundle).findings == ()


def test_a_thousand_artifacts_are_listed_and_the_rest_counted(tmp_path: Path) -> None:
    """Nor does the number make a bundle that cannot be verified."""
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
    """Somebody edits the contract while a long run is under way: the bundle keeps the one that was run."""
    result = claim_result(tmp_path)
    before = result.contract.path.read_bytes()
    result.contract.path.write_bytes(before + b" ")
    assert (sealer(tmp_path).seal(result) / "contract.json").read_bytes() == before


@pytest.mark.parametrize("run", ["../../outside", "", ".", "a/b", ".hidden", "a\nb", "x" * 200])
def test_a_run_cannot_leave_its_folder(tmp_path: Path, run: str) -> None:
    """Whatever an id says, nothing is written."""
    with pytest.raises(SealError, match="cannot be the name of a folder"):
        sealer(tmp_path).seal(claim_result(tmp_path / "contracts", run=run))
    assert everything_below(tmp_path) == {"contracts", "contracts/F-DEMO-SORT-001.json"}


def test_an_impatient_user_after_the_seal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundle is there, so it is told of; before, there is none and nothing that looks like one."""

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.evidence.bundle.sync_folder", interrupted)
    place = sealer(tmp_path).seal(claim_result(tmp_path))
    assert (place / "MANIFEST.sha256").is_file()
    monkeypatch.setattr("harness.evidence.bundle.sync_tree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sealer(tmp_path).seal(claim_result(tmp_path, run="later"))
    assert list(place.parent.iterdir()) == [place]


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    """Not even by itself."""
    bundle = sealed(tmp_path)
    before = (bundle / "MANIFEST.sha256").read_bytes()
    with pytest.raises(SealError, match="exists already"):
        sealed(tmp_path, output="another\n")
    assert (bundle / "MANIFEST.sha256").read_bytes() == before
    assert everything_below(bundle.parent) & {f".unfinished-{bundle.name}"} == set()


def test_what_nobody_could_verify_is_not_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealing refuses the sizes that verifying would not read."""
    monkeypatch.setattr("harness.evidence.bundle.LARGEST_DOCUMENT", 40_000)
    with pytest.raises(SealError, match=r"\.json has \d+ bytes.*measure less"):
        sealed(tmp_path, measurements=healthy(values=[0.123456789] * 3000))
    assert find_bundles([tmp_path]) == []


def test_a_view_that_breaks_is_an_oserror_too(tmp_path: Path) -> None:
    """The engine has one kind of failure to deal with."""

    def broken(record: Record, folder: Path) -> str:
        raise KeyError("no such figure")

    with pytest.raises(SealError, match="no such figure"):
        Sealer(tmp_path / "evidence", {**VIEWS, "summary.md": broken}).seal(claim_result(tmp_path))
    assert not any(path.is_file() for path in (tmp_path / "evidence").rglob("*"))


def test_views_have_fixed_names(tmp_path: Path) -> None:
    """What verifying does not know is not written."""
    with pytest.raises(ValueError, match=r"report\.pdf is no file of a bundle"):
        Sealer(tmp_path, {"report.pdf": lambda record, folder: ""})


# Disks that are full, read-only, or in the way


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 176 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=176k", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"needs to mount a filesystem: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_leaves_nothing_that_looks_like_a_bundle(small_disk: Path, tmp_path: Path) -> None:
    """The error names the place and what to do, and what was written is removed."""
    result = claim_result(tmp_path, output="x" * 60_000)
    with pytest.raises(SealError, match=r"was not sealed: .*No space left.*--evidence") as caught:
        sealer(small_disk).seal(result)
    assert caught.value.errno == errno.ENOSPC
    assert everything_below(small_disk) == {"evidence", "evidence/DEMO-1", "evidence/DEMO-1/F-DEMO-SORT-001"}
    smaller = claim_result(tmp_path, run="2026-11-20T201503Z-cpu-000000")
    assert verify(sealer(small_disk).seal(smaller)).sound


def test_a_limit_on_file_sizes_is_a_full_disk(tmp_path: Path) -> None:
    """As where no filesystem can be mounted: `ulimit -f` cuts a write short."""
    script = f"""
import resource, signal, sys
from pathlib import Path
from tests.evidence.factory import claim_result, sealer
result = claim_result(Path({str(tmp_path)!r}), output="x" * 60_000)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
try:
    sealer(Path({str(tmp_path)!r})).seal(result)
except OSError as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert "was not sealed" in ended.stdout, ended.stderr
    assert "ulimit -f" in ended.stdout
    assert not any(path.is_file() for path in (tmp_path / "evidence").rglob("*"))


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    """Where the evidence folder should be."""
    (tmp_path / "evidence").write_text("")
    with pytest.raises(SealError, match="--evidence"):
        sealed(tmp_path)


def test_a_folder_without_permission_is_named(not_root: Path) -> None:
    """With the remedy."""
    (not_root / "evidence").mkdir(mode=0o500)
    with pytest.raises(SealError, match="make the folder writable"):
        sealed(not_root)


def test_a_trial_without_artifacts_or_steps_is_sealed(tmp_path: Path) -> None:
    """As where no trial ran at all."""
    bundle = sealed(tmp_path, measurements={}, mutants={}, rows=0, output="")
    assert (bundle / "metrics.csv").read_text() == "step,seconds\n"
    assert verify(bundle).findings == ()


def test_the_schema_of_a_record_has_its_fields_and_no_others() -> None:
    """What `to_json` writes and what the schema allows are one thing, kept in two places."""
    schema = json.loads((schema_folder() / "record.schema.json").read_text())
    parts = {Record: schema, MutantRecord: schema["$defs"]["mutant"], ClauseResult: schema["$defs"]["clause"]}
    for kind, part in parts.items():
        names = {field.name for field in fields(kind)} | ({"format"} if kind is Record else set())
        late = {"subject_parameters", "unjudged"}  # not in bundles of before they were there
        optional = late if kind is Record else set()
        assert set(part["properties"]) == set(part["required"]) | optional == names
        assert part["additionalProperties"] is False


@pytest.mark.parametrize("name", ["record", "environment", "trial", "artifacts"])
def test_schemas_are_schemas(name: str) -> None:
    """Of draft 2020-12, closed at the top, with an identifier of their own."""
    schema = json.loads((schema_folder() / f"{name}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:falsifier-harness:{name}:1"
    assert schema["additionalProperties"] is False
