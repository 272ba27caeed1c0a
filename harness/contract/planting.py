"""The planting scores of claims: files next to their contracts whose names end in planting.json.

`harness plant --json` writes them. No judgment reads them, and no bundle holds them. `harness verify` remarks that a
bundle's subject has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.base import schemas, strictjson

__all__ = ["SUFFIX", "planted_sources"]

SUFFIX = "planting.json"


def planted_sources(folder: Path, claim: str) -> Mapping[str, frozenset[str]]:
    """The sha256 of the files of a claim's subject in which defects were planted, by path from the project's root.

    A file may have several, from several campaigns. A file of scores that is broken counts as none.

    Args:
        folder: the one with the claim's contract.
    """
    sources: dict[str, frozenset[str]] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
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
