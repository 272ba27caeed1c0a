"""The summary that reviewers read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from harness.base.vocabulary import Outcome, Verdict
from harness.contract.bound import Bound
from harness.contract.clauses import ClauseResult
from harness.evidence.staleness import coverage
from harness.report import summary
from harness.report.caveats import caveats
from tests.contracts import healthy
from tests.evidence.factory import DEFECTIVE, claim_result
from tests.report.texts import nasty, with_texts

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def rendered(folder: Path, **changes: Any) -> str:
    result = claim_result(folder, **changes)
    return summary.render(result.record, coverage(result.record, result.contract.subject))


def row(text: str, start: str) -> list[str]:
    """The cells of the table row whose first cell is this."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"profile": "full"}, "# PASS: F-DEMO-SORT-001"),
        ({}, "# PASS (reduced profile): F-DEMO-SORT-001"),
        ({"skipped": True}, "# PASS (unproven, reduced profile): F-DEMO-SORT-001"),
        ({"overrides": {"steps": 5}}, "# PASS (parameters overridden: steps=5, reduced profile): F-DEMO-SORT-001"),
        ({"measurements": healthy(returned=2)}, "# FAIL: F-DEMO-SORT-001"),
        ({"measurements": {}}, "# NOT_MEASURED: F-DEMO-SORT-001"),
        ({"mutants": {**DEFECTIVE, "forgets-one": {}}}, "# VOID: F-DEMO-SORT-001"),
    ],
)
def test_the_verdict_stands_in_the_first_line(tmp_path: Path, changes: Any, first: str) -> None:
    """With what narrows a PASS."""
    assert rendered(tmp_path, **changes).splitlines()[0] == first


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"skipped": True}, "**Unproven** (`MUTANTS_SKIPPED`): the mutants were skipped: nothing shows that this"),
        ({"overrides": {"steps": 5}}, "(`OVERRIDDEN`): this run has other parameters than the contract's: steps=5."),
        ({}, "**1 of 3 mutants not run**: `silent-fallback` (needs a CUDA GPU)."),
        ({"cut_short": True}, "**1 of 3 mutants not run**: `silent-fallback` (the run was interrupted)."),
        ({"cut_short": True}, "could have failed (the run was interrupted before all mutants had run)."),
        ({}, "**Reduced profile** (`REDUCED_PROFILE`): the claim speaks of the full profile; this is the r"),
        (
            {"target": {"device": "NVIDIA GB10", "compute_capability": "12.1"}},
            "**Not the claim's hardware** (`WRONG_TARGET`): the claim speaks of NVIDIA GB10, compute capability 12.1; "
            "this is CPU a CPU.",
        ),
        ({"commit": {"revision": "c" * 40, "dirty": True, "reason": None}}, "**Uncommitted changes** (`DIRTY_TREE`)"),
        ({"commit": {"revision": None, "dirty": None, "reason": "no git here"}}, "it is not known whether the check"),
    ],
)  # fmt: skip
def test_what_a_reader_must_know_is_said_plainly(tmp_path: Path, changes: Any, says: str) -> None:
    """Before any table."""
    text = rendered(tmp_path, **changes)
    assert says in text[: text.index("## Clauses")]


def test_nothing_is_held_against_a_full_run_on_the_target(tmp_path: Path) -> None:
    """No sentence of caution without cause."""
    record = claim_result(tmp_path, profile="full", target={"type": "cpu"}).record
    record = replace(record, mutants=record.mutants[:2])
    assert list(caveats(record, coverage(record, record.subject))) == []


