"""`harness run` as a user types it: exit statuses, evidence and refusals."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import COMMAND, complaint, environment, harness
from tests.cli.outputs import assert_follows_schema
from tests.cli.toy_claim import CLAIM, bundles, record
from tests.execution.projects import write_project


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with defective subjects."""
    write_project(tmp_path)
    return tmp_path


@contextmanager
def changed(folder: Path) -> Iterator[dict[str, Any]]:
    """The claim's contract; the caller changes it, and it is written back."""
    path = folder / "contracts" / CLAIM / "contract.json"
    contract = json.loads(path.read_text())
    yield contract
    path.write_text(json.dumps(contract))


def test_a_claim_that_holds(folder: Path) -> None:
    """The claim is PASS with exit status 0, the mutant is killed, and the bundle verifies."""
    done = harness(folder, "run", CLAIM)
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    assert "identity  killed" in done.stdout
    assert "1 claim declared, 1 evaluated: 1 PASS, 0 FAIL, 0 NOT_MEASURED, 0 VOID" in done.stdout
    assert (record(folder)["verdict"], record(folder)["proven"]) == ("PASS", True)
    assert (record(folder)["limit_seconds"], record(folder)["pace"]) == (90.0, 1.0)
    assert harness(folder, "verify", "evidence").returncode == ExitStatus.PASS


def test_a_known_refutation(folder: Path) -> None:
    """It exits with 0 while the stated clauses fail; the verdict stays FAIL. If it holds, it exits with 1."""
    known = {"since": "2026-11-23", "device": "CPU", "profile": "reduced", "explanation": "The source is wrong."}
    for how, status, verdict in (("not at all", ExitStatus.PASS, "FAIL"), ("slowly", ExitStatus.FAIL, "PASS")):
        with changed(folder) as contract:
            contract["refuted"] = [{**known, "clauses": ["inversions.maximum"]}]
            contract["profiles"]["reduced"]["parameters"]["how"] = how
        done = harness(folder, "run", CLAIM)
        assert done.returncode == status, done.stdout + done.stderr
        assert record(folder)["verdict"] == verdict
        shutil.rmtree(folder / "evidence")


STATUSES = [
    ("segfaults", ExitStatus.FAIL),
    ("is killed", ExitStatus.NOT_MEASURED),
    ("falsifier raises", ExitStatus.NOT_MEASURED),
]


@pytest.mark.parametrize(("how", "status"), STATUSES, ids=[row[0] for row in STATUSES])
def test_exit_statuses(folder: Path, how: str, status: ExitStatus) -> None:
    """The exit status says whose defect it is. Every case leaves evidence."""
    assert harness(folder, "run", CLAIM, "-P", f"how={how}").returncode == status
    assert record(folder)["overrides"] == {"how": how}


def test_a_mutant_that_lives_voids_the_claim(folder: Path) -> None:
    """A falsifier that misses its mutant proves nothing: VOID, exit status 4."""
    with changed(folder) as contract:
        contract["mutants"][0]["parameters"] = {"how": "slowly"}
    done = harness(folder, "run", CLAIM)
    assert done.returncode == ExitStatus.VOID
    assert "identity  survived" in done.stdout


def test_skipped_mutants_are_said_everywhere(folder: Path) -> None:
    """The terminal, the record and `verify` show a PASS without mutants as unproven."""
    done = harness(folder, "run", CLAIM, "--no-mutants")
    assert done.returncode == ExitStatus.PASS
    assert "UNPROVEN" in done.stdout
    assert (record(folder)["proven"], record(folder)["mutants_skipped"]) == (False, True)
    assert "unproven" in harness(folder, "verify", "evidence").stdout.lower()


