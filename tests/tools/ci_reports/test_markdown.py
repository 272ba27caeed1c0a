"""Comments on pull requests."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from harness.contract.contract_annotations import Refutation
from harness.contract.project import Project
from harness.evidence.staleness import ProjectState
from harness.evidence.verification import Against, verify_all
from harness.tools.ci_reports import ctrf, junit, markdown
from harness.tools.text_report import BundleResult, bundle_results
from tests.contracts import healthy, write_project
from tests.evidence.factory import claim_result, contract_in, rewrite, sealed, set_at
from tests.report.bundles import every_verdict, examined, unsound
from tests.report.texts import nasty, with_texts

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def blocks_are_whole(text: str) -> bool:
    """Whether every fold and code block is closed, and each table row has as many cells as its head."""
    fence, open_folds, cells = "", 0, 0
    for line in text.splitlines():
        if fence:
            fence = "" if line == fence else fence
            continue
        if opened := re.match("`{3,}", line):
            fence = opened[0]
        open_folds += (line == "<details>") - (line == "</details>")
        found = len(re.split(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        if open_folds not in (0, 1) or (cells and found and found != cells):
            return False
        cells = found
    return not fence and not open_folds


def test_another_subject_is_told_where_the_verdict_stands(tmp_path: Path) -> None:
    """The table, JUnit and CTRF name the other subject."""
    other = "falsifiers.demo.sorting:Forgetful"
    bundle = sealed(tmp_path, subject=other)
    rewrite(bundle, "observation.json", set_at("subject", other))
    bundles = bundle_results(verify_all([bundle]))
    text = markdown.render(bundles)
    assert "| PASS (another subject, reduced profile) | " in text
    assert f'<property name="subject" value="{other}"/>' in junit.render(bundles)
    (test, *_) = json.loads(ctrf.render(bundles))["results"]["tests"]
    assert test["tags"] == ["PASS", "another subject", "reduced profile"]
    assert test["extra"]["subject"] == other


def test_rows_say_what_sets_them_apart(tmp_path: Path) -> None:
    """A FAIL with other parameters is beside the contract's PASS. A PASS is stale, or of other hardware."""
    bundles = [
        sealed(tmp_path, run="a-pass"),
        sealed(tmp_path, run="b-fail", measurements=healthy(returned=2), overrides={"steps": 5}),
        sealed(tmp_path, run="c-elsewhere", contract=contract_in(tmp_path / "gb10", target={"device": "NVIDIA GB10"})),
    ]
    plain = markdown.render(bundle_results(verify_all(bundles)))
    rows = [line.split("|")[1].strip() for line in plain.splitlines() if line.startswith("|")][2:5]
    assert rows == [
        "**FAIL** (parameters overridden: steps=5)",
        "PASS (reduced profile)",
        "PASS (reduced profile, not the claim's hardware)",
    ]
    assert "### FAIL (parameters overridden: steps=5): F-DEMO-SORT-001" in plain
    project = Project.around(write_project(tmp_path / "elsewhere"))
    assert project is not None
    against = Against(state=ProjectState(project))
    assert "| PASS (reduced profile, stale) |" in markdown.render(
        bundle_results(verify_all(bundles[:1], against=against))
    )


def test_the_text(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The text has counts, table, value against bound, the surviving mutant, findings, and commands."""
    text = markdown.render(every_verdict(tmp_path))
    assert text.replace(str(tmp_path), "FOLDER") == snapshot
    assert blocks_are_whole(text)


def test_a_pass_has_only_a_row(tmp_path: Path) -> None:
    """The row says what narrows it."""
    record = claim_result(tmp_path, profile="full", target={"type": "cpu"}).record
    text = markdown.render([examined(record)])
    assert "2 of 3 mutants killed, 1 not run" in text
    assert text.splitlines()[-1].startswith("| PASS | ")


def test_no_bundle_is_said(snapshot: SnapshotAssertion) -> None:
    """A report without bundles has text."""
    assert markdown.render([]) == snapshot


@pytest.mark.parametrize("limit", [markdown.LEAST, 5000, 20_000, markdown.COMMENT])
def test_any_number_of_bundles_fits(tmp_path: Path, limit: int) -> None:
    """The number of omitted bundles is shown, and the counts include them."""
    record = claim_result(tmp_path, measurements=healthy(returned=2)).record
    bundles: list[BundleResult] = [examined(replace(record, id=f"F-{number}-001")) for number in range(700)]
    text = markdown.render([*bundles, *[unsound(f"{number}" * 50) for number in range(300)]], limit)
    assert len(text.encode()) <= limit
    assert "300 UNSOUND, 700 FAIL" in text
    assert "1,000 bundles of" in text
    assert blocks_are_whole(text)
    left_out = re.search(r"(\d+) rows", text.splitlines()[-1])
    rows = sum(line.startswith("| **") for line in text.split("\n\n###")[0].splitlines())
    assert int(left_out[1]) + rows == 1000 if left_out else rows == 1000


@SETTINGS
@given(
    text=nasty | st.sampled_from(["é" * 20_000, "|" * 5000, "</details>", "```", "<!--"]),
    limit=st.integers(markdown.LEAST, 9000),
)
def test_whatever_a_text_holds_it_fits_and_stays_whole(tmp_path: Path, text: str, limit: int) -> None:
    """No text ends a table, a fold or a block."""
    rendered = markdown.render([examined(with_texts(tmp_path, text)), unsound(text)], limit)
    assert len(rendered.encode()) <= limit
    assert blocks_are_whole(rendered)
    assert "1 UNSOUND, 1 " in rendered


def test_known_refutations_and_new_ones_stand_apart(tmp_path: Path) -> None:
    """A FAIL that the contract knows has no section of its own; one that differs from it has."""
    path = sealed(tmp_path, run="b-fail", measurements=healthy(returned=2))
    (plain,) = bundle_results(verify_all([path]))
    assert plain.record is not None
    failed = plain.record.result.failed
    known = Refutation("2026-11-23", "CPU", plain.record.profile, failed, "The source is wrong.")
    as_known = markdown.render([replace(plain, refutation=known)])
    as_new = markdown.render([replace(plain, refutation=replace(known, clauses=(*failed, "another")))])
    sections = [text.count(f"### FAIL: {plain.name}") for text in (as_known, as_new)]
    assert sections == [0, 1]
    assert ["### Known refutations" in text for text in (as_known, as_new)] == [True, False]
    assert "The source is wrong" in as_known
    assert "a GB10" in markdown.render([replace(plain, stands_in_for="a GB10")])
