"""The planting scores of a project, and whether they cover the subject of a bundle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.base import regular_file, schemas
from harness.contract.claim_folder import PLANTING, family_of
from harness.contract.installed import root_of
from harness.evidence.bundle_layout import RECORD
from harness.evidence.findings import Code, Detail, Finding, finding
from harness.evidence.staleness import ProjectState, name_fields
from harness.judging.record import Record

__all__ = ["planted_sources", "results_of", "unplanted"]


def unplanted(record: Record, state: ProjectState) -> Iterator[Finding]:
    """Yield a remark if no defects were planted in the sources of the subject that was measured."""
    planted = _planted(state, record.id)
    if not planted:
        yield _remark(Detail.NEVER_PLANTED, "/subject")
        return
    measured = record.sources
    subject = state.uses(record.subject, record.id) | planted.keys()
    missed = sorted(name for name in subject & measured.keys() if measured[name] not in planted.get(name, ()))
    if missed:
        yield _remark(Detail.NOT_PLANTED, "/sources", **name_fields(missed))


def _remark(detail: Detail, where: str, **fields: Any) -> Finding:
    return finding(Code.UNPLANTED, detail, RECORD, where, **fields)


@lru_cache(maxsize=1024)
def _planted(state: ProjectState, claim: str) -> Mapping[str, frozenset[str]]:
    """Return the digests of the files in which defects were planted for a claim; none if it has no contract."""
    files = state.contract_files.get(claim, [])
    if len(files) != 1:
        return {}
    root = root_of(files[0])
    evidence = state.project.evidence if root is None else root / "evidence"
    return planted_sources(evidence, family_of(files[0]).name, claim)


def results_of(evidence: Path, family: str) -> Iterator[Path]:
    """Yield the files with the planting scores of a family of claims, sorted by name."""
    yield from sorted((evidence / PLANTING).glob(f"{family}-*.json"))


def planted_sources(evidence: Path, family: str, claim: str) -> Mapping[str, frozenset[str]]:
    """The sha256 of the files of a claim's subject in which defects were planted, by path from the project's root.

    A file may have several, from several campaigns. A malformed file is ignored.
    """
    sources: dict[str, frozenset[str]] = {}
    for path in results_of(evidence, family):
        try:
            document = schemas.loads("planting", regular_file.read(path))
        except (OSError, schemas.DocumentError):
            continue
        if any(entry["id"] == claim and entry["obstacle"] is None for entry in document["claims"]):
            for name, digest in document["sources"].items():
                sources[name] = sources.get(name, frozenset()) | {digest}
    return sources
