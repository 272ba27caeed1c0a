"""What came of a run of the corpus: the outcome of each case, counted by kind, and a record with its digests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from harness.base import strictjson
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Verdict
from harness.tools.corpus.campaign import Answer, Judged
from harness.tools.corpus.record import KINDS, Case

__all__ = ["HARNESS", "Fate", "Results", "corpus_digest", "document", "fate_of", "fate_of_answers", "table"]

HARNESS: Final = "harness"


class Fate(StrEnum):
    """What a checker made of a case."""

    CAUGHT = "caught"
    MISSED = "missed"
    FALSE_ALARM = "false alarm"
    """Its mended form is refuted, too."""
    NOT_IN_SCOPE = "not in scope"
    NOT_MEASURED = "not measured"
    """Something other than the case prevents the measurement here, such as a missing module."""


def fate_of(case: Case, judged: Mapping[str, Sequence[Judged]]) -> Fate:
    """What the harness made of a case: caught if a claim is FAIL on its mistake, and none on its mended form.

    Without a FAIL, a claim that is NOT_MEASURED on both forms leaves it open; on the mistake alone, it has missed it.
    """
    if case.out_of_scope:
        return Fate.NOT_IN_SCOPE
    failing, mended = judged["failing"], judged["mended"]
    if any(one.verdict is Verdict.FAIL for one in mended):
        return Fate.FALSE_ALARM
    if any(one.verdict is Verdict.FAIL for one in failing):
        return Fate.CAUGHT
    unable = {one.claim for one in failing if one.verdict is Verdict.NOT_MEASURED}
    unable &= {one.claim for one in mended if one.verdict is Verdict.NOT_MEASURED}
    return Fate.NOT_MEASURED if unable else Fate.MISSED


def fate_of_answers(failing: Answer, mended: Answer) -> Fate:
    """What another checker made of a case."""
    if "not in scope" in (failing.answer, mended.answer):
        return Fate.NOT_IN_SCOPE
    if "not measured" in (failing.answer, mended.answer):
        return Fate.NOT_MEASURED
    if mended.answer == "found":
        return Fate.FALSE_ALARM
    return Fate.CAUGHT if failing.answer == "found" else Fate.MISSED


@dataclass(frozen=True)
class Results:
    """Outcomes by checker and case, and what they follow from."""

    cases: Sequence[Case]
    judged: Mapping[str, Mapping[str, Sequence[Judged]]]
    answers: Mapping[str, Mapping[str, tuple[Answer, Answer]]]
    """By checker and case: of the mistake, and of the mended form."""

    def fates(self) -> dict[str, dict[str, Fate]]:
        """By checker and case; the harness first."""
        none: Mapping[str, Sequence[Judged]] = {"failing": (), "mended": ()}
        found = {HARNESS: {one.id: fate_of(one, self.judged.get(one.id, none)) for one in self.cases}}
        for checker, answers in self.answers.items():
            name = checker.partition(":")[2]
            found[name] = {
                one.id: fate_of_answers(*answers[one.id]) if one.id in answers else Fate.NOT_IN_SCOPE
                for one in self.cases
            }
        return found

    def surprises(self) -> list[str]:
        """False alarms, misses that no record names, and named ones that are caught: each in a sentence."""
        found = []
        for case in self.cases:
            fate = self.fates()[HARNESS][case.id]
            if fate is Fate.FALSE_ALARM:
                found.append(f"{case.id}: its mended form is refuted, too")
            elif fate is Fate.MISSED and not case.missed:
                found.append(f"{case.id}: missed, and its record does not say why")
            elif fate is Fate.CAUGHT and case.missed:
                found.append(f"{case.id}: caught, although its record says that it is missed")
        return found


def table(cases: Sequence[Case], fates: Mapping[str, Mapping[str, Fate]]) -> Iterator[Sequence[str]]:
    """Rows of a table: a head, one for each kind, and the total: caught/in scope, false alarms."""
    yield ["kind", "cases", *(f"{name} caught" for name in fates), *(f"{name} false alarms" for name in fates)]
    for kind, text in [*KINDS.items(), ("", "all")]:
        chosen = [one.id for one in cases if kind in ("", one.kind)]
        if chosen:
            counts = [Counter(fates[name][one] for one in chosen) for name in fates]
            yield [text, str(len(chosen)), *map(_share, counts), *(str(one[Fate.FALSE_ALARM]) for one in counts)]


def _share(counts: Counter[Fate]) -> str:
    in_scope = counts.total() - counts[Fate.NOT_IN_SCOPE] - counts[Fate.NOT_MEASURED]
    return f"{counts[Fate.CAUGHT]} of {in_scope}" if in_scope else "-"


def corpus_digest(root: Path) -> str:
    """The SHA-256 over the names and the contents of the corpus's records, subjects and contracts."""
    whole = sha256()
    for file in sorted(_files(root)):
        digest = sha256(file.read_bytes()).hexdigest()
        whole.update(f"{digest}  {file.relative_to(root).as_posix()}\n".encode())
    return whole.hexdigest()


def _files(root: Path) -> Iterable[Path]:
    folder = root / "falsifiers" / "corpus"
    yield from folder.rglob("*.py")
    yield from (folder / "cases").rglob("*.json")
    yield from (root / "contracts" / "corpus").glob("*.json")


def document(results: Results, circumstances: JsonObject) -> JsonObject:
    """The record of a run: every verdict with its clauses and the digest of its bundle, and every other answer.

    `sha256` is that of the document without it, as compact JSON with sorted keys.
    """
    fates = results.fates()
    cases: dict[str, Any] = {}
    for case in results.cases:
        judged = results.judged.get(case.id, {})
        cases[case.id] = {
            "kind": case.kind,
            "fates": {name: str(of[case.id]) for name, of in fates.items()},
            "judged": {
                form: [{**asdict(one), "verdict": str(one.verdict)} for one in of] for form, of in judged.items()
            },
            "answers": {
                checker.partition(":")[2]: {
                    ("mended" if one.mended else "failing"): [one.answer, one.reason] for one in answers[case.id]
                }
                for checker, answers in results.answers.items()
                if case.id in answers
            },
        }
    content: dict[str, Any] = {**circumstances, "cases": cases}
    return {**content, "sha256": sha256(strictjson.dumps(content).encode()).hexdigest()}