def test_a_mutant_that_cannot_run_here_is_not_counted_as_killed(folder: Path) -> None:
    """Such a mutant is listed as not run. Without another one, nothing is proven."""
    with changed(folder) as contract:
        contract["mutants"][0]["requires"] = {"device": "cuda", "gpus": 64}
    done = harness(folder, "run", CLAIM)
    assert done.returncode == ExitStatus.NOT_MEASURED
    assert "0 of 1 mutants killed, 1 not run" in done.stdout
    assert "  not run: identity (needs " in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "F-TOY-SORT-002"],
        ["run", "--issue", "TOY-2"],
        ["run", CLAIM, "--all"],
        ["run", CLAIM, "--issue", "TOY-1"],
        ["run", "--all", "--issue", "TOY-1"],
        ["run", "--all", "--spec", "TOY-9"],
        ["run", "--issue", "TOY-1", "--spec", "TOY-9"],
        ["run", "--all", "--except", "F-TOY-SORT-009"],
        ["run", CLAIM, "--except", CLAIM],
        ["run", CLAIM, "-P", "hows=well"],
        ["run", CLAIM, "-P", "items=many"],
        ["run", CLAIM, "--device", "gpu"],
        ["run", CLAIM, "--subject", "os:system"],
        ["run", CLAIM, "--no-such-option"],
        ["run", CLAIM, "--partition", "gpu"],
        ["run", CLAIM, "--executor-options=--time=1"],
        ["run", CLAIM, "--executor", "nowhere"],
        ["run", CLAIM, "--executor", "kubernetes"],
        ["no-such-command"],
    ],
    ids=" ".join,
)
def test_refusals(folder: Path, arguments: list[str]) -> None:
    """Invalid requests are refused with exit status 2 before anything runs."""
    done = harness(folder, *arguments)
    assert done.returncode == ExitStatus.REFUSED
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()
    assert bundles(folder) == []


def test_a_subject_named_by_its_file_is_told_how_to_name_it(folder: Path, snapshot: SnapshotAssertion) -> None:
    """The message shows the form of a subject's name."""
    done = harness(folder, "run", CLAIM, "--subject", "toy/sorting.py")
    assert complaint(done, folder) == snapshot


def test_where_nothing_runs_there_is_no_table(folder: Path) -> None:
    """The output says why, and which option would run the claim. There is no table of clauses."""
    with changed(folder) as contract:
        reduced = contract["profiles"]["reduced"]
        contract["profiles"]["full"] = {**reduced, "requires": {"device": "cuda", "memory_gib": 4000}}
    done = harness(folder, "run", CLAIM, "--profile", "full")
    assert done.returncode == ExitStatus.NOT_MEASURED
    title, verdict, _, why, evidence, count = done.stdout.splitlines()
    assert title == f"{CLAIM}  Sorting sorts"
    assert verdict.split()[:2] == ["NOT_MEASURED", CLAIM]
    assert "--profile reduced" in why
    assert evidence.startswith("  evidence: ")
    assert "1 NOT_MEASURED" in count
    assert harness(folder, "verify", "evidence").returncode == ExitStatus.PASS


def test_of_a_pattern_a_claim_without_the_profile_cannot_run(folder: Path) -> None:
    """A claim that a pattern selects is NOT_MEASURED without the profile. No line says that another profile ran."""
    done = harness(folder, "run", "F-TOY-SORT-*", "--profile", "full")
    assert done.returncode == ExitStatus.NOT_MEASURED
    assert "full: the contract has no such profile; --profile reduced would run here" in " ".join(done.stdout.split())
    assert "reduced profile" not in done.stdout
    assert len(bundles(folder)) == 1


def test_a_device_that_is_not_there(folder: Path) -> None:
    """The message says to leave out the option."""
    done = harness(folder, "run", CLAIM, "--device", "cuda:99")
    assert "--profile reduced --device cpu" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--device", "CUDA:1"), "did you mean cuda:1?"),
        (("--device", "gpu"), "did you mean cuda?"),
        (("-P", "HOW=well"), "did you mean how?"),
    ],
)
def test_what_was_meant(folder: Path, arguments: tuple[str, ...], hint: str) -> None:
    """An id is found in any case of its letters."""
    assert hint in " ".join(harness(folder, "run", CLAIM, *arguments).stderr.split())
    assert f"did you mean {CLAIM}?" in harness(folder, "show", CLAIM.lower()).stderr


def test_slurm_where_there_is_none(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """The message has the remedy."""
    monkeypatch.setenv("PATH", str(tmp_path))
    done = harness(folder, "run", CLAIM, "--executor", "slurm")
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, folder) == snapshot


def test_running_nothing_says_what_there_is_to_run(folder: Path, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """In a project without claims, the message does not recommend `harness list`."""
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "pyproject.toml").write_text("[tool.harness]\n")
    done = harness(tmp_path / "new", "run", "--all")
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, folder) == snapshot
    assert "`harness new` makes one" in done.stderr
    assert "`harness list` shows them" in harness(folder, "run", "--issue", "NO-1").stderr


