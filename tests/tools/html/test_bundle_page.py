"""The page of a bundle. No content of a bundle can change the page itself."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import Fate, Phase
from harness.evidence.bundle import BundleError, Series
from harness.evidence.findings import Verification
from harness.evidence.staleness import coverage
from harness.evidence.trial_files import SUBJECT, Stream
from harness.evidence.verification import verify
from harness.judging.counterexample import Counterexample
from harness.judging.observation import Ending, EndingKind
from harness.tools.html import bundle_page
from harness.tools.html.contents import Contents
from tests.contracts import document, healthy
from tests.evidence.factory import DEFECTIVE, MUTANTS, claim_result, contract_in, sealed
from tests.report.texts import nasty, with_texts

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Structure(HTMLParser):
    """The tags and attribute names of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.text = ""
        self._silent = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self._silent = tag in ("style", "script")
        self.text += " "

    def handle_endtag(self, tag: str) -> None:
        self._silent = False
        self.text += " "

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.text += data


def shown(contents: Contents, **settings: Any) -> str:
    """The text of the page with single spaces, and without spaces before punctuation."""
    return re.sub(r" (?=[,.:;])", "", " ".join(Structure(page_of(contents, **settings)).text.split()))


def with_killer(contents: Contents, case: Counterexample) -> Contents:
    """The record with a case that killed the first mutant."""
    killed = replace(contents.mutants["forgets-one"], counterexample=case)
    return replace(contents, mutants={**contents.mutants, "forgets-one": killed})


def verified(contents: Contents) -> Verification:
    """The result of verifying a sound bundle with this record."""
    record, contract = contents.record, contents.contract
    remarks = tuple(coverage(record, contract.subject if contract else record.subject))
    return Verification(Path(record.run), (), remarks, verdict=record.verdict, proven=record.proven, id=record.id)


def page_of(contents: Contents, **settings: Any) -> str:
    return bundle_page.render(contents, settings.pop("verification", None) or verified(contents), **settings)


STATEMENTS: dict[str, Any] = {
    "PASS": {},
    "mutants skipped": {"skipped": True},
    "FAIL": {"measurements": healthy(returned=2)},
    "FAIL with other parameters": {"measurements": healthy(returned=2), "overrides": {"steps": 5}},
    "FAIL of another subject": {"measurements": healthy(returned=2), "subject": "falsifiers.demo.sorting:Forgetful"},
    "PASS with other parameters": {"overrides": {"steps": 5}},
    "NOT_MEASURED": {"measurements": {}},
    "VOID": {"mutants": {**DEFECTIVE, "forgets-one": {}}},
    "not read back": {"resolved": {}},
    "interrupted": {"mutants": {"forgets-one": DEFECTIVE["forgets-one"]}, "cut_short": True},
}


def test_the_statement_and_the_headings(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """For each kind of result, the page has the verdict as a sentence, its qualifications, and the headings."""
    texts: dict[str, Any] = {}
    for number, (name, changes) in enumerate(STATEMENTS.items()):
        page = page_of(Contents.read(sealed(tmp_path / str(number), **changes)))
        texts[name] = {
            "statement": inner(page, '<p class="statement">', "</p>"),
            "beside the verdict": [inner(part, ">", "</a>") for part in page.split('<a class="chip"')[1:]],
            "grounds": [
                inner(part, "", "</strong>")
                for part in page.partition('<ul class="grounds">')[2].partition("</ul>")[0].split("<strong>")[1:]
            ],
        }
        texts.setdefault("headings", [inner(part, ">", "</h2>") for part in page.split("<h2")[1:]])
    assert texts == snapshot


def inner(page: str, begin: str, end: str) -> str:
    """The text of the first element between two tags."""
    rest = page.partition(begin)[2] if begin else page
    return " ".join(Structure(rest.partition(end)[0]).text.split())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"measurements": healthy(given=2, returned=2)}, ("given is 2", "3")),
        ({"measurements": healthy(returned=2)}, ("returned 2, given 3", "self.returned == self.given")),
        ({"measurements": healthy(smallest=math.nan)}, ("nan", "a number")),
        ({"mutants": {**DEFECTIVE, "forgets-one": {}}}, ("returned 3, given 3", "self.returned == self.given")),
    ],
)
def test_the_reason_states_value_and_bound(tmp_path: Path, changes: Any, expected: tuple[str, str]) -> None:
    """The reason has value and bound of the clauses that decided a FAIL, or that a surviving mutant had to violate."""
    value, bound = expected
    reason = inner(page_of(Contents.read(sealed(tmp_path, **changes))), '<div class="reason', "</div>")
    assert f"{value}; the bound is {bound}" in reason


