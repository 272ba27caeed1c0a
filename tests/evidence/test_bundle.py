"""The reader of bundles: each part is read alone, within limits, and no link is followed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base import schemas
from harness.base.schemas import schema_folder
from harness.base.vocabulary import Outcome
from harness.contract.clauses import ClauseResult
from harness.evidence import bundle_layout
from harness.evidence.bundle import Bundle, BundleError
from harness.evidence.bundle_layout import MUTANTS
from harness.evidence.trial_files import Stream, TrialLogError, parse_log, sections
from harness.execution.logs import Log
from harness.judging.record import MutantRecord, Record
from tests.contracts import observe
from tests.evidence.factory import claim_result, rewrite, sealer, set_at, trial

PARTS: dict[str, Callable[[Bundle], Any]] = {
    "record.json": lambda bundle: bundle.record,
    "contract.json": lambda bundle: bundle.contract,
    "observation.json": lambda bundle: bundle.observation,
    "environment.json": lambda bundle: bundle.environment,
    "metrics.csv": lambda bundle: bundle.metrics,
    "telemetry.csv": lambda bundle: bundle.telemetry,
    "mutants.jsonl": lambda bundle: bundle.mutants,
    "trials.log": lambda bundle: bundle.logs,
    "MANIFEST.sha256": lambda bundle: bundle.manifest,
}


def test_every_part_is_read(tmp_path: Path) -> None:
    result = claim_result(tmp_path)
    bundle = Bundle(sealer(tmp_path).seal(result))
    assert set(PARTS) == {*bundle_layout.REQUIRED, bundle_layout.MANIFEST}
    assert bundle.record == result.record
    assert bundle.contract.digest == result.contract.digest
    assert bundle.observation == result.subject.observation
    assert bundle.environment == result.environment
    assert bundle.metrics.columns["step"] == (0, 1, 2)
    assert bundle.telemetry.columns["rss_bytes"] == (10_000, 10_001, 10_002)
    assert list(bundle.mutants) == ["forgets-one", "stops-early"]
    assert bundle.logs["subject", "stdout"].text == "hello\n"
    assert (bundle.artifacts, bundle.counterexample, bundle.attestation) == ((), None, None)
    assert set(bundle.manifest) == set(bundle_layout.REQUIRED)


def test_mutants_are_judged_by_the_reader(pristine: Path) -> None:
    """The reader judges the mutants once, for all its users."""
    judgments = Bundle(pristine).mutant_judgments
    failed = {name: [clause.id for clause in judged.with_outcome(Outcome.FAIL)] for name, judged in judgments.items()}
    assert failed["forgets-one"] == ["nothing-lost"]
    assert "given.const" in failed["stops-early"]


@pytest.mark.parametrize(
    ("steps", "place"),
    [(("failed",), "/forgets-one/failed"), (("observation", "seed"), "/forgets-one/observation/seed"),
     (("counterexample",), "/forgets-one/counterexample"), (("id",), "/0/id")],
)  # fmt: skip
def test_a_defect_of_a_mutants_line_has_its_place(bundle: Path, steps: tuple[str, ...], place: str) -> None:
    """The place is the mutant's id, or the number of the line if there is no valid id."""
    rewrite(bundle, MUTANTS, set_at("forgets-one", *steps, -1))
    with pytest.raises(BundleError) as refused:
        _ = Bundle(bundle).mutants
    assert place in [problem.pointer for problem in refused.value.problems]


@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_cannot_be_read_leaves_the_others(bundle: Path, name: str) -> None:
    """The error names the file. Links are not followed, pipes are not waited for, and sparse files are not read."""

    def absent(path: Path) -> None:
        path.unlink()

    def link(path: Path) -> None:
        path.rename(bundle.parent / "outside")
        path.symlink_to(bundle.parent / "outside")

    def pipe(path: Path) -> None:
        path.unlink()
        os.mkfifo(path)

    def hole(path: Path) -> None:
        path.unlink()
        path.touch()
        os.truncate(path, 1 << 40)

    def noise(path: Path) -> None:
        path.unlink()
        path.write_bytes(b"\xff\xfe{")

    for spoil in (link, pipe, hole, noise, absent):
        spoil(bundle / name)
        reader = Bundle(bundle)
        for other, part in PARTS.items():
            if other == name:
                with pytest.raises(BundleError) as error:
                    part(reader)
                assert error.value.file == name
            else:
                part(reader)


def test_a_part_that_is_broken_can_be_left_out(bundle: Path) -> None:
    """A part that is broken is replaced by its default."""
    (bundle / "metrics.csv").write_text("")
    assert Bundle(bundle).attempt(lambda opened: opened.metrics, None) is None


def test_an_error_tells_five_problems_and_600_characters() -> None:
    """The error has five problems and 600 characters. The exception keeps all problems."""
    problems = [schemas.Problem(f"/{number}", "x" * 20) for number in range(6)]
    error = BundleError("a.json", problems)
    assert str(error) == "a.json: " + "; ".join(map(str, problems[:5]))
    assert error.problems == tuple(problems)
    long = [schemas.Problem("/0", "x" * 700)]
    assert str(BundleError("a.json", long)) == "a.json: " + str(long[0])[:600]


def test_reading_is_lazy(bundle: Path) -> None:
    """A part that is not requested is not opened."""
    reader = Bundle(bundle)
    assert reader.record.id == "F-DEMO-SORT-001"
    for name in bundle_layout.REQUIRED:
        (bundle / name).unlink()
    assert reader.record.id == "F-DEMO-SORT-001"


