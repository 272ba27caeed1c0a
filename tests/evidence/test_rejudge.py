"""Judging again: a true manifest does not hide a forged record."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.base.device import Device
from harness.base.vocabulary import Verdict
from harness.contract.contract_annotations import judging_part
from harness.evidence.findings import Code, Detail
from harness.evidence.verification import verify
from harness.report.messages.finding_text import bundle_line
from tests.contracts import healthy
from tests.evidence.factory import (
    DEFECTIVE,
    MUTANTS,
    claim_result,
    contract_in,
    reseal,
    rewrite,
    sealed,
    sealer,
    set_at,
    trial,
)

Change = Callable[[Any], Any]
pytestmark = pytest.mark.usefixtures("in_this_process")

MUTANTS_FILE, FORGETS, STOPS = "mutants.jsonl", "/forgets-one/observation", "/stops-early/observation"


def seen(mutant: str, *steps: Any) -> Change:
    """A change of a mutant's observation."""
    return set_at(mutant, "observation", *steps)


FORGERIES: dict[str, tuple[str, Change, str]] = {
    "verdict": ("record.json", set_at("verdict", "FAIL"), "/verdict"),
    "proven": ("record.json", set_at("proven", False), "/proven"),
    "outcome": ("record.json", set_at("clauses", 0, "outcome", "FAIL"), "/clauses/0/outcome"),
    "value": ("record.json", set_at("clauses", 4, "value", 4), "/clauses/4/value"),
    "recorded bound": ("record.json", set_at("clauses", 4, "bound", "limit", 4), "/clauses/4/bound"),
    "clause left out": ("record.json", lambda document: document["clauses"].pop(3) and None, "/clauses"),
    "clause made up": ("record.json", set_at("clauses", 3, "id", "made.up"), "/clauses"),
    "clause twice": ("record.json", lambda whole: whole["clauses"].insert(0, whole["clauses"][0]), "/clauses"),
    "clause reordered": ("record.json", lambda document: document["clauses"].reverse(), "/clauses"),
    "unit": ("record.json", set_at("clauses", 4, "unit", "B"), "/clauses/4/unit"),
    "id": ("record.json", set_at("id", "F-OTHER-001"), "/id"),
    "issue": ("record.json", set_at("issue", "X-1"), "/issue"),
    "claim": ("record.json", set_at("claim", "Everything works"), "/claim"),
    "unjudged": ("record.json", set_at("unjudged", ["ordered"]), "/unjudged"),
    "mutant subject": ("record.json", set_at("mutants", 1, "subject", "a:B"), "/mutants/1/subject"),
    "mutant values": ("record.json", set_at("mutants", 1, "values", {"ordered": 1}), "/mutants/1/values"),
    "mutant twice": ("record.json", lambda whole: whole["mutants"].append(whole["mutants"][2]), "/mutants"),
    "title": ("record.json", set_at("title", "Everything works"), "/title"),
    "spec": ("record.json", set_at("spec", "SPEC-OTHER"), "/spec"),
    "target": ("record.json", set_at("target", {"device": "a CPU"}), "/target"),
    "falsifier": ("record.json", set_at("falsifier", "a.b:c"), "/falsifier"),
    "subject": ("record.json", set_at("subject", "a.b:c"), "/subject"),
    "contract digest": ("record.json", set_at("contract_digest", "0" * 64), "/contract_digest"),
    "profile": ("record.json", set_at("profile", "full"), "/profile"),
    "seed": ("record.json", set_at("seed", 7), "/seed"),
    "device": ("record.json", set_at("device", "name", "NVIDIA GB10"), "/device"),
    "requested": ("record.json", set_at("requested", "steps", 4), "/requested"),
    "resolved": ("record.json", set_at("resolved", "steps", 4), "/resolved"),
    "override made up": ("record.json", set_at("overrides", {"steps": 9}), "/parameters"),
    "mutant fate": ("record.json", set_at("mutants", 0, "fate", "survived"), "/mutants/0/fate"),
    "mutant failed": ("record.json", set_at("mutants", 0, "failed", ["ordered"]), "/mutants/0/failed"),
    "mutant violates": ("record.json", set_at("mutants", 0, "violates", ["ordered"]), "/mutants/0/violates"),
    "mutant defect": ("record.json", set_at("mutants", 0, "defect", "a worse one"), "/mutants/0/defect"),
    "mutant left out": ("record.json", lambda document: document["mutants"].pop(2) and None, "/mutants"),
    "mutant made up": (
        "record.json", lambda whole: whole["mutants"].append({**whole["mutants"][2], "id": "x"}), "/mutants"
    ),
    "mutants reordered": ("record.json", lambda document: document["mutants"].reverse(), "/mutants"),
    "measurement": ("observation.json", set_at("measurements", "returned", 2), "/verdict"),
    "measurement gone": ("observation.json", lambda whole: whole["measurements"].pop("returned") and None, "/verdict"),
    "not finite": ("observation.json", set_at("measurements", "smallest", {"nonfinite": "NaN"}), "/verdict"),
    "nothing resolved": ("observation.json", set_at("resolved", {}), "/verdict"),
    "resolved otherwise": ("observation.json", set_at("resolved", "device", "cuda"), "/verdict"),
    "parameters": ("observation.json", set_at("parameters", "steps", 2), "/parameters"),
    "ending": ("observation.json", set_at("ending", "kind", "timed out"), "/verdict"),
    "another subject": ("observation.json", set_at("subject", "falsifiers.demo.sorting:Forgetful"), "/subject"),
    "mutant healed": (MUTANTS_FILE, seen("forgets-one", "measurements", "returned", 3), "/verdict"),
    "mutant of another seed": (MUTANTS_FILE, seen("forgets-one", "seed", 3), f"{FORGETS}/seed"),
    "mutant of another subject": (MUTANTS_FILE, seen("forgets-one", "subject", "a.b:c"), f"{FORGETS}/subject"),
    "mutant at other work": (MUTANTS_FILE, seen("stops-early", "parameters", "steps", 3), f"{STOPS}/parameters"),
    "mutant on another device": (MUTANTS_FILE, seen("forgets-one", "device", "name", "x"), f"{FORGETS}/device"),
    "mutant of another profile": (MUTANTS_FILE, seen("forgets-one", "profile", "full"), f"{FORGETS}/profile"),
    "bound": ("contract.json", set_at("observation", "properties", "returned", "minimum", 4), "/verdict"),
    "rule": ("contract.json", set_at("rules", 0, "rule", "self.returned == self.returned"), "/contract_digest"),
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forgery_is_judged_differently(bundle: Path, forgery: str) -> None:
    """Each forgery is at a place that a person reads, and the manifest is valid."""
    name, change, pointer = FORGERIES[forgery]
    rewrite(bundle, name, change)
    findings = verify(bundle).findings
    assert {finding.code for finding in findings} == {Code.REJUDGED_DIFFERENTLY}
    assert pointer in {finding.pointer for finding in findings}


def test_what_is_shown_of_a_bundle_is_judged_again(bundle: Path) -> None:
    """A forged record adds findings, and changes neither verdict, proof nor fates."""
    honest = verify(bundle)
    assert (honest.verdict, honest.proven) == (Verdict.PASS, True)
    assert honest.mutants == {"forgets-one": "killed", "stops-early": "killed", "silent-fallback": "not run"}
    for steps in (("verdict", "FAIL"), ("proven", False), ("mutants", 0, "fate", "survived")):
        rewrite(bundle, "record.json", set_at(*steps))
    rewrite(bundle, "record.json", set_at("reason", {"code": "interrupted"}))
    forged = verify(bundle)
    assert not forged.sound
    derived = ("verdict", "proven", "reason", "mutants")
    assert [getattr(forged, name) for name in derived] == [getattr(honest, name) for name in derived]
    assert bundle_line(forged).startswith("UNSOUND (PASS)  ")


def test_a_finding_names_then_and_now(bundle: Path) -> None:
    """A reader can act on the finding without opening a file."""
    rewrite(bundle, "observation.json", set_at("measurements", "returned", 2))
    verification = verify(bundle)
    (outcome,) = (finding for finding in verification.findings if finding.pointer == "/clauses/12/outcome")
    assert (outcome.detail, outcome.fields) == (Detail.OTHERWISE_DERIVED, {"then": '"PASS"', "now": '"FAIL"'})
    assert verification.verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("changes", "verdict", "proven"),
    [
        ({}, Verdict.PASS, True),
        ({"skipped": True}, Verdict.PASS, False),
        ({"measurements": healthy(returned=2)}, Verdict.FAIL, True),
        ({"measurements": {}}, Verdict.NOT_MEASURED, True),
        ({"mutants": {**DEFECTIVE, "forgets-one": {}}}, Verdict.VOID, False),
        ({"mutants": {**DEFECTIVE, "forgets-one": {"given": 2, "returned": 2}}}, Verdict.VOID, False),
        ({"mutants": {**DEFECTIVE, "forgets-one": {"returned": ...}}}, Verdict.NOT_MEASURED, False),
        ({"mutants": {}}, Verdict.NOT_MEASURED, False),
        ({"cut_short": True}, Verdict.NOT_MEASURED, False),
        ({"cut_short": True, "mutants": {}}, Verdict.NOT_MEASURED, False),
        ({"cut_short": True, "measurements": healthy(returned=2)}, Verdict.FAIL, False),
        ({"overrides": {"steps": 5}}, Verdict.PASS, True),
        ({"subject": "falsifiers.demo.sorting:Other"}, None, None),
    ],
)  # fmt: skip
def test_every_verdict_can_be_sound(tmp_path: Path, changes: dict[str, Any], verdict: Any, proven: Any) -> None:
    """Verification asks whether a bundle is true, not which verdict it has."""
    verification = verify(sealed(tmp_path, **changes))
    if verdict is None:  # only the record's subject was changed: the observation is of another one
        assert not verification.sound
        return
    assert verification.findings == ()
    assert (verification.verdict, verification.proven) == (verdict, proven)
    assert verification.overrides == changes.get("overrides")


