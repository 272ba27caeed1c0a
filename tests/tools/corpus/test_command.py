"""The command, end to end, and the interface to other checkers."""

from __future__ import annotations

import ast
import json
import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.contract.project import Project
from harness.tools.corpus.campaign import Campaign, Round, ask_checker
from harness.tools.corpus.checker import Form, NotInScope
from harness.tools.corpus.command import command
from harness.tools.corpus.record import CASES, cases_of

ROOT = Path(__file__).parents[3]
QUICK = ("early-return", "exits-with-success")
KNOWN = {case.id: case for case in cases_of(ROOT)}


def called(*arguments: str) -> Result:
    """What the command answers."""
    return CliRunner().invoke(command, arguments, standalone_mode=False)


def picky(form: Form) -> None:
    """Finds mistakes in linear layers, has nothing to say of test suites, and dies of softmax."""
    if form.surface != "function":
        raise NotInScope("functions only")
    if "softmax" in form.parameters["against"]:
        os._exit(7)
    assert form.mended, f"{form.case} is not mended"


def test_two_cases_end_to_end(tmp_path: Path) -> None:
    """Each is caught, its mended form passes, and the record says so with a digest of each bundle."""
    file = tmp_path / "results.json"
    result = called("run", *QUICK, "--no-checkers", "--json", str(file), "--evidence", str(tmp_path / "evidence"))
    assert result.return_value == 0, result.output
    found = json.loads(file.read_text(encoding="utf-8"))
    assert found["rounds"] == [["reduced", 0]]
    cases = found["cases"]
    assert {name: one["fates"] for name, one in cases.items()} == {name: {"harness": "caught"} for name in QUICK}
    judged = [one for case in cases.values() for form in case["judged"].values() for one in form]
    bundles = [*(tmp_path / "evidence").glob("*/*/*")]
    digests = [sha256((path / "MANIFEST.sha256").read_bytes()).hexdigest() for path in bundles]
    assert sorted(digest for one in judged for digest in one["manifests"]) == sorted(digests)
    again = called("run", *QUICK, "--no-checkers", "--json", str(file), "--evidence", str(tmp_path / "more"))
    assert again.return_value == 0
    assert not (tmp_path / "more").exists()  # the round is there already
    assert json.loads(file.read_text(encoding="utf-8")) == found
    file.write_text(file.read_text(encoding="utf-8").replace('"caught"', '"missed"'))
    edited = called("run", *QUICK, "--no-checkers", "--json", str(file))
    assert edited.exception is not None
    assert "it was changed" in str(edited.exception)


def test_a_mistake_is_judged_until_it_is_refuted_and_one_mended_form_once(tmp_path: Path) -> None:
    """A claim that refuted the mistake would not be needed again. Two cases derive from one reference."""
    bypassed, kept = KNOWN["wrapper-bypassed"], KNOWN["output-norm-kept"]
    kept = replace(kept, claims={**kept.claims, "F-PD-LR-SCHED-001": {}})
    with Campaign.begun(Project.find(ROOT), [bypassed, kept], tmp_path, 2) as campaign:
        ((round_, found),) = campaign.judge([Round("reduced", 0)], lambda case, form, judged: None)
    assert round_ == Round("reduced", 0)
    claims = {
        case: {form: {one.claim: str(one.verdict) for one in judged} for form, judged in forms.items()}
        for case, forms in found.items()
    }
    ranks, schedule = kept.claims
    assert claims == {
        bypassed.id: {"failing": {ranks: "FAIL"}, "mended": {ranks: "PASS"}},
        kept.id: {"failing": {ranks: "FAIL"}, "mended": {ranks: "PASS", schedule: "PASS"}},
    }
    assert len({one.manifest for forms in found.values() for one in forms["mended"] if one.claim == ranks}) == 1


def test_other_checkers_answer_for_both_forms() -> None:
    """Found, accepted, not in scope; a process that dies has found something."""
    wanted = ("constant-of-zero-weights", "early-return", "replayed-buffer")
    cases = [one for one in cases_of(ROOT) if one.id in wanted]
    answers = ask_checker(Project.find(ROOT), f"{__name__}:picky", cases, 0)
    found = {(one.case, one.mended): one.answer for one in answers}
    assert found == {
        ("constant-of-zero-weights", False): "found", ("constant-of-zero-weights", True): "accepted",
        ("early-return", False): "not in scope", ("early-return", True): "not in scope",
        ("replayed-buffer", False): "found", ("replayed-buffer", True): "found",
    }  # fmt: skip


def test_an_unknown_case() -> None:
    """It is refused before anything runs."""
    result = called("run", "no-such-case")
    assert "there is no case no-such-case" in str(result.exception)


def test_the_list_has_every_case_in_order() -> None:
    """By year, for example."""
    output = called("list", "--sort", "year").output
    lines = [line.split("  ") for line in output.splitlines() if not line.startswith(" ")]
    assert {one[0] for one in lines} == {one.id for one in cases_of(ROOT)}
    years = [int(one[2]) for one in lines]
    assert years == sorted(years)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without cases, as the current folder."""
    (tmp_path / "pyproject.toml").write_text("[tool.harness]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_new_case_is_written_once(project: Path) -> None:
    """With what is known, and empty texts to fill in."""
    arguments = ("new", "my-case", "--kind", "data", "--source", "https://example.org/1")
    assert called(*arguments).return_value == 0
    content = json.loads((project / CASES / "data/my-case.json").read_text(encoding="utf-8"))
    assert (content["id"], content["source"], content["title"]) == ("my-case", "https://example.org/1", "")
    assert content["subject"] == "falsifiers.corpus.data:my_case"
    assert [*content["claims"]] == ["F-CORPUS-FUNCTION-001"]
    assert "is there already" in str(called(*arguments).exception)


@pytest.mark.parametrize(
    ("surface", "name"), [("function", "my_case"), ("suite", "my_case"), ("trainer", "MyCase"), ("other", "MyCase")]
)
def test_a_subject_to_begin_with(project: Path, surface: str, name: str) -> None:
    """It is code, and defines what the record names."""
    output = called(
        "new", "my-case", "--kind", "data", "--source", "https://example.org/1", "--surface", surface
    ).output
    code = output.partition("\n\n")[2].partition("\n\nChange the claims")[0]
    assert [one.name for one in ast.parse(code).body if isinstance(one, ast.FunctionDef | ast.ClassDef)] == [name]
    content = json.loads((project / CASES / "data/my-case.json").read_text(encoding="utf-8"))
    assert content["subject"] == f"falsifiers.corpus.data:{name}"


def test_an_id_that_leaves_its_folder(project: Path) -> None:
    """It is refused."""
    result = called("new", "../../mine", "--kind", "data", "--source", "https://example.org/1")
    assert "has other characters" in str(result.exception)
    assert not (project / CASES).exists()
