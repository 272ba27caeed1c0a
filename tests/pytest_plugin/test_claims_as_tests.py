"""`pytest --claims`: contracts as tests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.running.events import RunFinished
from tests.contracts import document, put, write_contract
from tests.pytest_plugin.demo import FAILS, NEEDS_CUDA, PASSES, VOID, write_demo

Run = Callable[..., pytest.RunResult]
PLUGIN = ("-p", "harness.pytest_plugin")
QUICK = tuple(f"-pno:{name}" for name in ("anyio", "hypothesispytest", "syrupy"))
"""Plugins that these tests do not need."""
HEAD = f"contracts/demo/{PASSES}/contract.json"


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo project as the current folder, with caches and leases of its own."""
    for name in ("CACHE", "LEASE"):
        monkeypatch.setenv(f"HARNESS_{name}_DIR", str(pytester.path / name.lower()))
    monkeypatch.setenv("NO_COLOR", "1")
    root = write_demo(pytester.path / "project")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def run(pytester: pytest.Pytester, folder: Path) -> Run:
    """Runs pytest with the plugin in the demo project, in this process."""

    def start(*arguments: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess(*PLUGIN, *QUICK, "-pno:xdist", *arguments)

    return start


def collected(result: pytest.RunResult) -> list[str]:
    """The names of the collected items."""
    return [line.rpartition("::")[2] for line in result.outlines if "::" in line and " " not in line]


def test_verdicts_become_outcomes(run: Run, folder: Path) -> None:
    """PASS passes, FAIL fails, NOT_MEASURED is skipped and VOID is an error, at the line of the contract.

    What is against a claim comes first in the summary.
    """
    result = run("--claims", "-rs", "--junitxml=junit.xml", "-o", "junit_family=xunit1")
    result.assert_outcomes(passed=1, failed=1, skipped=1, errors=1)
    cases = {case.get("name"): case for case in ElementTree.parse(folder / "junit.xml").iter("testcase")}
    assert {name: [part.tag for part in case if part.tag != "properties"] for name, case in cases.items()} == {
        PASSES: [],
        VOID: ["error"],
        FAILS: ["failure"],
        NEEDS_CUDA: ["skipped"],
    }
    assert {(case.get("file"), case.get("line")) for case in cases.values()} == {
        (f"contracts/demo/{name}/contract.json", "2") for name in cases
    }
    properties = {element.get("name"): element.get("value", "") for element in cases[FAILS].iter("property")}
    assert [properties[name] for name in ("claim", "verdict", "issue", "spec", "profile", "command")] == [
        FAILS, "FAIL", "DEMO-2", "SPEC-DEMO-001", "full", f"harness run {FAILS}"
    ]  # fmt: skip
    assert (Path(properties["evidence"]) / "record.json").is_file()
    (failure,) = cases[FAILS].iter("failure")
    assert "nothing-lost" in (failure.get("message") or "")
    assert any(line.split()[:3] == ["nothing-lost", "returned", "2,"] for line in (failure.text or "").splitlines())
    result.stdout.fnmatch_lines([f"SKIPPED [[]1[]] contracts/demo/{NEEDS_CUDA}/contract.json:3: *"])
    (section,) = (number for number, line in enumerate(result.outlines) if line.strip("= ") == "claims")
    words = [line.split() for line in result.outlines[section + 1 :] if not line.startswith(" ")]
    assert [line[:2] for line in words[:4]] == [
        ["FAIL", FAILS], ["VOID", VOID], ["NOT_MEASURED", NEEDS_CUDA], ["PASS", PASSES]
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "outcome"), [(FAILS, "xfailed"), (PASSES, "failed")])
def test_a_known_refutation_is_an_expected_failure(run: Run, folder: Path, name: str, outcome: str) -> None:
    """A claim that holds although its contract states a refutation fails."""
    path = folder / "contracts" / "demo" / name / "contract.json"
    known = {"since": "2026-11-23", "device": "CPU", "profile": "full", "explanation": "The source is wrong."}
    path.write_text(json.dumps({**json.loads(path.read_text()), "refuted": [{**known, "clauses": ["nothing-lost"]}]}))
    run("--claims", name).assert_outcomes(**{outcome: 1})


