"""The results of a run of the corpus: the outcome of each case, counts by kind, and a document with digests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from harness.base import regular_file, strictjson
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Verdict
from harness.machine.provenance import harness_identity
from harness.tools.corpus.campaign import FORMS, Answer, Judged, Round
from harness.tools.corpus.record import GROUPS, KINDS, Case, cases_of

__all__ = [
    "HARNESS", "Fate", "Results", "code_digest", "corpus_digest", "document", "fate_of", "fate_of_answers",
    "read_back", "table", "table_of_groups",
]  # fmt: skip

HARNESS: Final = "harness"


class Fate(StrEnum):
    """The result of a checker for a case."""

    CAUGHT = "caught"
    MISSED = "missed"
    FALSE_ALARM = "false alarm"
    """The mended form is refuted too."""
    NOT_IN_SCOPE = "not in scope"
    NOT_MEASURED = "not measured"
    """Something other than the case prevents the measurement, such as a missing module."""


def fate_of(case: Case, judged: Mapping[str, Sequence[Judged]]) -> Fate:
    """The harness's result for a case: caught if a claim is FAIL on the mistake, and none on the mended form.

    Without a FAIL, a claim that is NOT_MEASURED on both forms makes the case unmeasured; one that is NOT_MEASURED on
    the mistake alone makes it missed.
    """
    if case.out_of_scope:
        return Fate.NOT_IN_SCOPE
    failing, mended = judged["failing"], judged["mended"]
    if any(judged.verdict is Verdict.FAIL for judged in mended):
        return Fate.FALSE_ALARM
    if any(judged.verdict is Verdict.FAIL for judged in failing):
        return Fate.CAUGHT
    unable = {judged.claim for judged in failing if judged.verdict is Verdict.NOT_MEASURED}
    unable &= {judged.claim for judged in mended if judged.verdict is Verdict.NOT_MEASURED}
    return Fate.NOT_MEASURED if unable else Fate.MISSED


def fate_of_answers(failing: Answer, mended: Answer) -> Fate:
    """Another checker's result for a case."""
    if "not in scope" in (failing.answer, mended.answer):
        return Fate.NOT_IN_SCOPE
    if "not measured" in (failing.answer, mended.answer):
        return Fate.NOT_MEASURED
    if mended.answer == "found":
        return Fate.FALSE_ALARM
    return Fate.CAUGHT if failing.answer == "found" else Fate.MISSED


@dataclass(frozen=True)
class Results:
    """Outcomes by checker and case, with the judgments behind them."""

    cases: Sequence[Case]
    rounds: Sequence[Round]
    judged: Mapping[str, Mapping[str, Sequence[Judged]]]
    """By case and form: the judgments of every round."""
    answers: Mapping[str, Mapping[str, tuple[Answer, Answer]]]
    """By checker and case: the answers on the mistake and on the mended form."""

    def fates_by_round(self) -> dict[Round, dict[str, Fate]]:
        """The harness's result for each case in each round."""
        fates: dict[Round, dict[str, Fate]] = {}
        for round_ in self.rounds:
            fates[round_] = {}
            for case in self.cases:
                forms = self.judged.get(case.id, {})
                judged = {form: [each for each in forms.get(form, ()) if each.round == round_] for form in FORMS}
                fates[round_][case.id] = fate_of(case, judged)
        return fates

    def fates(self) -> dict[str, dict[str, Fate]]:
        """Results by checker and case. The harness comes first, with the worst round of each profile."""
        by_round = self.fates_by_round()
        by_checker: dict[str, dict[str, Fate]] = {}
        for profile in dict.fromkeys(round_.profile for round_ in self.rounds):
            of_profile = [fates for round_, fates in by_round.items() if round_.profile == profile]
            by_checker[_name(profile)] = {
                case.id: min((fates[case.id] for fates in of_profile), key=_WORST.index) for case in self.cases
            }
        for checker, answers in self.answers.items():
            name = checker.partition(":")[2]
            by_checker[name] = {
                case.id: fate_of_answers(*answers[case.id]) if case.id in answers else Fate.NOT_IN_SCOPE
                for case in self.cases
            }
        return by_checker

    def surprises(self) -> list[str]:
        """A sentence for each false alarm, each miss that no record names, and each named miss that is caught."""
        sentences: dict[str, None] = {}
        for fates in self.fates_by_round().values():
            for case in self.cases:
                fate = fates[case.id]
                if fate is Fate.FALSE_ALARM:
                    sentences[f"{case.id}: its mended form is refuted, too"] = None
                elif fate is Fate.MISSED and not case.missed:
                    sentences[f"{case.id}: missed, and its record does not say why"] = None
                elif fate is Fate.CAUGHT and case.missed:
                    sentences[f"{case.id}: caught, although its record says that it is missed"] = None
        return [*sentences]


_WORST: Final = (Fate.FALSE_ALARM, Fate.MISSED, Fate.NOT_MEASURED, Fate.CAUGHT, Fate.NOT_IN_SCOPE)


def _name(profile: str) -> str:
    return HARNESS if profile == "reduced" else f"{HARNESS}, {profile}"


def table(cases: Sequence[Case], fates: Mapping[str, Mapping[str, Fate]]) -> Iterator[Sequence[str]]:
    """Rows of a table: a header, one for each kind, and the total. Columns: each checker's catches and false alarms."""
    yield ["kind", "cases", *fates]
    for kind, text in [*KINDS.items(), ("", "all")]:
        chosen = [case.id for case in cases if kind in ("", case.kind)]
        if chosen:
            yield [text, str(len(chosen)), *(_share(Counter(of[case] for case in chosen)) for of in fates.values())]


