"""Bundles of every verdict, in the form that reports read."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from harness.contract.contract_annotations import Refutation
from harness.evidence.findings import Code, Detail, Finding, Verification
from harness.evidence.verification import verify_all
from harness.judging.record import Record
from harness.tools.text_report import BundleResult, bundle_results
from tests.contracts import healthy
from tests.evidence.factory import DEFECTIVE, sealed, tamper

__all__ = ["every_verdict", "examined", "refuted", "unsound"]


def every_verdict(folder: Path) -> list[BundleResult]:
    """A sound bundle of each verdict, an unproven PASS, and one that was changed after sealing."""
    paths = [
        sealed(folder, run="a-pass"),
        sealed(folder, run="b-fail", measurements=healthy(returned=2)),
        sealed(folder, run="c-void", mutants={**DEFECTIVE, "forgets-one": {}}),
        sealed(folder, run="d-nothing", measurements={}),
        sealed(folder, run="e-unproven", skipped=True),
        sealed(folder, run="f-tampered"),
    ]
    tamper(paths[-1])
    return bundle_results(verify_all(paths))


def refuted(folder: Path) -> dict[str, BundleResult]:
    """Runs of a claim whose contract states a refutation, by what is the case."""
    paths = [sealed(folder, run="b-fail", measurements=healthy(returned=2)), sealed(folder, run="a-pass")]
    failed, holds = bundle_results(verify_all(paths))
    known = Refutation("2026-11-23", "CPU", "reduced", ("nothing-lost",), "The source is wrong.")
    other = replace(known, clauses=("nothing-lost", "another"))
    return {
        "known": replace(failed, refutation=known),
        "other": replace(failed, refutation=other),
        "holds": replace(holds, refutation=known),
    }


def examined(record: Record) -> BundleResult:
    """A sound bundle with this record."""
    path = Path("evidence", record.issue, record.id, record.run)
    return BundleResult(Verification(path, (), verdict=record.verdict, id=record.id), record)


def unsound(text: str) -> BundleResult:
    """An unsound bundle, whose finding quotes a text from outside."""
    finding = Finding(Code.TAMPERED, Detail.REFUSED_FILE, text, fields={"text": text})
    name = text.replace("/", "").replace("\0", "") or "x"
    on_disk = os.fsdecode(name.encode(errors="surrogatepass"))  # the name of a file may be any bytes
    return BundleResult(Verification(Path("evidence") / on_disk, (finding,)), None)
