"""docs/corpus.md, and the results that it tells."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import write_corpus

from harness.base import strictjson
from harness.tools.corpus.checker import Form
from harness.tools.corpus.record import cases_of
from harness.tools.corpus.results import Fate, corpus_digest

ROOT = Path(__file__).parents[3]


def test_the_results_are_as_a_run_wrote_them() -> None:
    """The digest of the file holds. Every case has a result, unless one was added since."""
    results = json.loads(write_corpus.RESULTS.read_text(encoding="utf-8"))
    stated = results.pop("sha256")
    assert sha256(strictjson.dumps(results).encode()).hexdigest() == stated
    missing = {case.id for case in cases_of(ROOT)} - results["cases"].keys()
    assert not missing or results["corpus"] != corpus_digest(ROOT)


def test_the_page_says_whether_the_corpus_has_changed_since() -> None:
    """`harness corpus run --json falsifiers/corpus/results.json` measures it anew."""
    results = json.loads(write_corpus.RESULTS.read_text(encoding="utf-8"))
    cases = cases_of(ROOT)
    assert "have changed since" in write_corpus.page(cases, {**results, "corpus": "0" * 64})
    assert "have changed since" not in write_corpus.page(cases, {**results, "corpus": corpus_digest(ROOT)})


def test_the_example_of_another_checker(tmp_path: Path) -> None:
    """It finds the kernel that zeroes its inputs, and accepts the mended one."""
    code = write_corpus.PAGE.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    case = next(case for case in cases_of(ROOT) if case.id == "inputs-zeroed")

    def form(mended: bool) -> Form:
        return Form(case.id, case.kind, case.surface, case.subject, mended, case.claims, 0, tmp_path)

    names["keeps_its_inputs"](form(mended=True))
    with pytest.raises(AssertionError):
        names["keeps_its_inputs"](form(mended=False))


def test_every_miss_is_named() -> None:
    """In each round of each profile, and no mended form is refuted."""
    results = json.loads(write_corpus.RESULTS.read_text(encoding="utf-8"))
    for case in cases_of(ROOT):
        for fate in results["cases"].get(case.id, {"rounds": []})["rounds"]:
            assert fate != Fate.FALSE_ALARM
            assert fate == Fate.NOT_MEASURED or bool(case.missed) == (fate == Fate.MISSED)


def test_the_page_is_up_to_date() -> None:
    """After a change, `python docs/write_corpus.py` writes it."""
    results = json.loads(write_corpus.RESULTS.read_text(encoding="utf-8"))
    assert write_corpus.PAGE.read_text(encoding="utf-8") == write_corpus.page(cases_of(ROOT), results)
