"""Bundles: any content of each document, below a manifest that confirms it, and any manifest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.evidence.bundle_checks import check, prepare
from harness.evidence.bundle_layout import MANIFEST
from harness.evidence.findings import Detail
from tests.evidence.conftest import pristine
from tests.evidence.factory import files_of, reseal
from tests.fuzz.corpus import cases
from tests.fuzz.damage import altered, damaged, noise
from tests.fuzz.limits import bounded

__all__ = ["pristine"]

WORDS = [
    "PASS", "FAIL", "NOT_MEASURED", "VOID", "killed", "lived", "not_run", "cpu", "cuda", "forgets-one", "given.const",
    "kept", "subject.completes", "nothing-lost", "2026-11-20T20:15:03+00:00", "0001-01-01T00:00:00+14:00", "0" * 64,
]  # fmt: skip

prepare()


@st.composite
def changed(draw: st.DrawFn, bundle: Path) -> tuple[str, bytes]:
    """The name and the new content of one file of a bundle."""
    name = draw(st.sampled_from(files_of(bundle)))
    content = (bundle / name).read_bytes()
    ways = [damaged([content]) if content else noise(), noise()]
    if name.endswith(".json"):
        ways.append(altered([json.loads(content)], WORDS))
    if name.endswith(".jsonl"):
        lines = list(map(json.loads, content.splitlines()))
        changed_lines = altered(lines, WORDS).map(lambda text: text + b"\n")
        ways.append(st.lists(changed_lines, max_size=3).map(b"".join))
    return name, draw(st.one_of(ways))


def examine(bundle: Path, name: str, content: bytes) -> None:
    """Verify the bundle with this file. It may have findings, but no check may break off."""
    path, sealed = bundle / name, (bundle / MANIFEST).read_bytes()
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        if name != MANIFEST:
            reseal(bundle)
        with bounded(seconds=10.0):
            verification, _origin = check(bundle, {})
        assert not [finding for finding in verification.findings if finding.detail is Detail.CHECK_FAILED]
        json.dumps(verification.to_json())
    finally:
        path.write_bytes(before)
        (bundle / MANIFEST).write_bytes(sealed)


@given(data=st.data())
def test_any_bytes_give_findings(pristine: Path, data: st.DataObject) -> None:
    examine(pristine, *data.draw(changed(pristine)))


@cases("bundle")
@pytest.mark.parametrize("name", ["record.json", "observation.json", "mutants.jsonl", "contract.json", MANIFEST])
def test_the_corpus(data: bytes, name: str, pristine: Path) -> None:
    examine(pristine, name, data)