streams = st.text(st.characters(codec="utf-8"), max_size=60) | st.just(
    "==> mutant x stdout: 1 bytes, sha256 " + "0" * 64 + "; 1 follow\nx\n"
)


@given(stdout=streams, stderr=streams)
def test_no_output_passes_for_that_of_another_trial(stdout: str, stderr: str) -> None:
    """No output of a trial can be read as the heading of another trial."""
    result = trial(observe({}))
    texts = {"log": "did\n", "stdout": stdout, "stderr": stderr}
    logs = {name: Log(text, len(text.encode()), "a" * 64) for name, text in texts.items()}
    content = b"".join(sections("subject", type(result)(**{**vars(result), **logs}), 1 << 16))
    expected = {("subject", name): Stream(text, len(text.encode()), "a" * 64) for name, text in texts.items() if text}
    assert parse_log(content) == expected
    if content:
        with pytest.raises(TrialLogError):
            parse_log(content[:-1])


def test_a_line_that_is_no_json_has_its_number(bundle: Path) -> None:
    """The finding has the number of the line. All other lines are read."""
    content = (bundle / MUTANTS).read_bytes()
    (bundle / MUTANTS).write_bytes(content + b"{\n" + content.splitlines()[0][:-1] + b"\n")
    with pytest.raises(BundleError) as refused:
        _ = Bundle(bundle).mutants
    count = len(content.splitlines())
    assert [problem.pointer for problem in refused.value.problems] == [f"/{count}", f"/{count + 1}"]


@pytest.mark.parametrize(
    ("format_", "is_newer"), [(1, False), (10**9, True), ("10", False), (None, False), (True, False), ("x" * 50, False)]
)
def test_a_record_of_another_format_says_what_to_do(bundle: Path, format_: Any, is_newer: bool) -> None:
    """A record of a later format asks for a later version of the harness. An earlier format is no longer read."""
    rewrite(bundle, "record.json", set_at("format", format_))
    with pytest.raises(BundleError) as refused:
        _ = Bundle(bundle).record
    (problem,) = refused.value.problems
    assert problem.pointer == "/format"
    assert problem.message.startswith(f"is of format {str(format_)[:40]}; ")
    assert problem.remedy.startswith("verify it with the later version" if is_newer else "run the claim again")


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("step,seconds\n", {"step": (), "seconds": ()}),
        ("step,seconds,a\n0,0.5,\n1,1,x\n", {"step": (0.0, 1.0), "seconds": (0.5, 1.0), "a": (None, None)}),
        ("step,seconds,a\n,,-Infinity\n", {"step": (None,), "seconds": (None,), "a": (-math.inf,)}),
        ("", "the first columns are , not step, seconds"),
        ("seconds,step\n", "the first columns are seconds, step, not step, seconds"),
        ("step\n", "the first columns are step, not step, seconds"),
        ("step,seconds,a,a\n", "a column occurs twice"),
        ("step,seconds\n0,1\n2\n", "line 3 has 1 cells, the header 2"),
        ("step,seconds\n0,1,2\n", "line 2 has 3 cells, the header 2"),
        (f"step,seconds\n0,1\n0,{'x' * 50}\n", f"line 3: seconds is '{'x' * 40}', not a number"),
        ("step,seconds\nzero,1\n", "line 2: step is 'zero', not a number"),
    ],
)
def test_a_series_is_read_to_the_cell(bundle: Path, text: str, columns: Any) -> None:
    """The first columns have numbers or nothing. In the other columns, a text is read as a missing value."""
    (bundle / "metrics.csv").write_text(text)
    if isinstance(columns, str):
        with pytest.raises(BundleError) as refused:
            _ = Bundle(bundle).metrics
        assert [problem.message for problem in refused.value.problems] == [columns]
    else:
        assert Bundle(bundle).metrics.columns == columns


def test_a_trial_that_is_there_twice_has_its_line(bundle: Path) -> None:
    """The finding has the line of the second trial. A file that was cut short has one too."""
    content = (bundle / MUTANTS).read_bytes()
    lines = content.splitlines(keepends=True)
    (bundle / MUTANTS).write_bytes(content + lines[0])
    with pytest.raises(BundleError) as refused:
        _ = Bundle(bundle).mutants
    assert [(problem.pointer, problem.message) for problem in refused.value.problems] == [
        (f"/{len(lines)}", "has the trial of forgets-one a second time")
    ]
    (bundle / MUTANTS).write_bytes(content[:-1])
    with pytest.raises(BundleError) as refused:
        _ = Bundle(bundle).mutants
    assert [problem.message for problem in refused.value.problems] == [
        "does not end in a newline: it may have been cut short"
    ]


def test_the_schema_of_a_record_has_its_fields_and_no_others() -> None:
    """`to_json` and the schema have the same fields."""
    schema = json.loads((schema_folder() / "record.schema.json").read_text())
    parts = {Record: schema, MutantRecord: schema["$defs"]["mutant"], ClauseResult: schema["$defs"]["clause"]}
    for kind, part in parts.items():
        names = {field.name for field in fields(kind)} | ({"format"} if kind is Record else set())
        late = {
            Record: {
                *("isolated", "limit_seconds", "pace", "predicted", "subject_parameters", "unjudged", "waited_seconds"),
                "withdrawn",
            },
            MutantRecord: {"values"},
        }  # not in older bundles
        assert set(part["properties"]) == set(part["required"]) | late.get(kind, set()) == names
        assert part["additionalProperties"] is False