def test_clauses_show_value_against_bound_the_failed_first(tmp_path: Path) -> None:
    """With the reason."""
    text = rendered(tmp_path, measurements=healthy(returned=2, smallest=...))
    table = text[text.index("## Clauses") : text.index("## Mutants")]
    assert "14 judged: 11 PASS, 1 FAIL, 2 NOT_MEASURED." in table
    assert (
        "Of the right type, too: `given.type`, `returned.type`, `largest.type`, `values.type`, `values[].type`."
        in table
    )
    names = re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)
    assert names[:4] == ["nothing-lost", "smallest.type", "ordered", "subject.completes"]
    assert row(text, "`nothing-lost`") == [
        "`nothing-lost`", "**FAIL**", "returned 2, given 3", "self.returned == self.given",
        "items were lost or made up",
    ]  # fmt: skip


def test_values_are_short_and_have_units(tmp_path: Path) -> None:
    """Four to six significant digits, bytes in binary units, NaN by name."""
    clauses = (
        ClauseResult("loss.maximum", Outcome.PASS, 1.123456789, Bound("maximum", 2), "nats"),
        ClauseResult("size.minimum", Outcome.PASS, 491_520_000, Bound("minimum", 1), "B"),
        ClauseResult("drift.maximum", Outcome.FAIL, float("nan"), Bound("maximum", 0.0001), "", "drift is not finite"),
        ClauseResult("losses.minItems", Outcome.PASS, [0.1] * 50, Bound("minItems", 50)),
    )
    text = rendered(tmp_path, clauses=clauses)
    assert row(text, "`loss.maximum`")[2] == "1.12346 nats"
    assert row(text, "`size.minimum`")[2] == "468.8 MiB"
    assert row(text, "`drift.maximum`")[2] == "nan"
    assert row(text, "`losses.minItems`")[2] == r"\[0.1, 0.1, 0.1, …\] (50)"


def test_the_kill_table_names_what_killed_each_mutant(tmp_path: Path) -> None:
    """And why the others were not."""
    text = rendered(tmp_path, mutants={**DEFECTIVE, "stops-early": {}})
    assert "## Mutants: 3 declared, 1 killed, 1 survived, 1 not run" in text
    assert row(text, "`forgets-one`") == [
        "`forgets-one`", "killed", "drops the first item", "`nothing-lost`", "`nothing-lost`", "1.25 s",
    ]  # fmt: skip
    assert row(text, "`stops-early`")[1::3] == ["**survived**", "it passed every clause"]
    assert row(text, "`silent-fallback`")[2] == r"runs on the CPU \| although CUDA was asked for"


def test_it_binds_code_and_says_how_to_reproduce(tmp_path: Path) -> None:
    """Digests in full."""
    text = rendered(tmp_path)
    assert row(text, "`falsifiers/demo/sorting.py`")[1] == f"`{'a' * 64}`"
    assert row(text, "commit")[1] == f"`{'c' * 40}`"
    assert "```sh\nharness run F-DEMO-SORT-001\n```" in text
    assert row(text, "steps") == ["steps", "3", "3"]


def test_what_was_not_read_back_is_said(tmp_path: Path) -> None:
    """Rather than left blank."""
    text = rendered(tmp_path, resolved={})
    assert row(text[text.index("## Requested") :], "device")[2] == "not read back"


def test_a_record_without_anything_is_rendered(tmp_path: Path) -> None:
    """As where no trial ran."""
    record = claim_result(tmp_path, clauses=(), sources={}, verdict=Verdict.NOT_MEASURED, target={}).record
    text = summary.render(replace(record, mutants=()), ())
    assert "None was judged." in text
    assert "## Mutants: 0 declared, none" in text


@SETTINGS
@given(text=nasty)
def test_no_text_breaks_out_of_its_place(tmp_path: Path, text: str) -> None:
    """Tables keep their columns, nothing becomes HTML or a mention, no character steers a terminal."""
    page = summary.render(record := with_texts(tmp_path, text), coverage(record, text))
    assert all(character == "\n" or character.isprintable() for character in page)
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        columns = {len(re.split(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(columns) == 1, table
    outside_code = re.sub(r"(?s)(`{3,})sh\n.*?\n\1|`[^`\n]*`", "", page)
    assert not re.search(r"[<>@]", outside_code)
