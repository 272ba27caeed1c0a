"""The numbers of a record that pages compare between runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import final

from harness.contract.bound import RULE
from harness.contract.keywords import is_number
from harness.judging.record import Record

__all__ = ["Measurement", "measurements_of"]


@final
@dataclass(frozen=True, slots=True)
class Measurement:
    """A number that a clause of a record reads."""

    value: float
    """NaN and infinities included."""
    unit: str


def measurements_of(record: Record) -> dict[str, Measurement]:
    """Return every number that the clauses of a record read, by name.

    A measurement has its name in the contract (`final_loss`). For a list, a clause reports only the item nearest to its
    bound, so the name is that of the clause (`losses[].maximum`).
    """
    return {name: Measurement(*measured) for name, measured in _measured(record)}


def _measured(record: Record) -> Iterator[tuple[str, tuple[float, str]]]:
    units: dict[str, str] = {}
    for clause in record.clauses:
        if isinstance(clause.value, Mapping):
            read = clause.value if clause.bound is not None and clause.bound.keyword == RULE else {}
            for name, value in read.items():
                if is_number(value) and name not in units:
                    yield name, (value, "")
        elif is_number(clause.value) and not clause.id.startswith("resolved."):
            place, _, keyword = clause.id.rpartition(".")
            items = "[]" in place or "{}" in place
            name = clause.id if items or clause.id.startswith("residency.") else place
            if name and name not in units and not (items and keyword == "type"):
                units[name] = clause.unit
                yield name, (clause.value, clause.unit)