def test_strict_fails_what_was_not_measured(run: Run) -> None:
    """The table of clauses shows the reason."""
    result = run("--claims", "--claims-strict", NEEDS_CUDA)
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_options_are_those_of_a_run(run: Run, folder: Path) -> None:
    """The record has the chosen profile, device, mutants and folder."""
    run("--claims", PASSES, "--claims-profile=reduced", "--claims-device=cpu", "--claims-no-mutants",
        "--claims-evidence=elsewhere")  # fmt: skip
    (bundle,) = (folder / "elsewhere" / "DEMO-1" / PASSES).iterdir()
    record = json.loads((bundle / "record.json").read_text())
    assert record["command"] == f"harness run --profile reduced --device cpu --no-mutants {PASSES}"
    assert not (folder / "evidence").exists()


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["F-DEMO-SORT-*[24]"], [VOID, NEEDS_CUDA]),
        ([HEAD, FAILS], [PASSES, FAILS]),
        (["-k", FAILS], [FAILS]),
        (["-m", "device_cpu and issue_DEMO-1"], [PASSES, VOID]),
        (["-m", "spec_SPEC-GPU-001 or issue_DEMO-2"], [FAILS, NEEDS_CUDA]),
        (["-m", "profile_full", "--claims-profile=reduced"], [NEEDS_CUDA]),
    ],
    ids=lambda value: "-".join(value)[:40],
)
def test_claims_are_chosen(run: Run, arguments: list[str], names: list[str]) -> None:
    """Path, id, glob, -k and -m choose claims, also if unknown markers are refused. No claim runs."""
    assert collected(run("--claims", "--strict-markers", "--collect-only", "-q", *arguments)) == names


def test_the_first_failure_ends_the_session(run: Run) -> None:
    """With -x, the claims after the failure do not run."""
    result = run("--claims", "-x", FAILS, PASSES)
    result.assert_outcomes(failed=1)


@pytest.mark.parametrize("name", ["F-DEMO-SRT-001", "F-DEMO-NONE-*"])
def test_an_id_without_a_claim_is_refused(run: Run, name: str) -> None:
    """The refusal comes before anything is collected."""
    result = run("--claims", name)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: no claim '{name}' under *"])


def test_without_a_contract_or_a_project_there_is_an_error(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty run is an error, because it must not look green."""
    empty = folder.parent / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    assert run("--claims").ret == pytest.ExitCode.USAGE_ERROR
    (empty / "pyproject.toml").write_text("[tool.harness]\n")
    assert run("--claims").ret == pytest.ExitCode.USAGE_ERROR


def test_a_broken_contract_is_an_error_of_its_own_file(run: Run, folder: Path) -> None:
    """The error shows the problems with their JSON pointers."""
    write_contract(folder, document(id="F-DEMO-SORT-005", title=""))
    result = run("--claims")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*F-DEMO-SORT-005/contract.json: 1 problem", "*/title: *"])


def test_a_second_contract_of_a_claim_is_an_error(run: Run, folder: Path) -> None:
    """Neither contract runs, because their evidence would mix."""
    (folder / "contracts" / "other").mkdir()
    put(folder / "contracts" / "other" / PASSES / "contract.json", json.dumps(document(id=PASSES)))
    run("--claims", "-k", PASSES, "--collect-only").assert_outcomes(errors=2)


@pytest.mark.parametrize(
    ("subject", "outcome"), [("falsifiers.demo.sorting:Forgetful", "failed"), ("command:nowhere.toml", "errors")]
)
def test_the_settings_name_the_subject(run: Run, folder: Path, subject: str, outcome: str) -> None:
    """As for `harness run`. One that is refused is an error of the contract's file."""
    with (folder / "pyproject.toml").open("a") as settings:
        settings.write(f'subjects = {{ "{PASSES}" = "{subject}" }}\n')
    result = run("--claims", PASSES)
    result.assert_outcomes(**{outcome: 1})


def test_an_interrupted_claim_ends_the_session(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other claim runs, and the exit status is that of an interruption."""
    over = RunFinished(1, (), 0.1, True)
    monkeypatch.setattr("harness.pytest_plugin.contract_items.perform", lambda *arguments: (over, ()))
    result = run("--claims", PASSES, VOID)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes()


SLOW = """
    import os, time
    with open({place!r} + str(os.getpid()), "w") as span:
        span.write(str(time.monotonic()))
        time.sleep(0.3)
        span.write(" " + str(time.monotonic()))
"""


def test_workers_share_a_device_by_leases(pytester: pytest.Pytester, folder: Path) -> None:
    """Two claims that measure time run in two workers. No trial of one runs during a trial of the other."""
    pytest.importorskip("xdist")
    shutil.rmtree(folder / "contracts")
    with (folder / "falsifiers" / "demo" / "sorting.py").open("a") as module:
        module.write(SLOW.format(place=str(folder / "span-")))
    for name in ("F-DEMO-FIRST-001", "F-DEMO-SECOND-001"):
        write_contract(folder, document(id=name, lease="exclusive"))
    result = pytester.runpytest_subprocess(*PLUGIN, *QUICK, "-n2", "--claims", "--claims-no-mutants")
    result.assert_outcomes(passed=2)
    spans = sorted([float(moment) for moment in path.read_text().split()] for path in folder.glob("span-*"))
    assert len(spans) == 2
    assert spans[0][1] <= spans[1][0]


def test_without_the_option_contracts_are_no_tests(run: Run) -> None:
    """Without the option, the plugin does nothing."""
    result = run("--collect-only", "contracts")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
