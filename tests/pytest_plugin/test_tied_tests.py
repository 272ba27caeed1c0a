"""`pytest.mark.claim`: ordinary tests that belong to a claim."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.pytest_plugin.demo import FAILS, PASSES, write_demo

PLUGIN = ("-p", "harness.pytest_plugin", *(f"-pno:{name}" for name in ("anyio", "hypothesispytest", "syrupy", "xdist")))
TIED = f"""
import pytest

@pytest.mark.claim("{PASSES}")
class TestSorting:
    def test_one(self): pass

    @pytest.mark.claim("{PASSES}", "{FAILS}")
    def test_two(self): assert 0

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.claim("{FAILS}"))])
def test_number(n): pass

def test_other(): pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """The demo project as the current folder."""
    for name in ("CACHE", "LEASE"):
        monkeypatch.setenv(f"HARNESS_{name}_DIR", str(pytester.path / name.lower()))
    monkeypatch.setenv("NO_COLOR", "1")
    write_demo(pytester.path)
    return pytester


def test_reports_name_the_claims(project: pytest.Pytester) -> None:
    """JUnit has a property for each claim, once."""
    project.makepyfile(test_tied=TIED)
    project.runpytest_inprocess(*PLUGIN, "--strict-markers", "--junitxml=junit.xml").assert_outcomes(passed=4, failed=1)
    cases = ElementTree.parse(project.path / "junit.xml").iter("testcase")
    assert {case.get("name"): [element.get("value") for element in case.iter("property")] for case in cases} == {
        "test_one": [PASSES],
        "test_two": [PASSES, FAILS],
        "test_number[1]": [],
        "test_number[2]": [FAILS],
        "test_other": [],
    }


@pytest.mark.parametrize(
    ("choice", "count"),
    [(["-m", "claim"], 3), (["-m", "issue_DEMO-2"], 2), (["-k", PASSES], 2), (["-m", "spec_SPEC-DEMO-001"], 3)],
)
def test_tests_are_chosen_by_their_claim(project: pytest.Pytester, choice: list[str], count: int) -> None:
    """The markers are those that `pytest --claims` gives to the claim itself."""
    project.makepyfile(test_tied=TIED)
    result = project.runpytest_inprocess(*PLUGIN, "--collect-only", "-q", *choice)
    assert sum("::" in line for line in result.outlines) == count


def test_the_summary_has_the_tests_below_their_claim(project: pytest.Pytester) -> None:
    """One pytest run shows the claim's verdict and the outcomes of its tests."""
    project.makepyfile(test_tied=TIED)
    result = project.runpytest_inprocess(*PLUGIN, "--claims", "--claims-no-mutants", PASSES, "test_tied.py")
    lines = [" ".join(line.split()) for line in result.outlines]
    heads = [line for line in lines if line.startswith(("PASS ", "not run ", "tests: "))]
    assert [line.partition(" profile")[0] for line in heads] == [
        f"PASS {PASSES} full",
        "tests: 1 failed, 1 passed",
        f"not run {FAILS}",
        "tests: 1 failed, 1 passed",
    ]


def test_a_mark_that_names_no_claim_is_an_error(project: pytest.Pytester) -> None:
    """The file is not collected, so a wrong id is noticed."""
    marks = ["'F-DEMO-SRT-001'", "", "7", "['F-DEMO-SORT-001']", "id='F-DEMO-SORT-001'"]
    text = "import pytest\n\n@pytest.mark.claim({})\ndef test_one(): pass\n"
    project.makepyfile(**{f"test_{number}": text.format(mark) for number, mark in enumerate(marks)})
    result = project.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(errors=len(marks))
    result.stdout.fnmatch_lines(["*did you mean F-DEMO-SORT-001?"])


def test_outside_of_a_project_the_mark_means_nothing(pytester: pytest.Pytester) -> None:
    """Other libraries may use the same word."""
    pytester.makepyfile("import pytest\n\n@pytest.mark.claim('sub', of='token')\ndef test_one(): pass\n")
    pytester.runpytest_inprocess(*PLUGIN, "--strict-markers").assert_outcomes(passed=1)