def test_a_mutant_that_an_interruption_kept_from_running_is_said_not_to_have_run(tmp_path: Path) -> None:
    """The mutant is counted and listed as interrupted, not as undecided."""
    mutants = {"forgets-one": DEFECTIVE["forgets-one"]}
    text = shown(Contents.read(sealed(tmp_path, mutants=mutants, cut_short=True)))
    assert "1 of 3 mutants killed, 2 interrupted" in text
    assert str(Fate.INCONCLUSIVE) not in text


def test_an_isolated_run_is_named(tmp_path: Path) -> None:
    """An isolated run is named beside profile and device. Any other run has no such words."""
    contents = Contents.read(sealed(tmp_path))
    assert "isolated" not in shown(contents)
    assert "subjects isolated" in shown(replace(contents, record=replace(contents.record, isolated=True)))


def test_what_the_profile_leaves_out_is_said_beside_the_verdict(tmp_path: Path) -> None:
    """The names, the counts and the rows agree. A run that judged everything has no such row."""
    profiles = document()["profiles"]
    profiles["reduced"]["omits"] = ["largest", "smallest"]
    [kept, *_] = MUTANTS
    contract = contract_in(tmp_path, profiles=profiles, mutants=[kept])
    measured = healthy(largest=..., smallest=...)
    bundle = sealed(
        tmp_path,
        contract=contract,
        measurements=measured,
        mutants={"forgets-one": {"returned": 2, "largest": ..., "smallest": ...}},
    )
    page = page_of(Contents.read(bundle))
    text = shown(Contents.read(bundle))
    assert "3 clauses not judged: ordered and 2 on types." in text
    assert "11 of 14 clauses judged PASS 11 not judged 3" in text
    rows = page.partition('aria-label="Not judged"')[2].partition("</table>")[0]
    assert re.findall(r"<th [^>]*><code>([^<]+)</code>", rows) == ["ordered", "smallest.type", "largest.type"]
    assert "self.smallest &lt;= self.largest" in rows
    assert 'aria-label="Not judged"' not in page_of(Contents.read(sealed(tmp_path / "all")))


def test_a_page_has_the_claim_its_sources_and_how_to_run_it_again(tmp_path: Path) -> None:
    """The page has the claim, its sources, its meaning, and the command."""
    text = shown(Contents.read(sealed(tmp_path)))
    for expected in (
        "The sorter returns every item it was given, the smallest first. https://example.org/sorting section 1",
        f"git checkout {'c' * 40} harness run F-DEMO-SORT-001",
        "harness verify evidence/DEMO-1/F-DEMO-SORT-001/2026-11-20T201503Z-cpu-3f2a9c",
        "forgets-one drops the first item killed nothing-lost returned 2 given 3 1.25 s",
        "a" * 64,
    ):
        assert expected in text


def test_what_the_claim_is_about_stands_first(tmp_path: Path) -> None:
    """The number of values is shown only if there is no other text."""
    kept = {**MUTANTS[1], "violates": ["given.const"]}
    contract = contract_in(tmp_path, rules=[], mutants=[kept])
    page = page_of(Contents.read(sealed(tmp_path, contract=contract)))
    first = page[page.index('<ul class="highlights">') :].partition("</ul>")[0]
    assert re.findall(r"<code>([^<]+)</code>", first) == ["given.const", "values.minItems"]


