"""The records of a corpus: one JSON file for each documented mistake, below `falsifiers/corpus/cases/KIND/`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from harness.base import regular_file, strictjson
from harness.base.strictjson import JsonObject

__all__ = ["CASES", "COSTS", "GROUPS", "KINDS", "SURFACES", "Case", "RecordError", "cases_of", "read_case", "sample"]

CASES: Final = Path("falsifiers/corpus/cases")
"""The folder of the records, from the project's root."""
KINDS: Final[Mapping[str, str]] = {
    "kernels": "false speed-ups of kernels",
    "losses": "losses and gradients",
    "optimizers": "optimizers and schedules",
    "data": "data",
    "checkpoints": "checkpoints",
    "distribution": "distribution over ranks",
    "hardware": "memory and hardware",
    "tests": "evaluations and tests",
}
"""The folders, and what they hold."""
COSTS: Final[Mapping[str, str]] = {
    "false result": "a number was believed that is wrong",
    "weaker model": "training went on, and came to less",
    "lost work": "weights or a run were lost",
    "wasted time": "people or machines worked in vain",
    "damage": "others relied on it, and had to be told",
}
GROUPS: Final = ("trainer bugs", "kernel hacks", "suite hacks", "forgeries")
"""The groups that are reported separately."""
SURFACES: Final = ("function", "trainer", "suite", "other")
"""The kinds of subject, for other checkers: a function of tensors, a trainer, a pytest suite."""
_ID: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_SOURCE: Final = re.compile(r"https://[^\s/]+\.[^\s/]+/\S*")
_ENTRY: Final = re.compile(r"[\w.]+:\w+")
_FIRST_YEAR: Final = 1990


class RecordError(ValueError):
    """A record is invalid. The text names the file and the problem."""


@dataclass(frozen=True)
class Case:
    """One documented mistake.

    Attributes:
        source: a public URL. year: when it was published. believed, truth: what people believed, and what was true.
        noticed: who or what noticed it. late: how long that took.
        cost: one of COSTS.
        surface: one of SURFACES.
        subject: the entry point; empty if no claim applies.
        mended: the entry point of the right form, such as the reference that a trainer derives from; empty if the
            subject itself is right with the parameter `mended`.
        claims: the claims about the property, with the parameters that differ from their profile's. out_of_scope: why
        no claim can judge it; empty if a claim can. missed: why the harness does not catch it; empty if it does.
        forged: whether it manipulates the measurement itself: a clock, a comparison, the report of a suite.
        checked: the day on which the texts were compared with the source; empty if the source was not found.
    """

    id: str
    kind: str
    title: str
    source: str
    year: int
    believed: str
    truth: str
    noticed: str
    late: str
    cost: str
    surface: str = "function"
    subject: str = ""
    mended: str = ""
    claims: Mapping[str, JsonObject] = field(default_factory=dict)
    out_of_scope: str = ""
    missed: str = ""
    forged: bool = False
    checked: str = ""

    @property
    def group(self) -> str:
        """One of GROUPS. Bugs of libraries belong to the group of trainers."""
        return "forgeries" if self.forged else {"kernels": GROUPS[1], "tests": GROUPS[2]}.get(self.kind, GROUPS[0])

    def problems(self) -> list[str]:
        """The invalid values; empty if all are valid."""
        texts = {name: getattr(self, name) for name in ("title", "believed", "truth", "noticed", "late")}
        problems = [f"{name} is empty or not one line" for name, text in texts.items() if not text or "\n" in text]
        if not _ID.fullmatch(self.id):
            problems.append("the id has other characters than a-z, 0-9 and single hyphens")
        problems += _unknown("kind", self.kind, KINDS) + _unknown("cost", self.cost, COSTS)
        problems += _unknown("surface", self.surface, SURFACES)
        if not _SOURCE.fullmatch(self.source):
            problems.append("source is no https address")
        if not isinstance(self.year, int) or self.year < _FIRST_YEAR:
            problems.append(f"year is no year since {_FIRST_YEAR}")
        if self.mended and (not _ENTRY.fullmatch(self.mended) or self.surface in ("function", "suite")):
            problems.append("mended is no entry point, or the subject is a function of `mended`")
        if self.out_of_scope and (self.claims or self.missed):
            problems.append("a case out of scope has no claims, and is not missed")
        if not self.out_of_scope and not (self.claims and _ENTRY.fullmatch(self.subject)):
            problems.append("name the subject, and the claims that apply, or say why it is out of scope")
        return problems


def _unknown(name: str, value: str, known: Collection[str]) -> list[str]:
    return [] if value in known else [f"{name} is none of {', '.join(known)}"]


def read_case(file: Path) -> Case:
    """Read a record.

    Raises:
        RecordError: the record cannot be read, or is invalid.
    """
    required = {field.name for field in fields(Case) if field.default is MISSING and field.default_factory is MISSING}
    try:
        content: Any = strictjson.loads(regular_file.read(file))
        if not isinstance(content, dict):
            raise RecordError(f"{file}: it is no object")
        lacks = sorted(required - content.keys())
        unknown = sorted(content.keys() - {field.name for field in fields(Case)})
        if lacks or unknown:
            text = f"it lacks {', '.join(lacks) or 'nothing'}; unknown: {', '.join(unknown) or 'none'}"
            raise RecordError(f"{file}: {text}")
        case = Case(**content)
        problems = case.problems()
    except (OSError, strictjson.JsonError, TypeError) as error:
        raise RecordError(f"{file}: {error}") from error
    if (case.id, case.kind) != (file.stem, file.parent.name):
        problems.append(f"the file belongs at {case.kind}/{case.id}.json")
    if problems:
        raise RecordError(f"{file}: {'; '.join(problems)}")
    return case


def cases_of(root: Path) -> list[Case]:
    """Read all records of a project, in the order of kinds and ids.

    Raises:
        RecordError: a record is invalid, or two have the same id.
    """
    cases = [read_case(file) for file in sorted((root / CASES).glob("*/*.json"))]
    ids = [case.id for case in cases]
    if twice := sorted({identifier for identifier in ids if ids.count(identifier) > 1}):
        raise RecordError(f"{twice[0]} is the id of two records")
    order = list(KINDS)
    return sorted(cases, key=lambda case: (order.index(case.kind), case.id))


def sample(cases: Sequence[Case]) -> list[Case]:
    """Of the cases that should be caught, each with a kind or claim that no earlier one has."""
    chosen: list[Case] = []
    seen: set[str] = set()
    for case in cases:
        if case.claims and not case.missed and not {case.kind, *case.claims} <= seen:
            chosen.append(case)
            seen |= {case.kind, *case.claims}
    return chosen
