"""The layout of a claim's folder, contracts/FAMILY/ID/.

contracts/distill/figures.json
contracts/distill/F-DISTILL-SMOKE-001/contract.json     and notes.md, calibration.json, equivalent.json
evidence/planting/distill-97a5066.json
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

__all__ = [
    "CALIBRATION",
    "CONTRACT",
    "EQUIVALENT",
    "NOTES",
    "PLANTING",
    "claim_of",
    "contract_of",
    "family_of",
    "same_schema",
]

CONTRACT: Final = "contract.json"
NOTES: Final = "notes.md"
CALIBRATION: Final = "calibration.json"
EQUIVALENT: Final = "equivalent.json"
PLANTING: Final = "planting"
"""The folder of evidence/ with the results of `harness plant`."""

_SCHEMA = re.compile(rb'("\$schema"\s*:\s*")(?:\.\./)+(?=schema/)')


def claim_of(contract: Path) -> str:
    """Return the id of a claim from the path of its contract file: the name of the folder."""
    return Path(os.path.abspath(contract)).parent.name if contract.name == CONTRACT else contract.stem


def contract_of(file: Path) -> Path:
    """Return the contract for notes, calibration or equivalent mutants beside it. Other paths are unchanged."""
    return file.with_name(CONTRACT) if file.name in (NOTES, CALIBRATION, EQUIVALENT) else file


def family_of(contract: Path) -> Path:
    """Return the folder of a contract's family, which may contain figures.json."""
    return contract.parent.parent


def same_schema(content: bytes) -> bytes:
    """Return a file's bytes with `$schema` as "../schema/…", the path before claims had folders.

    Older evidence has digests with that path, so digests are computed with it.
    """
    return _SCHEMA.sub(rb"\1../", content, count=1)