def test_how_a_trial_ended_is_told_with_its_traceback(tmp_path: Path) -> None:
    """The lines of the traceback stay lines, and control characters are escaped."""
    contents = Contents.read(sealed(tmp_path, measurements={}))
    assert contents.observation is not None
    ending = Ending(EndingKind.SUBJECT_FAULT, Phase.SUBJECT, "no memory", traceback="one\n\x1b[2J<two>\r\nthree")
    page = page_of(replace(contents, observation=replace(contents.observation, ending=ending)))
    assert "one\n\\x1b[2J&lt;two&gt;\nthree</pre>" in page
    assert "subject fault</strong> while the subject was running: no memory" in page


def test_a_subject_that_is_not_the_contracts_is_named(tmp_path: Path) -> None:
    """A FAIL of a mutant is not a FAIL of the claim."""
    contents = Contents.read(sealed(tmp_path))
    other = replace(contents, record=replace(contents.record, subject="falsifiers.demo.sorting:Forgetful"))
    assert "OTHER_SUBJECT: measured was falsifiers.demo.sorting:Forgetful, not falsifiers.demo" in shown(other)


def test_counterexamples_are_shown(tmp_path: Path) -> None:
    """The page has the subject's counterexample and each killed mutant's, with a limit, and the replay command."""
    case = Counterexample({"items": [1, 2]}, ("nothing-lost",), {"lost": math.nan}, "</pre><b>", 17, True)
    contents = replace(Contents.read(sealed(tmp_path)), counterexample=case)
    contents = with_killer(contents, case)
    text = shown(contents)
    assert "The simplest case that the search found, after 17 cases. It violates nothing-lost." in text
    assert "The subject raised: </pre><b> The case" in text
    assert "harness replay evidence/DEMO-1/F-DEMO-SORT-001/" in text
    assert 'the case that killed it { "items": [ 1, 2 ] }' in text
    assert "It does not repeat" not in text
    assert "It does not repeat" in shown(replace(contents, counterexample=replace(case, repeats=False)))
    huge = replace(case, case={"items": [1.5] * 100_000})
    assert len(page_of(with_killer(replace(contents, counterexample=huge), huge))) < 120_000


def test_plots_have_units_and_words(tmp_path: Path) -> None:
    """The plots are loss by step, time per step, and memory in binary units."""
    contents = Contents.read(sealed(tmp_path, rows=20))
    series = Series({**contents.metrics.columns, "tokens_per_second": (5000.0,) * 20, "peak_bytes": (2.0**31,) * 20})
    text = shown(replace(contents, metrics=series))
    assert "Loss 0 5 10 15" in re.sub(r"(?<=Loss) [\d. ]+(?= 0 5 10 15)", "", text)
    assert "3 at first, 0.15 at last; lowest 0.15, highest 3" in text
    assert "Tokens per second tokens/s" in text
    assert "Peak GiB" in text


def test_an_unsound_bundle_is_called_so_first(tmp_path: Path) -> None:
    """The bundle is called unsound first, whatever its record says."""
    bundle = sealed(tmp_path)
    (bundle / "metrics.csv").write_text("step,seconds\n")
    text = shown(Contents.read(bundle), verification=verify(bundle))
    assert text.index("UNSOUND") < text.index("This bundle is not sound") < text.index("TAMPERED metrics.csv")


@pytest.mark.parametrize("name", ["contract.json", "observation.json", "trials.log", "metrics.csv", "environment.json"])
@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b'a,a\n"', b"[[[[[[1]]]]]]"])
def test_what_is_broken_is_left_out_and_the_rest_is_shown(tmp_path: Path, name: str, content: bytes) -> None:
    """Each file is read alone, so a broken one hides no other."""
    bundle = sealed(tmp_path)
    (bundle / name).write_bytes(content)
    text = shown(Contents.read(bundle))
    assert "forgets-one drops the first item" in text


def test_without_a_record_there_is_nothing_to_show(tmp_path: Path) -> None:
    """Without a record, the page says why it is empty."""
    bundle = sealed(tmp_path)
    (bundle / "record.json").write_text('{"id": "x"}')
    with pytest.raises(BundleError, match=r"record\.json"):
        Contents.read(bundle)


