"""The files of trials, to the byte."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import Fate
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence import trial_files
from harness.evidence.trial_files import (
    SUBJECT,
    Stream,
    TrialLogError,
    json_bytes,
    mutant_line,
    parse_log,
    sections,
    series_of,
    subject_files,
    thinned,
    trial_of,
)
from harness.execution.logs import Log, Steps
from harness.judging.judge import judge
from harness.judging.verdict import fate_of
from harness.search.counterexample import Counterexample
from tests.contracts import contract_of, document, healthy, observe
from tests.evidence.factory import contract_in, trial


@pytest.mark.parametrize(
    ("count", "limit", "kept", "stride"),
    [
        (0, 2, [], 1),
        (2, 2, [0, 1], 1),
        (3, 2, [0, 2], 2),
        (4, 3, [0, 2, 3], 2),
        (5, 3, [0, 2, 4], 2),
        (6, 3, [0, 3, 5], 3),
        (7, 7, [0, 1, 2, 3, 4, 5, 6], 1),
        (10, 4, [0, 3, 6, 9], 3),
        (11, 4, [0, 4, 8, 10], 4),
        (12, 7, [0, 2, 4, 6, 8, 10, 11], 2),
    ],
)
def test_rows_are_thinned_evenly(count: int, limit: int, kept: list[int], stride: int) -> None:
    """The first and the last row stay. The number of rows is within the limit."""
    assert thinned(range(count), limit) == (kept, stride)


def test_a_long_series_is_thinned_and_says_so(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    monkeypatch.setattr(trial_files, "MOST_SAMPLES", 3)
    result = trial(observe({}), rows=6)
    assert series_of(result) == snapshot(name="summary")
    assert dict(subject_files(result))["telemetry.csv"].decode().splitlines() == snapshot(name="telemetry")


def test_a_step_has_a_cell_for_every_column() -> None:
    """After the step and its seconds, the columns are in the order in which steps name them."""
    rows = (
        {"loss": 1.5, "step": 0, "seconds": 0.25},
        {"step": 1, "seconds": 1, "text": 'a, "b"', "none": None, "loss": math.nan},
        {"step": 2, "seconds": 2.0, "flag": True, "loss": -math.inf, "text": "\udc80"},
    )
    result = replace(trial(observe({})), steps=Steps(rows, 30))
    assert dict(subject_files(result))["metrics.csv"].decode() == (
        'step,seconds,loss,text,none,flag\n0,0.25,1.5,,,\n1,1,NaN,"a, ""b""",,\n2,2.0,-Infinity,\\udc80,,true\n'
    )
    assert series_of(result)["metrics"] == {"rows": 30, "kept": 3, "stride": result.steps.stride}


def test_json_is_indented_and_strict() -> None:
    content = json_bytes({"a": [math.inf], "b": "é\udc80"})
    assert content == '{\n "a": [\n  {\n   "nonfinite": "Infinity"\n  }\n ],\n "b": "é\\udc80"\n}\n'.encode()


@pytest.mark.parametrize("case", [None, Counterexample({"n": 1}, ("ordered",), {"values": [2.0]})])
@pytest.mark.parametrize(
    "measured", [{"returned": 2}, {"returned": 2, "values": [2.0, 1.0]}, {}, {"returned": math.nan}]
)
def test_the_line_of_a_mutant(
    tmp_path: Path, measured: dict[str, Any], case: Counterexample | None, snapshot: SnapshotAssertion
) -> None:
    """If it was killed, it keeps what the violated clauses read, and names the rest. Otherwise it keeps everything."""
    contract = contract_in(tmp_path)
    mutant = contract.mutants[0]
    result = trial(observe(healthy(**measured), subject=mutant.subject, unseen={"ordered": "x"}))
    outcome = fate_of(mutant, judge(contract, result.observation))
    line = mutant_line(contract, mutant, outcome, result, case).decode()
    assert [str(outcome.fate), line.count("\n"), line] == snapshot


def test_what_another_outcome_would_follow_from_is_kept(tmp_path: Path) -> None:
    """The outcome is that of other measurements, so a part of them would not give it."""
    contract = contract_in(tmp_path)
    mutant = contract.mutants[0]
    result = trial(observe(healthy(returned=2), subject=mutant.subject))
    outcome = fate_of(mutant, judge(contract, result.observation))
    assert outcome.fate is Fate.KILLED
    needed = trial_files._needed(contract, mutant, result.observation, outcome)
    assert needed.measurements.keys() < result.observation.measurements.keys()
    for other in (replace(outcome, failed=()), replace(outcome, reason=Reason(ReasonCode.PASSED))):
        assert trial_files._needed(contract, mutant, result.observation, other) is result.observation


