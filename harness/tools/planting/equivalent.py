"""The planted defects that an author marks as equivalent: equivalent.json next to the contract.

A defect is equivalent if it changes nothing that the claim states. `harness plant` does not count it. No judgment
reads the file, and no bundle holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.base import schemas, strictjson
from harness.base.schemas import Problem
from harness.contract.claim_folder import EQUIVALENT, claim_of
from harness.contract.model import ContractError

__all__ = ["Equivalent", "equivalents"]


@dataclass(frozen=True)
class Equivalent:
    """One entry of the file."""

    file: str
    within: str | None
    before: str
    after: str
    reason: str
    is_equivalent: bool = True
    """False for a known survivor that is not equivalent: it changes something that the claim states."""

    def names(self, file: str, within: str, before: str, after: str) -> bool:
        """Whether the entry names the defect that replaces these lines of a file."""
        return (self.file, self.before, self.after) == (file, before, after) and self.within in (None, within)


def equivalents(contract: Path) -> tuple[Equivalent, ...]:
    """The entries next to a contract file; none if there is no such file.

    Raises:
        ContractError: the file cannot be read, or does not match its schema.
    """
    place = contract.with_name(EQUIVALENT)
    try:
        document = strictjson.load(place)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ContractError(place, [Problem("", f"cannot be read: {error.strerror}", "make it readable")]) from error
    except strictjson.JsonError as error:
        raise ContractError(place, [Problem(error.pointer, error.message)]) from error
    problems = schemas.problems("equivalent", document)
    if not problems and document["id"] != claim_of(contract):
        problems = [Problem("/id", f"is {document['id']}, not {claim_of(contract)}", "name the claim next to it")]
    if problems:
        raise ContractError(place, problems)
    return tuple(
        Equivalent(
            entry["file"], entry.get("within"), entry["before"], entry["after"], entry["reason"], kind == "equivalent"
        )
        for kind in ("equivalent", "missed")
        for entry in document.get(kind, ())
    )
