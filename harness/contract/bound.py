"""The bound of a clause as data: a keyword and its limit. `harness.report.messages.bound_text` formats it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from harness.base import strictjson
from harness.base.json_dataclass import JsonDataclass

__all__ = ["CLOSED", "RULE", "Bound"]

RULE: Final = "rule"
"""The keyword of a CEL rule. Its limit is the rule's text."""
CLOSED: Final = "closed"
"""The keyword of an object without undeclared properties. Its limit is the list of declared properties."""


@dataclass(frozen=True, slots=True)
class Bound(JsonDataclass):
    """A keyword of the observation schema, `RULE` or `CLOSED`, with its argument, such as `maximum` and 4.0."""

    keyword: str
    limit: Any

    def __str__(self) -> str:
        if self.keyword == RULE:
            return str(self.limit)
        return f"{self.keyword} {strictjson.dumps(self.limit)}"