def without_mutant(bundle: Path, mutant: str) -> None:
    """Hide a mutant's trial: remove its line and output, and change the record to say that it was not run."""
    rewrite(bundle, MUTANTS_FILE, lambda lines: {name: line for name, line in lines.items() if name != mutant})
    streams = (bundle / "trials.log").read_text().split("==> ")[1:]
    kept = [stream for stream in streams if not stream.startswith(f"mutant {mutant} ")]
    (bundle / "trials.log").write_text("".join(f"==> {stream}" for stream in kept))

    def change(document: Any) -> None:
        for entry in document["mutants"]:
            if entry["id"] == mutant:
                entry.update(
                    fate="not run", reason={"code": "requirement", "text": "needs a CUDA GPU"}, failed=[], seconds=None
                )

    rewrite(bundle, "record.json", change)


def test_a_mutant_that_could_have_run_cannot_be_hidden(bundle: Path) -> None:
    """A surviving mutant that is left out would leave the claim proven. So the bundle is unsound."""
    without_mutant(bundle, "stops-early")
    findings = verify(bundle).findings
    assert [(finding.code, finding.pointer) for finding in findings] == [(Code.REJUDGED_DIFFERENTLY, "/mutants/1/fate")]


@pytest.mark.parametrize(
    ("requires", "sound"),
    [
        ({"device": "any"}, False),
        ({"device": "cuda"}, True),
        ({"device": "any", "memory_gib": 4}, True),
        ({"device": "any", "memory_gib": 1}, False),
        ({"device": "any", "compute_capability": "9.0"}, True),
        ({"device": "any", "modules": ["triton"]}, True),
    ],
)
def test_only_what_the_device_lacks_excuses_a_mutant(tmp_path: Path, requires: dict[str, Any], sound: bool) -> None:
    """A mutant is excused only by what the device lacks, as far as a bundle shows it."""
    contract = contract_in(tmp_path, mutants=[*MUTANTS[:2], {**MUTANTS[2], "requires": requires}])
    bundle = sealed(tmp_path, contract=contract)
    device = Device("cpu", "a CPU", memory_bytes=2 << 30)
    for name in ("record.json", "observation.json"):
        rewrite(bundle, name, set_at("device", device.to_json()))
    for mutant in DEFECTIVE:
        rewrite(bundle, "mutants.jsonl", set_at(mutant, "observation", "device", device.to_json()))
    rewrite(bundle, "environment.json", set_at("host", "memory_bytes", device.memory_bytes))
    assert verify(bundle).sound is sound