def test_what_takes_long_to_judge_is_kept_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing ends the sealing, so only what is quick is judged."""
    contract = contract_in(tmp_path)
    mutant = contract.mutants[0]
    result = trial(observe(healthy(returned=2), subject=mutant.subject))
    outcome = fate_of(mutant, judge(contract, result.observation))
    asked = []
    monkeypatch.setattr(
        trial_files, "judge", lambda *parts, **options: asked.append(options) or judge(*parts, **options)
    )
    trial_files._needed(contract, mutant, result.observation, outcome)
    assert asked == [{"quick": True}]


def logged(text: str, size: int | None = None) -> Log:
    """A log with a digest that is easy to see."""
    return Log(text, len(text.encode()) if size is None else size, "a" * 64)


def test_the_log_and_the_output_of_a_trial_have_headings() -> None:
    """An empty stream has none. The bytes that follow are counted. The log comes first; lines of output are quoted."""
    result = replace(trial(observe({})), log=logged("did\n"), stdout=logged("é\n", 70), stderr=logged("", 0))
    digest = "a" * 64
    assert (
        b"".join(sections(SUBJECT, result, 100))
        == (
            f"==> subject log: 4 bytes, sha256 {digest}; 4 follow\ndid\n\n"
            f"==> subject stdout: 70 bytes, sha256 {digest}; 5 follow, quoted\n| é\n\n"
        ).encode()
    )
    result = replace(result, stderr=logged("x\ry\n\nz"))
    content = b"".join(sections(trial_of("a-1"), result, 100))
    assert content.endswith(
        f"==> mutant a-1 stderr: 6 bytes, sha256 {digest}; 14 follow, quoted\n| x\r| y\n| \n| z\n".encode()
    )
    assert parse_log(content) == {
        ("mutant a-1", "log"): Stream("did\n", 4, digest),
        ("mutant a-1", "stdout"): Stream("é\n", 70, digest),
        ("mutant a-1", "stderr"): Stream("x\ry\n\nz", 6, digest),
    }


def test_output_of_older_bundles_is_read_without_quotes() -> None:
    """Its heading does not say that it is quoted."""
    content = f"==> subject stdout: 4 bytes, sha256 {'a' * 64}; 4 follow\n| x\n\n".encode()
    assert parse_log(content) == {("subject", "stdout"): Stream("| x\n", 4, "a" * 64)}


def test_a_trial_without_a_log_is_refused() -> None:
    """Its bundle would not say what the trial did."""
    with pytest.raises(ValueError, match="subject"):
        _ = list(sections(SUBJECT, replace(trial(observe({})), log=logged("")), 100))


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("01234567", 8, "01234567"),
        ("012345678", 8, "01\n[… 1 bytes left out here …]\n345678"),
        ("0123456789", 9, "01\n[… 1 bytes left out here …]\n3456789"),
        ("0123456789", 3, "\n[… 7 bytes left out here …]\n789"),
        ("aéaaaaaaéa", 8, "a\n[… 5 bytes left out here …]\naaaéa"),
        ("aaaéaaaaa", 8, "aa\n[… 3 bytes left out here …]\naaaaa"),
    ],
)
def test_a_long_output_keeps_a_quarter_of_its_head(text: str, limit: int, kept: str) -> None:
    """The rest is of its tail. No letter is cut."""
    assert trial_files._shortened(text.encode(), limit).decode() == kept


@pytest.mark.parametrize(
    ("text", "is_whole"),
    [
        ("plain\\n", True),
        ("[masked]", False),
        ("3 bytes left out", False),
        ("␀", False),
        ("�", False),
        ("\\udc80", False),
    ],
)
def test_some_texts_are_not_the_whole_output(text: str, is_whole: bool) -> None:
    assert Stream(text, 1, "").is_whole is is_whole


HEADING = f"==> subject stdout: 5 bytes, sha256 {'0' * 64}; 2 follow\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("x", "has no heading at byte 0"),
        (f"{HEADING}ab\nx", f"has no heading at byte {len(HEADING) + 3}"),
        (f"{HEADING}ab", "does not have the 2 bytes that its heading at byte 0 announces"),
        (f"{HEADING}a\n", "does not have the 2 bytes that its heading at byte 0 announces"),
        (f"{HEADING}abc\n", "does not have the 2 bytes that its heading at byte 0 announces"),
        (
            f"{HEADING}ab\n{HEADING.replace('out', 'err')}a\n\n\n",
            f"has no heading at byte {2 * len(HEADING) + 6}",
        ),
        (f"{HEADING}ab\n{HEADING}ab\n", "has subject stdout twice"),
        (HEADING.replace("subject", f"mutant {'a' * 81}") + "ab\n", "has no heading at byte 0"),
    ],
)
def test_what_is_no_log_is_refused_at_its_byte(content: str, why: str) -> None:
    with pytest.raises(TrialLogError) as refused:
        parse_log(content.encode())
    assert str(refused.value) == why


def test_a_clause_reads_the_measurement_that_holds_its_value() -> None:
    """The rest of a killed mutant's observation is left out."""
    whole = document()
    whole["observation"]["properties"]["values"]["items"]["minimum"] = 0.0
    whole["mutants"][0]["violates"] = ["values[].minimum"]
    contract = contract_of(whole)
    (mutant,) = contract.mutants
    observation = observe(healthy(values=[-1.0]), subject=mutant.subject)
    outcome = fate_of(mutant, judge(contract, observation))
    assert outcome.fate is Fate.KILLED
    assert set(trial_files._needed(contract, mutant, observation, outcome).measurements) == {"values"}
