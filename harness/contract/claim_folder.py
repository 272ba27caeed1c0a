"""The folder of a claim: contracts/FAMILY/ID/ has the contract and the files that belong to it.

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
"""The folder of evidence that has the results of `harness plant`."""

_SCHEMA = re.compile(rb'("\$schema"\s*:\s*")(?:\.\./)+(?=schema/)')


def claim_of(contract: Path) -> str:
    """The id of a claim by the place of its contract file: the folder's name."""
    return Path(os.path.abspath(contract)).parent.name if contract.name == CONTRACT else contract.stem


def contract_of(file: Path) -> Path:
    """The contract that a file of a claim's folder belongs to; any other file is returned as it is."""
    return file.with_name(CONTRACT) if file.name in (NOTES, CALIBRATION, EQUIVALENT) else file


def family_of(contract: Path) -> Path:
    """The folder of a contract's family, which may have a figures.json."""
    return contract.parent.parent


def same_schema(content: bytes) -> bytes:
    """A file's bytes with the path to contracts/schema/ as it was before claims had folders.

    `$schema` is for editors. It is part of digests that evidence has, so a digest reads it as if no file had moved.
    """
    return _SCHEMA.sub(rb"\1../", content, count=1)