TOLD: dict[str, tuple[dict[str, Any], tuple[Any, ...], str]] = {
    "place of a clause": ({"measurements": healthy(returned=2)}, ("clauses", "reason", "place"), "all of it"),
    "text of a clause": ({"measurements": healthy(returned=2)}, ("clauses", "reason", "text"), "merge this"),
    "place in the claim": ({"measurements": healthy(returned=2)}, ("reason", "cause", "place"), "all of it"),
    "clauses of the claim": ({"measurements": healthy(returned=2)}, ("reason", "clauses"), ["ordered"]),
    "text in the claim": ({"measurements": healthy(returned=2)}, ("reason", "cause", "text"), "merge this"),
    "text of a mutant": (
        {"mutants": {**DEFECTIVE, "forgets-one": {"given": 2, "returned": 2}}},
        ("mutants", "reason", "text"),
        "merge this",
    ),
    "fate in the claim": (
        {"mutants": {**DEFECTIVE, "forgets-one": {"given": 2, "returned": 2}}},
        ("reason", "fate"),
        "survived",
    ),
    "text of a mutant that was skipped": ({"skipped": True}, ("mutants", "reason", "text"), "merge this"),
    "text of an interrupted mutant": ({"cut_short": True}, ("mutants", "reason", "text"), "merge this"),
}


