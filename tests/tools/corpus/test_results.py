"""What counts as caught, missed and a false alarm, and what is recorded of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from harness.base.vocabulary import Verdict
from harness.tools.corpus.campaign import Answer, Judged
from harness.tools.corpus.record import Case
from harness.tools.corpus.results import Fate, Results, corpus_digest, document, fate_of, fate_of_answers, table

PASS, FAIL, UNABLE = Verdict.PASS, Verdict.FAIL, Verdict.NOT_MEASURED


def case(name: str = "one", **more: str) -> Case:
    """A case of data."""
    texts = dict.fromkeys(("title", "believed", "truth", "noticed", "late"), "a text")
    given = {"source": "https://example.org/1", "cost": "damage", "subject": "m:n", **texts, **more}
    return Case(id=name, kind="data", year=2020, **given)


def judged(*verdicts: Verdict) -> list[Judged]:
    """What claims say of one form."""
    return [Judged(f"F-{number}", one, (), 1.0, "bundle", "digest") for number, one in enumerate(verdicts)]


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
    found = {name: {"failing": judged(one), "mended": judged(other)} for name, (one, other) in verdicts.items()}
    answers = {"caught": (Answer("caught", False, "found", "values differ"), Answer("caught", True, "accepted", ""))}
    return Results(cases, found, {"mine:close": answers})


def test_surprises() -> None:
    """A miss is named, a named one is missed, and no mended form is refuted."""
    assert results().surprises() == [
        "unnamed: missed, and its record does not say why",
        "stale: caught, although its record says that it is missed",
        "alarm: its mended form is refuted, too",
    ]


def test_the_table() -> None:
    """Shares of the cases in scope; kinds without cases are left out."""
    fates = results().fates()
    assert [*table(results().cases, fates)] == [
        ["kind", "cases", "harness caught", "close caught", "harness false alarms", "close false alarms"],
        ["data", "5", "2 of 5", "1 of 1", "1", "0"],
        ["all", "5", "2 of 5", "1 of 1", "1", "0"],
    ]


def test_the_document_holds_its_digest() -> None:
    """Every verdict and answer is in it, and its digest is that of the rest."""
    found = document(results(), {"seed": 3})
    assert found["cases"]["caught"]["fates"] == {"harness": "caught", "close": "caught"}
    answers = {"failing": ["found", "values differ"], "mended": ["accepted", ""]}
    assert found["cases"]["caught"]["answers"] == {"close": answers}
    assert found["cases"]["alarm"]["judged"]["mended"][0]["verdict"] == "FAIL"
    digest = found.pop("sha256")
    assert digest == hashlib.sha256(json.dumps(found, ensure_ascii=False).encode()).hexdigest()


def test_the_digest_of_the_corpus(tmp_path: Path) -> None:
    """It follows names and contents of records, subjects and contracts."""
    found = set()
    for name in ("falsifiers/corpus/a.py", "falsifiers/corpus/cases/data/a.json", "contracts/corpus/a.json"):
        for text in ("one", "two"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
            found.add(corpus_digest(tmp_path))
    (tmp_path / "falsifiers/corpus/results.json").write_text("no part of it")
    found.add(corpus_digest(tmp_path))
    assert len(found) == 6