def table_of_groups(cases: Sequence[Case], fates: Mapping[str, Sequence[Mapping[str, str]]]) -> Iterator[Sequence[str]]:
    """Rows of a table: a header, one for each of GROUPS, and the total.

    Args:
        fates: for each profile, those of its rounds, by case.
    """
    yield ["group", "cases", *(f"{profile}, rounds: {len(rounds)}" for profile, rounds in fates.items())]
    for group in (*GROUPS, ""):
        chosen = [case.id for case in cases if group in ("", case.group)]
        shares = [_share(Counter(Fate(of[case]) for of in rounds for case in chosen)) for rounds in fates.values()]
        yield [group or "all", str(len(chosen)), *shares]


def _share(counts: Counter[Fate]) -> str:
    in_scope = counts.total() - counts[Fate.NOT_IN_SCOPE] - counts[Fate.NOT_MEASURED]
    alarms = counts[Fate.FALSE_ALARM]
    suffix = f", {alarms} false alarm{'s' * (alarms > 1)}" if alarms else ""
    return f"{counts[Fate.CAUGHT]} of {in_scope}{suffix}" if in_scope else "-"


def corpus_digest(root: Path) -> str:
    """The SHA-256 over names and contents of subjects and contracts, and over the fields of records that affect
    judging."""
    whole = sha256()
    for file in sorted((root / "falsifiers" / "corpus").rglob("*.py")) + sorted(
        (root / "contracts" / "corpus").rglob("*.json")
    ):
        whole.update(f"{regular_file.sha256(file)}  {file.relative_to(root).as_posix()}\n".encode())
    for case in cases_of(root):  # without its texts, which change no outcome
        judged = [case.id, case.surface, case.subject, case.mended, case.claims, bool(case.out_of_scope)]
        whole.update(strictjson.dumps(judged).encode())
    return whole.hexdigest()


def code_digest(root: Path) -> str:
    """The SHA-256 over the code that decides the outcomes: the harness, and the project's falsifiers and contracts."""
    whole = sha256(harness_identity()["sha256"].encode())
    for file in sorted([*(root / "falsifiers").rglob("*.py"), *(root / "contracts").rglob("*.json")]):
        whole.update(f"{regular_file.sha256(file)}  {file.relative_to(root).as_posix()}\n".encode())
    return whole.hexdigest()


def document(results: Results, circumstances: JsonObject) -> JsonObject:
    """The document of a run: every verdict with its clauses and the digests of its bundles, and every checker's answer.

    `sha256` is the digest of the document without this key, as compact JSON with sorted keys.
    """
    fates, by_round = results.fates(), results.fates_by_round()
    cases: dict[str, Any] = {}
    for case in results.cases:
        judged = results.judged.get(case.id, {})
        cases[case.id] = {
            "kind": case.kind,
            "fates": {name: str(of[case.id]) for name, of in fates.items()},
            "rounds": [str(of[case.id]) for of in by_round.values()],
            "judged": {form: _group_rounds(of) for form, of in judged.items()},
            "answers": {
                checker: {
                    ("mended" if answer.mended else "failing"): [answer.answer, answer.reason]
                    for answer in answers[case.id]
                }
                for checker, answers in results.answers.items()
                if case.id in answers
            },
        }
    rounds = [[round_.profile, round_.seed] for round_ in results.rounds]
    content: dict[str, Any] = {**circumstances, "rounds": rounds, "cases": cases}
    return {**content, "sha256": sha256(strictjson.dumps(content).encode()).hexdigest()}


def read_back(content: JsonObject, cases: Sequence[Case]) -> Results:
    """Reverse `document`, for the same cases."""
    answers: dict[str, dict[str, tuple[Answer, Answer]]] = {}
    judged: dict[str, dict[str, list[Judged]]] = {}
    for name, case in content["cases"].items():
        for checker, of in case["answers"].items():
            both = Answer(name, False, *of["failing"]), Answer(name, True, *of["mended"])
            answers.setdefault(checker, {})[name] = both
        if case["judged"]:
            judged[name] = {form: [*_ungroup_rounds(of)] for form, of in case["judged"].items()}
    return Results(cases, [Round(*row) for row in content["rounds"]], judged, answers)


def _group_rounds(judged: Sequence[Judged]) -> list[JsonObject]:
    """Merge the rounds in which a claim has equal results."""
    groups: dict[tuple[str, str, Verdict, Sequence[str]], list[Judged]] = {}
    for entry in judged:
        groups.setdefault((entry.claim, entry.round.profile, entry.verdict, entry.clauses), []).append(entry)
    return [
        {
            "claim": claim, "profile": profile, "verdict": str(verdict), "clauses": [*clauses],
            "seeds": [judgment.round.seed for judgment in rounds], "seconds": [judgment.seconds for judgment in rounds],
            "manifests": [judgment.manifest for judgment in rounds],
        }
        for (claim, profile, verdict, clauses), rounds in groups.items()
    ]  # fmt: skip


def _ungroup_rounds(alike: Sequence[JsonObject]) -> Iterator[Judged]:
    """The inverse of `_group_rounds`, except for the order of rounds."""
    for group in alike:
        outcome = Verdict(group["verdict"]), tuple(group["clauses"])
        for seed, seconds, manifest in zip(group["seeds"], group["seconds"], group["manifests"], strict=True):
            yield Judged(group["claim"], Round(group["profile"], seed), *outcome, seconds, manifest)