@pytest.mark.parametrize("forgery", TOLD)
def test_a_forged_reason_is_found(tmp_path: Path, forgery: str) -> None:
    """A changed word of a reason is found too, because every view prints it."""
    made, (first, *steps), value = TOLD[forgery]
    bundle = sealed(tmp_path, **made)
    assert verify(bundle).findings == ()
    record = json.loads((bundle / "record.json").read_text())
    place: tuple[Any, ...] = (first,)
    if isinstance(record[first], list):
        place = (first, next(index for index, item in enumerate(record[first]) if item["reason"]))
    rewrite(bundle, "record.json", set_at(*place, *steps, value))
    where = "/".join(("", *map(str, place), *(("reason",) if first != "reason" else ())))
    assert (Code.REJUDGED_DIFFERENTLY, where) in {
        (finding.code, finding.pointer) for finding in verify(bundle).findings
    }


@pytest.mark.parametrize("stream", ["subject stdout", "mutant forgets-one stderr"])
def test_a_forged_log_is_found(bundle: Path, stream: str) -> None:
    """If nothing in the log was masked or cut, its size and digest are known."""
    path = bundle / "trials.log"
    heading = re.compile(rb"(==> " + stream.encode() + rb": .*follow, quoted\n)\| hello\n")
    forged, count = heading.subn(rb"\g<1>| HELLO\n", path.read_bytes())
    assert count == 1
    path.write_bytes(forged)
    reseal(bundle)
    (finding,) = verify(bundle).findings
    assert (finding.code, finding.file) == (Code.REJUDGED_DIFFERENTLY, "trials.log")


@pytest.mark.parametrize(
    "output", ["a [masked] b", "\N{SYMBOL FOR NULL}", "\N{REPLACEMENT CHARACTER}", "12 bytes left out", "", "é\r\n"]
)
def test_a_log_with_any_output_is_sound(tmp_path: Path, output: str) -> None:
    """Any output is sound, including the marks of masked and cut output, whose digest cannot be compared."""
    result = claim_result(tmp_path)
    bundle = sealer(tmp_path).seal(replace(result, subject=trial(result.subject.observation, output=output)))
    assert not [finding for finding in verify(bundle).findings if finding.file == "trials.log"]


PROSE = frozenset(
    {
        "reason",
        "text",
        "message",
        "title",
        "claim",
        "defect",
        "description",
        "source",
        "x-source",
        "why",
        "traceback",
        "profile_reason",
    }
)
"""Keys whose texts are written for people, in any file of a bundle."""
MADE: dict[str, dict[str, Any]] = {
    "a proven PASS": {},
    "a FAIL": {"measurements": healthy(returned=2)},
    "measured too little": {"measurements": healthy(smallest=...)},
    "nothing measured": {"measurements": {}},
    "a survivor": {"mutants": {**DEFECTIVE, "forgets-one": {}}},
    "misattributed": {"mutants": {**DEFECTIVE, "forgets-one": {"given": 2, "returned": 2}}},
    "inconclusive": {"mutants": {**DEFECTIVE, "forgets-one": {"returned": ...}}},
    "interrupted before a mutant": {"cut_short": True},
    "interrupted before every mutant": {"cut_short": True, "mutants": {}},
    "no mutant could run": {"mutants": {}},
    "mutants skipped": {"skipped": True},
    "not finite": {"measurements": healthy(smallest=float("nan"))},
}


def reworded(value: Any, key: str = "") -> Any:
    """The JSON value with every sentence reversed."""
    if isinstance(value, dict):
        return {name: reworded(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [reworded(item, key) for item in value]
    return f"Reworded, {value[::-1]}" if isinstance(value, str) and key in PROSE and value else value


def rewrite_every_sentence(bundle: Path) -> int:
    """Reword each JSON file and line of a bundle, correct the contract's digest in the record, and seal it again."""
    changed = 0
    for path in sorted([*bundle.rglob("*.json"), *bundle.rglob("*.jsonl")]):
        lines = path.suffix == ".jsonl"
        before = [json.loads(text) for text in (path.read_text().splitlines() if lines else [path.read_text()])]
        after = reworded(before)
        changed += before != after
        path.write_text("".join(json.dumps(row) + "\n" for row in after))
    record = json.loads((bundle / "record.json").read_text())
    record["contract_digest"] = hashlib.sha256(judging_part((bundle / "contract.json").read_bytes())).hexdigest()
    (bundle / "record.json").write_text(json.dumps(record))
    reseal(bundle)
    return changed


@pytest.mark.parametrize("made", MADE)
def test_no_sentence_decides(tmp_path: Path, made: str) -> None:
    """Verdict, proof, fates and findings stay the same. Only quoted words in the reasons differ."""
    bundle = sealed(tmp_path, **MADE[made])
    before = verify(bundle)
    assert before.findings == ()
    assert rewrite_every_sentence(bundle) > 1
    after = verify(bundle)
    assert after.findings == ()
    assert (after.verdict, after.proven, after.mutants) == (before.verdict, before.proven, before.mutants)
    assert [remark.code for remark in after.remarks] == [remark.code for remark in before.remarks]
    assert (after.reason and after.reason.codes) == (before.reason and before.reason.codes)