def test_no_link_is_followed(tmp_path: Path) -> None:
    """Files outside the bundle are not shown."""
    bundle = sealed(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    (bundle / "trials.log").unlink()
    (bundle / "trials.log").symlink_to(secret)
    contents = Contents.read(bundle)
    assert contents.logs == {}


@SETTINGS
@given(text=nasty)
def test_no_text_breaks_out_of_its_place(pristine: Contents, tmp_path: Path, text: str) -> None:
    """The texts change no element and no attribute of the page, and control characters are escaped."""

    def page(word: str) -> str:
        record = with_texts(tmp_path, word)
        return page_of(
            replace(
                pristine,
                record=record,
                counterexample=Counterexample({word: word}, (word,), {word: word}, word),
                logs={(SUBJECT, name): Stream(word, 0, "") for name in ("stdout", "stderr")},
            )
        )

    def elements(word: str) -> list[object]:
        """The elements of a page, without the places where a name may break after an underscore."""
        return [tag for tag in Structure(page(word)).tags if tag != ("wbr", ())]

    assert elements(f"a{text}a") == elements("plain")
    assert all(character == "\n" or character.isprintable() for character in page(text))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """A sound bundle, read once."""
    return Contents.read(sealed(tmp_path_factory.mktemp("pristine")))


def test_the_policy_lets_nothing_in(tmp_path: Path) -> None:
    """The policy allows only links to other addresses, and the hashes of the page's own style and script."""
    page = page_of(Contents.read(sealed(tmp_path)))
    assert "default-src &#39;none&#39;" in page
    addresses = re.findall(r'(?:src|action|data|poster|background)="|url\(|@import|<link|<iframe|<object|<form', page)
    assert addresses == []
    assert re.findall(r'href="(?!#)([^"]*)"', page) == ["https://example.org/sorting"]
    assert not re.search(r'\sstyle="|\son\w+="', page)


def test_a_source_that_is_no_web_address_is_no_link(tmp_path: Path) -> None:
    """An address with a script would run on a click, so it is not a link."""
    result = claim_result(tmp_path / "contracts")
    contents = Contents.read(sealed(tmp_path))
    document = {**result.contract.document, "sources": [{"uri": "javascript:alert(1)", "locator": "here"}]}
    page = page_of(replace(contents, contract=replace(result.contract, document=document)))
    assert "javascript:alert(1)" in page
    assert 'href="javascript' not in page


def test_a_long_claim_is_parted_at_a_sentence(tmp_path: Path) -> None:
    """The first sentences are visible, and the rest is folded. A short claim stays whole."""
    sentences = [f"Sentence {number} says that losses fall." for number in range(40)]
    page = page_of(Contents.read(sealed(tmp_path, contract=contract_in(tmp_path, claim=" ".join(sentences)))))
    lead, _, rest = page[page.index('<p class="claim">') :].partition("<summary>the rest of the claim</summary>")
    assert all((sentence in lead) != (sentence in rest.partition("</details>")[0]) for sentence in sentences)
    assert "the rest of the claim" not in page_of(Contents.read(sealed(tmp_path / "short")))


def test_clauses_that_most_mutants_must_fail_stand_first(tmp_path: Path) -> None:
    """These clauses are the core of the claim."""
    mutants = [{**MUTANTS[1], "id": f"m{number}", "violates": ["given.const"]} for number in range(3)]
    page = page_of(Contents.read(sealed(tmp_path, contract=contract_in(tmp_path, mutants=mutants))))
    first = page[page.index('<ul class="highlights">') :].partition("</ul>")[0]
    assert re.findall(r"<code>([^<]+)</code>", first)[0] == "given.const"


def test_what_was_not_measured_is_shown_by_the_claim_and_not_by_its_types(tmp_path: Path) -> None:
    """A missing measurement also lacks its type, so the clause on the type is not shown."""
    page = page_of(Contents.read(sealed(tmp_path, measurements=healthy(smallest=..., returned=...))))
    first = page[page.index('<ul class="highlights">') :].partition("</ul>")[0]
    assert re.findall(r"<code>([a-z][^<]*)</code>", first)[:2] == ["nothing-lost", "ordered"]
