"""`harness status` and `harness run --stale` as a user types them, on evidence of real runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import complaint, harness
from tests.contracts import document, write_contract, write_project

CLAIM = "F-DEMO-SORT-001"
MACHINE = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one claim for any CPU."""
    root = write_project(tmp_path, document(target={"type": "cpu"}))
    for package in ("falsifiers", "falsifiers/demo"):  # or Python would find those of this repository first
        (root / package / "__init__.py").touch()
    return root


def status(project: Path, *arguments: str) -> dict[str, Any]:
    """Return the output of `harness status --json`."""
    printed: dict[str, Any] = json.loads(harness(project, "status", "--json", *arguments).stdout)
    return printed


def gaps(project: Path, *arguments: str) -> set[str]:
    """The names of the gaps that `harness status --json` shows."""
    return {name for name, items in status(project, *arguments)["gaps"].items() if items}


def edit(project: Path, old: str, new: str, file: str = "falsifiers/demo/sorting.py") -> None:
    """Change a source file of the project."""
    path = project / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def told(done: subprocess.CompletedProcess[str]) -> str:
    """The output of a command, without the parts that differ between runs and machines."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d{6}Z-\S+-[0-9a-f]{6}", "RUN", done.stdout)
    return text.replace(MACHINE.replace("_", "\\_"), "MACHINE").replace(MACHINE, "MACHINE")


def test_from_unrun_to_discharged_to_stale(project: Path) -> None:
    """A change of the subject makes the evidence stale. If the change is undone, the evidence counts again."""
    assert status(project)["claims"][0]["status"] == "UNRUN"
    assert harness(project, "run", CLAIM).returncode == 0
    (bundle,) = (project / "evidence" / "DEMO-1" / CLAIM).iterdir()
    (claim,) = status(project)["claims"]
    assert (claim["status"], claim["newest"]["bundle"]) == ("DISCHARGED", str(bundle.relative_to(project)))

    verified = harness(project, "verify", "evidence", "--fail-on", "WRONG_TARGET,REDUCED_PROFILE")
    assert (verified.returncode, "WRONG_TARGET" in verified.stdout) == (0, False)
    assert f"{CLAIM}: full\n" in harness(project, "doctor").stdout

    edit(project, "return sorted(items)", "return list(sorted(items))")
    (claim,) = status(project)["claims"]
    (cell,) = claim["devices"].values()
    assert (claim["status"], cell["status"], "falsifiers/demo/sorting.py" in cell["reason"]) == ("STALE", "STALE", True)
    edit(project, "return list(sorted(items))", "return sorted(items)")
    assert status(project)["claims"][0]["status"] == "DISCHARGED"


def test_the_text(project: Path, snapshot: SnapshotAssertion) -> None:
    """A claim is UNRUN, then DISCHARGED with a FAIL set aside, then STALE, with gaps."""
    texts = {"unrun": told(harness(project, "status"))}
    assert harness(project, "run", CLAIM).returncode == 0
    edit(project, "return sorted(items)", "return sorted(items)[1:]")
    assert harness(project, "run", CLAIM, "-P", "steps=5", "--no-mutants").returncode == ExitStatus.FAIL
    edit(project, "return sorted(items)[1:]", "return sorted(items)")
    write_contract(project, document(id="F-DEMO-OTHER-001"))
    (project / "SPEC.md").write_text("F-DEMO-LOST-002 holds.\n")
    texts["discharged"] = told(harness(project, "status"))
    edit(project, "return sorted(items)", "return list(sorted(items))")
    texts["stale"] = told(harness(project, "status", "--only", "stale"))
    assert texts == snapshot


GATES = {
    "falsified": (0, 0, 1),
    "stale,unrun": (3, 0, 0),
    "falsified,unrun": (3, 0, 1),
    "partial": (0, 0, 0),
    "discharged": (0, 3, 0),
    "never-full,never-killed": (3, 0, 0),
}
"""The exit status of each gate before a run, after a PASS and after a FAIL."""


def test_gates(project: Path) -> None:
    """The exit status is 1 for FALSIFIED, and 3 for any other named state."""

    def statuses() -> tuple[int, ...]:
        return tuple(harness(project, "status", "--fail-on", words).returncode for words in GATES)

    unrun = statuses()
    harness(project, "run", CLAIM)
    passed = statuses()
    edit(project, "        return sorted(items)\n\n\nclass", "        return sorted(items)[:2]\n\n\nclass")
    assert harness(project, "run", CLAIM).returncode == ExitStatus.FAIL
    assert harness(project, "status").returncode == 0
    assert dict(zip(GATES, zip(unrun, passed, statuses(), strict=True), strict=True)) == GATES


def test_only_what_is_wrong(project: Path) -> None:
    """Other claims are hidden, but the last line and gates still count them."""
    write_contract(project, document(id="F-DEMO-OTHER-001"))
    harness(project, "run", CLAIM)
    done = harness(project, "status", "--only", "unrun,falsified", "--fail-on", "discharged")
    assert done.returncode == 3
    assert CLAIM not in done.stdout
    assert done.stdout.splitlines()[0].startswith("UNRUN       F-DEMO-OTHER-001")
    assert gaps(project, "--only", "unrun,falsified") == set()
    assert done.stdout.endswith("2 claims: 1 DISCHARGED, 0 PARTIAL, 0 FALSIFIED, 0 STALE, 1 UNRUN\n")
    assert gaps(project, "--only", "never-full") == {"never_full"}
    assert [claim["id"] for claim in status(project, "--only", "discharged")["claims"]] == [CLAIM]


def test_a_gate_says_what_it_found(project: Path, snapshot: SnapshotAssertion) -> None:
    """An unknown state is refused."""
    done = harness(project, "status", "--fail-on", "stale, UNRUN")
    assert (done.returncode, done.stderr) == (3, "harness: --fail-on found unrun\n")
    done = harness(project, "status", "--fail-on", "broken")
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, project) == snapshot


def test_what_no_contract_covers(project: Path) -> None:
    """Gaps are ids in documents and sources, contracts that cannot run, and evidence without a contract."""
    harness(project, "run", CLAIM, "--no-mutants", "--profile", "reduced")
    shutil.copytree(project / "evidence", project / "old")
    (project / "SPEC.md").write_text(f"{CLAIM} and F-DEMO-LOST-002 hold.\nF-DEMO-LOST-002, not XF-DEMO-LOST-003.\n")
    (project / "old.bin").write_bytes(b"F-DEMO-BINARY-001\0")
    schemas = project / "contracts" / "schema"
    schemas.mkdir(exist_ok=True)
    (schemas / "contract.schema.json").write_text('"for example F-DEMO-EXAMPLE-001"')
    write_contract(project, document(id="F-DEMO-NOMUTANT-001", mutants=[]))
    write_contract(project, document(id="F-DEMO-NOCODE-001", falsifier="falsifiers.demo.gone:falsify"))
    done = harness(project, "status", "--json")
    assert done.returncode == ExitStatus.REFUSED
    gaps = json.loads(done.stdout)["gaps"]
    assert gaps["unclaimed"] == {"F-DEMO-LOST-002": ["SPEC.md:1", "SPEC.md:2"]}
    assert list(gaps["refused"]) == ["F-DEMO-NOCODE-001", "F-DEMO-NOMUTANT-001"]
    assert "no module falsifiers.demo.gone" in gaps["refused"]["F-DEMO-NOCODE-001"][0]
    assert (gaps["never_full"], gaps["never_killed"]) == ([CLAIM], {CLAIM: ["forgets-one"]})
    shutil.rmtree(project / "contracts" / "demo")
    write_contract(project, document(id="F-DEMO-OTHER-001"))
    assert status(project)["gaps"]["orphaned"] == {CLAIM: 1}
    (project / "pyproject.toml").write_text(
        "[tool.harness.mentions]\npattern = 'DEMO-[A-Z]+'\nexclude = ['*.py', 'contracts', 'DEMO-LOST', 'old']\n"
    )
    assert status(project)["gaps"]["unclaimed"] == {}  # an id is a whole word
    (project / "SPEC.md").write_text("DEMO-LOST and DEMO-FOUND")
    assert list(status(project)["gaps"]["unclaimed"]) == ["DEMO-FOUND"]


def test_only_some_claims(project: Path) -> None:
    """Claims can be chosen by id, issue, spec and device."""
    write_contract(project, document(id="F-DEMO-OTHER-001", issue="DEMO-2"))
    harness(project, "run", CLAIM)
    for arguments in ((CLAIM,), ("--issue", "DEMO-1")):
        assert [claim["id"] for claim in status(project, *arguments)["claims"]] == [CLAIM]
    assert len(status(project, "--spec", "SPEC-DEMO-001")["claims"]) == 2
    assert status(project, CLAIM, "--device", MACHINE)["claims"][0]["status"] == "DISCHARGED"
    assert status(project, CLAIM, "--device", "GB10")["claims"][0]["status"] == "UNRUN"
    done = harness(project, "status", "F-DEMO-OTHR-001")
    assert done.returncode == ExitStatus.REFUSED
    assert "F-DEMO-OTHER-001" in done.stderr


def test_a_project_names_the_subject_of_a_claim(project: Path) -> None:
    """`run` judges that one, `status` counts it as the claim's own, and the contract's has a row beside it."""
    assert harness(project, "run", CLAIM).returncode == 0
    settings = project / "pyproject.toml"
    plain = settings.read_text()
    settings.write_text(f'{plain}\n[tool.harness.subjects]\n"F-DEMO-*" = "falsifiers.demo.sorting:Forgetful"\n')
    assert harness(project, "run", CLAIM, "--no-mutants").returncode == ExitStatus.FAIL
    (claim,) = status(project)["claims"]
    (row,) = claim["subjects"].items()
    assert (claim["status"], row[0], row[1]["status"]) == ("FALSIFIED", "falsifiers.demo.sorting:Sorter", "DISCHARGED")
    settings.write_text(plain)
    assert status(project)["claims"][0]["status"] == "DISCHARGED"


def test_a_record_that_was_edited_is_not_believed(project: Path) -> None:
    """A FAIL that was edited to PASS passes no gate and leaves the claim due. Restored, it counts again."""
    edit(project, "        return sorted(items)\n\n\nclass", "        return sorted(items)[:2]\n\n\nclass")
    assert harness(project, "run", CLAIM).returncode == ExitStatus.FAIL
    (bundle,) = (project / "evidence" / "DEMO-1" / CLAIM).iterdir()
    record, manifest = bundle / "record.json", bundle / "MANIFEST.sha256"
    text, sealed = record.read_text(), manifest.read_text()
    said = f"{bundle.relative_to(project)}: record.json: is not the one that MANIFEST.sha256 seals"
    record.write_text(text.replace('"verdict": "FAIL"', '"verdict": "PASS"'))
    for command in (["status", "--fail-on", "falsified"], ["run", "--stale"]):
        done = harness(project, *command)
        assert (done.returncode, done.stderr.startswith(said)) == (ExitStatus.REFUSED, True)
    assert "git checkout -- PATH" in done.stderr
    record.write_text(text)
    assert harness(project, "status", "--fail-on", "falsified").returncode == ExitStatus.FAIL
    manifest.unlink()
    assert "MANIFEST.sha256 is missing" in harness(project, "status").stderr
    manifest.write_text(sealed)
    assert harness(project, "run", "--stale").returncode == ExitStatus.FAIL


def test_evidence_that_is_not_there(project: Path) -> None:
    """A named folder that does not exist passes no gate. The default folder of a new project may be missing."""
    assert not (project / "evidence").exists()
    assert harness(project, "status", "--fail-on", "falsified").returncode == ExitStatus.PASS
    done = harness(project, "status", "--evidence", "/no/such")
    assert done.returncode == ExitStatus.REFUSED
    assert "'/no/such'" in done.stderr


def test_a_project_without_claims(tmp_path: Path) -> None:
    """Without claims the exit status is not 0."""
    (tmp_path / "pyproject.toml").write_text("[tool.harness]\n")
    done = harness(tmp_path, "status")
    assert (done.returncode, done.stdout) == (
        ExitStatus.NOT_MEASURED,
        "0 claims: 0 DISCHARGED, 0 PARTIAL, 0 FALSIFIED, 0 STALE, 0 UNRUN\n",
    )


def test_running_what_is_stale(project: Path) -> None:
    """A new claim runs once, then only after a change, and only if the change concerns it."""
    write_contract(project, document(id="F-DEMO-OTHER-001"))
    first = harness(project, "run", "--stale")
    assert first.returncode == 0
    assert {line.split(":")[1] for line in first.stdout.splitlines() if line.startswith("due: ")} == {
        " F-DEMO-OTHER-001",
        f" {CLAIM}",
    }
    assert "2 claims: 2 due, 0 covered" in first.stdout
    second = harness(project, "run", "--stale", "--json", "records.json", "--junit", "junit.xml")
    assert second.returncode == 0
    assert second.stdout.startswith("nothing is stale: 2 claims: 0 due, 2 covered")
    assert second.stdout.splitlines()[-1].startswith("2 claims declared, 0 evaluated: ")
    written = json.loads((project / "records.json").read_text())
    assert (written["records"], [bundle["verdict"] for bundle in written["passed_over"]]) == ([], ["PASS", "PASS"])
    assert (written["declared"], written["evaluated"]) == (2, 0)
    suite = JUnitXml.fromfile(str(project / "junit.xml"))
    assert (suite.tests, suite.skipped, suite.errors, suite.failures) == (2, 2, 0, 0)
    contract = project / "contracts" / "demo" / CLAIM / "contract.json"
    contract.write_text(contract.read_text().replace("Sorting keeps", "Sorting will keep"))
    third = harness(project, "run", "--stale")
    assert third.returncode == 0
    assert f"due: {CLAIM}: STALE: " in third.stdout
    assert "2 claims: 1 due, 1 covered" in third.stdout
    assert "F-DEMO-OTHER-001" not in third.stdout
    assert len(list((project / "evidence").glob("*/*/*/record.json"))) == 3


def test_a_falsified_claim_is_not_run_again_and_not_forgotten(project: Path) -> None:
    """Its FAIL stands: exit status 1."""
    edit(project, "        return sorted(items)\n\n\nclass", "        return sorted(items)[:2]\n\n\nclass")
    assert harness(project, "run", "--stale").returncode == ExitStatus.FAIL
    again = harness(project, "run", "--stale", "--junit", "junit.xml")
    assert again.returncode == ExitStatus.FAIL
    assert JUnitXml.fromfile(str(project / "junit.xml")).failures == 1
    assert again.stdout.startswith(f"not due: {CLAIM} is FALSIFIED ")
    assert f" evidence/DEMO-1/{CLAIM}/" in again.stdout
    assert len(list((project / "evidence").glob("*/*/*/record.json"))) == 1


def test_evidence_that_does_not_count_leaves_a_claim_due(project: Path) -> None:
    """An unproven PASS, changed parameters, and a reduced run if the full one can run leave a claim due."""
    harness(project, "run", CLAIM, "--no-mutants")
    harness(project, "run", CLAIM, "--profile", "reduced")
    harness(project, "run", CLAIM, "-P", "steps=3", "--subject", "falsifiers.demo.sorting:Sorter")
    shown = harness(project, "run", "--stale", "--profile", "reduced")
    assert shown.stdout.startswith("nothing is stale")
    shown = harness(project, "run", "--stale")
    assert shown.stdout.startswith(f"due: {CLAIM}: ")
    assert harness(project, "run", "--stale").stdout.startswith("nothing is stale")


def test_what_cannot_run_here_is_not_due_here(project: Path) -> None:
    """The output says so. If no claim can run at all, the exit status is not 0."""
    full = {"requires": {"device": "any", "gpus": 9999}, "parameters": {"steps": 3}, "limits": {"seconds": 60}}
    write_contract(project, document(id="F-DEMO-HUGE-001", profiles={"full": full}))
    shown = harness(project, "run", "--stale")
    assert shown.returncode == 0
    (line,) = [line for line in shown.stdout.splitlines() if line.startswith("not for this machine: F-DEMO-HUGE-001: ")]
    assert "9999" in line
    assert "2 claims: 1 due, 0 covered, 1 " in shown.stdout
    assert harness(project, "run", "--stale", "F-DEMO-HUGE-001").returncode == ExitStatus.NOT_MEASURED


def test_a_claim_that_is_left_out_is_not_due(project: Path) -> None:
    write_contract(project, document(id="F-DEMO-OTHER-001"))
    shown = harness(project, "run", "--stale", "--all", "--except", "F-DEMO-OTH*")
    assert [line.split(": ")[1] for line in shown.stdout.splitlines() if line.startswith("due: ")] == [CLAIM]


@pytest.mark.parametrize(
    "option", [["--no-mutants"], ["-P", "steps=3"], ["--subject", "falsifiers.demo.sorting:Sorter"]]
)
def test_stale_with_what_would_make_no_evidence(project: Path, option: list[str]) -> None:
    """`--stale` is refused with options that would make no evidence, with the remedy."""
    done = harness(project, "run", "--stale", *option)
    assert done.returncode == ExitStatus.REFUSED
    assert "leave out" in done.stderr
