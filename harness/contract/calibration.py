"""The calibration of a contract: the ratio of each mutant's measurements to the thresholds.

`harness calibrate ID --write` writes calibration.json beside the contract. The contract states its SHA-256, so a
contract's digest covers the calibration. No judgment reads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from harness.base import regular_file, schemas
from harness.base.schemas import Problem
from harness.base.strictjson import JsonObject
from harness.contract.claim_folder import CALIBRATION, claim_of, same_schema

__all__ = ["calibration_digest", "calibration_of", "calibration_path"]

_KEY = "/calibration"
_AGAIN = "remove the file and the contract's key 'calibration', then run harness calibrate ID --write"


def calibration_path(contract: Path) -> Path:
    """Return the path of a contract file's calibration."""
    return contract.with_name(CALIBRATION)


def calibration_digest(content: bytes) -> str:
    """Return the SHA-256 of a calibration file. The file's path to the schemas does not affect it."""
    return hashlib.sha256(same_schema(content)).hexdigest()


def calibration_of(path: Path, expected_digest: str | None) -> tuple[Mapping[str, JsonObject], list[Problem]]:
    """Return the profiles of the calibration beside a contract file, none if it is invalid, and its problems.

    Args:
        path: the contract file.
        expected_digest: the SHA-256 that the contract states; None if it states none.
    """
    place = calibration_path(path)
    try:
        content = regular_file.read(place)
    except FileNotFoundError:
        missing = Problem(_KEY, f"there is no {place.name} next to the contract", f"restore it, or {_AGAIN}")
        return {}, [missing] if expected_digest is not None else []
    except OSError as error:
        return {}, [Problem(_KEY, f"{place.name} cannot be read: {error.strerror}", "make it readable")]
    digest = calibration_digest(content)
    if digest != expected_digest:
        named = "no calibration" if expected_digest is None else expected_digest
        message = f"{place.name} has the SHA-256 {digest}, and the contract names {named}"
        return {}, [Problem(_KEY, message, f"restore it, or {_AGAIN}")]
    try:
        document = schemas.loads("calibration", content)
    except schemas.DocumentError as error:
        return {}, [Problem(_KEY + problem.pointer, problem.message, _AGAIN) for problem in error.problems]
    if document["id"] != claim_of(path):
        return {}, [Problem(f"{_KEY}/id", f"is {document['id']}, not {claim_of(path)}", _AGAIN)]
    return document["profiles"], []
