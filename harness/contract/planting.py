"""The planting scores of claims: evidence/planting/FAMILY-COMMIT.json.

`harness plant --json` writes them. No judgment reads them, and no bundle holds them. `harness verify` remarks that a
bundle's subject has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from harness.base import schemas, strictjson

__all__ = ["PLANTING", "planted_sources", "results_of"]

PLANTING: Final = "planting"
"""The folder of evidence that has the results."""


def results_of(evidence: Path, family: str) -> Iterator[Path]:
    """Yield the files with the planting scores of a family of claims, sorted by name."""
    yield from sorted((evidence / PLANTING).glob(f"{family}-*.json"))


def planted_sources(evidence: Path, family: str, claim: str) -> Mapping[str, frozenset[str]]:
    """The sha256 of the files of a claim's subject in which defects were planted, by path from the project's root.

    A file may have several, from several campaigns. A file of scores that is broken counts as none.
    """
    sources: dict[str, frozenset[str]] = {}
    for path in results_of(evidence, family):
        try:
            document = strictjson.load(path)
        except (OSError, strictjson.JsonError):
            continue
        if schemas.problems("planting", document):
            continue
        if any(entry["id"] == claim and entry["obstacle"] is None for entry in document["claims"]):
            for name, digest in document["sources"].items():
                sources[name] = sources.get(name, frozenset()) | {digest}
    return sources
