"""What counts as caught, missed and a false alarm, and what is recorded of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from harness.base.vocabulary import Verdict
from harness.tools.corpus.campaign import Answer, Judged, Round
from harness.tools.corpus.record import Case
from harness.tools.corpus.results import (
    Fate,
    Results,
    corpus_digest,
    document,
    fate_of,
    fate_of_answers,
    read_back,
    table,
    table_of_groups,
)

FIRST, SECOND, FULL = Round("reduced", 3), Round("reduced", 4), Round("full", 3)
PASS, FAIL, UNABLE = Verdict.PASS, Verdict.FAIL, Verdict.NOT_MEASURED


def case(name: str = "one", **more: Any) -> Case:
    """A case of data."""
    texts = dict.fromkeys(("title", "believed", "truth", "noticed", "late"), "a text")
    given = {"source": "https://example.org/1", "cost": "damage", "subject": "m:n", **texts, **more}
    return Case(id=name, kind="data", year=2020, **given)


def judged(*verdicts: Verdict, round_: Round = FIRST) -> list[Judged]:
    """What claims say of one form."""
    return [Judged(f"F-{number}", round_, verdict, (), 1.0, "digest") for number, verdict in enumerate(verdicts)]


@pytest.mark.parametrize(
    ("failing", "mended", "fate"),
    [
        ((FAIL,), (PASS,), Fate.CAUGHT),
        ((PASS, FAIL), (PASS, PASS), Fate.CAUGHT),
        ((PASS,), (PASS,), Fate.MISSED),
        ((FAIL,), (FAIL,), Fate.FALSE_ALARM),
        ((FAIL, PASS), (PASS, FAIL), Fate.FALSE_ALARM),
        ((UNABLE,), (PASS,), Fate.MISSED),
        ((UNABLE,), (UNABLE,), Fate.NOT_MEASURED),
        ((PASS, UNABLE), (PASS, UNABLE), Fate.NOT_MEASURED),
        ((FAIL, UNABLE), (PASS, UNABLE), Fate.CAUGHT),
    ],
)
def test_what_the_harness_made_of_a_case(failing: list[Verdict], mended: list[Verdict], fate: Fate) -> None:
    """A mistake that is not measured while its mended form is, is missed."""
    assert fate_of(case(), {"failing": judged(*failing), "mended": judged(*mended)}) is fate


def test_out_of_scope() -> None:
    """Whatever is said of it."""
    found = {"failing": judged(), "mended": judged()}
    assert fate_of(case(out_of_scope="no GPU"), found) is Fate.NOT_IN_SCOPE


@pytest.mark.parametrize(
    ("failing", "mended", "fate"),
    [
        ("found", "accepted", Fate.CAUGHT),
        ("accepted", "accepted", Fate.MISSED),
        ("found", "found", Fate.FALSE_ALARM),
        ("accepted", "found", Fate.FALSE_ALARM),
        ("not in scope", "not in scope", Fate.NOT_IN_SCOPE),
        ("found", "not in scope", Fate.NOT_IN_SCOPE),
        ("not measured", "accepted", Fate.NOT_MEASURED),
        ("found", "not measured", Fate.NOT_MEASURED),
    ],
)
def test_what_another_checker_made_of_a_case(failing: str, mended: str, fate: Fate) -> None:
    """It must have something to say of both forms."""
    assert fate_of_answers(Answer("one", False, failing, ""), Answer("one", True, mended, "")) is fate


def results() -> Results:
    """A caught case, a missed one with a reason, a missed one without, a caught one with, and a false alarm."""
    verdicts = {
        "caught": (FAIL, PASS), "named": (PASS, PASS), "unnamed": (PASS, PASS), "stale": (FAIL, PASS),
        "alarm": (FAIL, FAIL),
    }  # fmt: skip
    cases = [case(name, missed="why" if name in ("named", "stale") else "") for name in verdicts]
    found = {name: {"failing": judged(first), "mended": judged(second)} for name, (first, second) in verdicts.items()}
    answers = {"caught": (Answer("caught", False, "found", "values differ"), Answer("caught", True, "accepted", ""))}
    return Results(cases, [FIRST], found, {"mine:close": answers})


def in_rounds() -> Results:
    """One case that is missed with one of two seeds, and caught in the full profile; one that cannot run in that."""
    cases = [case("first"), case("second", forged=True)]
    verdicts = {
        "first": {FIRST: (FAIL, PASS), SECOND: (PASS, PASS), FULL: (FAIL, PASS)},
        "second": {FIRST: (FAIL, PASS), SECOND: (FAIL, PASS), FULL: (UNABLE, UNABLE)},
    }
    found = {
        name: {
            form: [result for round_, pair in of.items() for result in judged(pair[place], round_=round_)]
            for place, form in enumerate(("failing", "mended"))
        }
        for name, of in verdicts.items()
    }
    return Results(cases, [FIRST, SECOND, FULL], found, {})


def test_surprises() -> None:
    """A miss is named, a named one is missed, and no mended form is refuted."""
    assert results().surprises() == [
        "unnamed: missed, and its record does not say why",
        "stale: caught, although its record says that it is missed",
        "alarm: its mended form is refuted, too",
    ]


def test_the_table() -> None:
    """Shares of the cases in scope, and false alarms; kinds without cases are left out."""
    fates = results().fates()
    assert [*table(results().cases, fates)] == [
        ["kind", "cases", "harness", "close"],
        ["data", "5", "2 of 5, 1 false alarm", "1 of 1"],
        ["all", "5", "2 of 5, 1 false alarm", "1 of 1"],
    ]


def test_the_worst_round_counts() -> None:
    """For each profile; what cannot run in one is not measured there."""
    assert in_rounds().fates() == {
        "harness": {"first": Fate.MISSED, "second": Fate.CAUGHT},
        "harness, full": {"first": Fate.CAUGHT, "second": Fate.NOT_MEASURED},
    }
    assert in_rounds().surprises() == ["first: missed, and its record does not say why"]


def test_the_table_of_groups() -> None:
    """Every round of every case counts, and forgeries are apart."""
    by_round = in_rounds().fates_by_round()
    fates = {"reduced": [by_round[FIRST], by_round[SECOND]], "full": [by_round[FULL]]}
    rows = {row[0]: list(row[1:]) for row in table_of_groups(in_rounds().cases, fates)}
    assert rows["trainer bugs"] == ["1", "1 of 2", "1 of 1"]
    assert rows["forgeries"] == ["1", "2 of 2", "-"]
    assert rows["all"] == ["2", "3 of 4", "1 of 1"]


def test_equal_answers_of_rounds_are_recorded_together() -> None:
    """With their seeds, and the digests of their bundles."""
    found = document(in_rounds(), {})
    assert found["rounds"] == [["reduced", 3], ["reduced", 4], ["full", 3]]
    first, second = found["cases"]["first"], found["cases"]["second"]
    assert first["rounds"] == ["caught", "missed", "caught"]
    assert [(bundle["verdict"], bundle["profile"], bundle["seeds"]) for bundle in first["judged"]["failing"]] == [
        ("FAIL", "reduced", [3]), ("PASS", "reduced", [4]), ("FAIL", "full", [3]),
    ]  # fmt: skip
    together = second["judged"]["failing"][0]
    assert (together["seeds"], together["seconds"]) == ([3, 4], [1.0, 1.0])
    assert together["manifests"] == ["digest", "digest"]


@pytest.mark.parametrize("some", ["results", "in_rounds"])
def test_a_document_is_read_back(some: str) -> None:
    """An interrupted run goes on with it, and writes what it would have written."""
    before: Results = globals()[some]()
    content = document(before, {})
    again = read_back(content, before.cases)
    assert document(again, {}) == content
    assert again.fates_by_round() == before.fates_by_round()


def test_the_document_holds_its_digest() -> None:
    """Every verdict and answer is in it, and its digest is that of the rest."""
    found = document(results(), {"seed": 3})
    assert found["cases"]["caught"]["fates"] == {"harness": "caught", "close": "caught"}
    answers = {"failing": ["found", "values differ"], "mended": ["accepted", ""]}
    assert found["cases"]["caught"]["answers"] == {"mine:close": answers}
    assert found["cases"]["alarm"]["judged"]["mended"][0]["verdict"] == "FAIL"
    digest = found.pop("sha256")
    assert digest == hashlib.sha256(json.dumps(found, ensure_ascii=False).encode()).hexdigest()


def test_the_digest_of_the_corpus(tmp_path: Path) -> None:
    """It follows names and contents of subjects and contracts, and what decides the outcome of a record."""
    record = {**vars(case("a")), "claims": {"F-1": {}}}
    file = tmp_path / "falsifiers/corpus/cases/data/a.json"
    found = set()

    def changed(**values: Any) -> str:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({**record, **values}))
        found.add(digest := corpus_digest(tmp_path))
        return digest

    first = changed()
    for name in ("falsifiers/corpus/a.py", "contracts/corpus/a.json"):
        for text in ("one", "two"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
            found.add(corpus_digest(tmp_path))
    (tmp_path / "falsifiers/corpus/results.json").write_text("no part of it")
    last = changed(title="another title")
    assert len(found) == 5
    assert last != first
    assert changed(claims={"F-1": {"steps": 2}}) != last
