"""Every sentence of a bundle is rewritten: no verdict, fate or finding depends on wording."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from harness.contract.contract_annotations import judging_part
from harness.evidence.verification import verify
from tests.contracts import healthy
from tests.evidence.factory import DEFECTIVE, reseal, sealed

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
        path.write_text("".join(json.dumps(one) + "\n" for one in after))
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
    assert [one.code for one in after.remarks] == [one.code for one in before.remarks]
    assert (after.reason and after.reason.codes) == (before.reason and before.reason.codes)