def test_json_and_junit(folder: Path) -> None:
    """Standard output is one JSON document, progress goes to standard error, and JUnit goes to its file."""
    done = harness(folder, "run", CLAIM, "--json", "-", "--junit", "junit.xml")
    document = json.loads(done.stdout)
    assert_follows_schema("run", document)
    assert (document["declared"], document["evaluated"], document["verdicts"]["PASS"]) == (1, 1, 1)
    assert Path(document["records"][0]["bundle"]).is_dir()
    assert "killed" in done.stderr
    assert "<testsuite" in (folder / "junit.xml").read_text()


def test_junit_wants_a_file(folder: Path) -> None:
    """`-` is refused, because a report on standard output could not be replaced at the end."""
    done = harness(folder, "run", CLAIM, "--junit", "-")
    assert done.returncode == ExitStatus.REFUSED
    assert "--json -" in done.stderr
    assert not (folder / "-").exists()


def test_every_contract_that_is_refused_is_named(folder: Path) -> None:
    """Every refused contract is named, not only the first."""
    for name in ("F-TOY-SORT-001", "F-TOY-BROKEN-001"):
        path = folder / "contracts" / name / "contract.json"
        path.write_text(path.read_text().replace('"title"', '"titel"'))
    done = harness(folder, "run", "--all")
    assert done.returncode == ExitStatus.REFUSED
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()].count("harness") == 2
    assert all(f"{name}/contract.json" in done.stderr for name in ("F-TOY-SORT-001", "F-TOY-BROKEN-001"))


def test_evidence_that_cannot_be_written_is_refused_before_the_work(folder: Path, snapshot: SnapshotAssertion) -> None:
    """A run of hours must not end without a place for its bundle."""
    (folder / "evidence").write_text("a file is in the way")
    done = harness(folder, "run", CLAIM)
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, folder) == snapshot
    assert "subject" not in done.stdout


def test_scratch_leaves_its_bundle_in_the_temporary_folder(folder: Path, tmp_path: Path) -> None:
    """A run that seals nothing leaves no folder there."""
    (tmp_path / "temporary").mkdir()
    variables = {**environment(folder), "TMPDIR": str(tmp_path / "temporary")}
    ended = []
    for options in ([], ["--require-gpu", "--device", "cpu"]):
        command = [*COMMAND, "run", CLAIM, "--scratch", *options]
        ended.append(subprocess.run(command, cwd=folder, env=variables, capture_output=True, timeout=120).returncode)
    assert ended == [ExitStatus.PASS, ExitStatus.REFUSED]
    (above,) = (tmp_path / "temporary").glob("harness-scratch-*")
    (scratch,) = above.iterdir()
    (bundle,) = (scratch / "TOY-1" / CLAIM).iterdir()
    assert harness(folder, "verify", str(bundle)).returncode == ExitStatus.PASS
    assert bundles(folder) == []


def test_a_terminal_that_knows_no_other_letters(folder: Path) -> None:
    """A locale without our punctuation ends no run, and JSON stays valid."""
    path = folder / "contracts" / CLAIM / "contract.json"
    path.write_text(path.read_text().replace("Sorting sorts", "Sortieren \\ud83d\\ude00 …"))
    done = subprocess.run(
        [*COMMAND, "run", CLAIM, "--json", "-"],
        cwd=folder,
        env={**environment(folder), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == ExitStatus.PASS, done.stderr
    assert json.loads(done.stdout)["records"][0]["title"] == "Sortieren 😀 …"


@pytest.mark.parametrize("option", ["--json", "--junit"])
def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(folder: Path, option: str) -> None:
    """The message comes before the run, not after an hour of it."""
    done = harness(folder, "run", CLAIM, option, "pyproject.toml/report")
    assert done.returncode == ExitStatus.REFUSED
    assert bundles(folder) == []


def test_a_secret_is_no_parameter(folder: Path, snapshot: SnapshotAssertion) -> None:
    """A secret in a parameter is refused, because parameters become evidence."""
    done = harness(folder, "run", CLAIM, "-P", "how=hf_" + "a" * 30)
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, folder) == snapshot


def test_another_subject_is_said(folder: Path) -> None:
    """A PASS of --subject is marked, so that it differs from the claim's own."""
    done = harness(folder, "run", CLAIM, "--subject", "toy.sorting:Sorter")
    lines = done.stdout.splitlines()
    verdict = next(index for index, line in enumerate(lines) if line.startswith("PASS  "))
    assert "toy.sorting:Sorter" in lines[verdict + 1]
