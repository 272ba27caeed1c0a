"""The file of a contract as reports name it: its path from the current folder, and the lines of its parts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import final

from harness.base import regular_file
from harness.contract import Contract
from harness.contract.lines import Lines
from harness.judging.record import Record
from harness.report.escaping import printable
from harness.report.messages.not_finite import wrong

__all__ = ["UNKNOWN", "ContractFile"]


@final
@dataclass(frozen=True)
class ContractFile:
    """Where a claim is stated."""

    name: str
    """Empty if unknown."""
    lines: Lines

    @classmethod
    def of(cls, contract: Contract) -> ContractFile:
        """Return the file of a loaded contract."""
        return cls(_shown(contract.path), Lines(contract.content.decode("utf-8", "replace")))

    @classmethod
    def at(cls, path: Path) -> ContractFile:
        """Return the file at a path. A file that cannot be read has no lines."""
        try:
            text = regular_file.read(path).decode("utf-8", "replace")
        except OSError:
            text = ""
        return cls(_shown(path), Lines(text))

    def line_of(self, record: Record) -> int:
        """Return the line of the clause that decided a verdict; of the claim if none did."""
        clauses, _ = wrong(record.clauses)
        return self.lines.clause(clauses[0].id) if clauses else self.lines.claim()


UNKNOWN = ContractFile("", Lines(""))


def _shown(path: Path) -> str:
    return printable(os.path.relpath(path).replace(os.sep, "/"))
