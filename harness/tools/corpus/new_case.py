"""Templates for a new case: its record, and a subject that runs, with the claims that usually apply."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from string import Template
from typing import Any, Final

from harness.base.strictjson import JsonObject

__all__ = ["record", "subject"]

_CLAIMS: Final[Mapping[str, JsonObject]] = {
    "function": {
        "F-CORPUS-FUNCTION-001": {
            "against": "falsifiers.corpus.references:softmax", "example": "falsifiers.corpus.references:example_of_rows"
        }
    },
    "trainer": {"F-DISTILL-STEP-001": {}},
    "suite": {
        "F-CORPUS-SUITE-001": {"tests": ["test_kernel.py::test_norm: 2 assertions"]}, "F-CORPUS-NOTICE-001": {}
    },
    "other": {},
}  # fmt: skip
"""The claims that usually apply to a subject."""
_MENDED: Final = {
    "trainer": "falsifiers.distill.reference.trainer:Distillation",
    "other": "falsifiers.module:Reference",
}
"""The entry points of the mended forms of subjects without a parameter `mended`."""

_SUBJECTS: Final = {
    "function": '''
def $name(mended: bool) -> Callable[..., Tensor]:
    """What is wrong, in one sentence."""

    def function(x: Tensor) -> Tensor:
        return torch.softmax(x, dim=-1 if mended else 0)

    return function
''',
    "trainer": '''
class $name(Distillation):
    """What is wrong, in one sentence."""

    def learning_rate(self, step: int) -> float:
        """That of the next step."""
        return super().learning_rate(step + 1)
''',
    "suite": '''
def $name(mended: bool) -> Files:
    """What is wrong, in one sentence."""
    five, three = ("5.0", "3.0") if mended else ("norm([3.0, 4.0])", "norm([1.0, 2.0, 2.0])")
    return _suite(
        f"""
        from kernel import norm


        def test_norm():
            assert norm([3.0, 4.0]) == {five}
            assert norm([1.0, 2.0, 2.0]) == {three}
        """
    )
''',
    "other": '''
class $name(Reference):  # the reference that the claim has as its subject
    """What is wrong, in one sentence."""
''',
}
"""By surface: a subject with a mistake, as a template."""


def record(identifier: str, kind: str, source: str, surface: str) -> dict[str, Any]:
    """The record of a case, with empty texts."""
    mended = {"mended": _MENDED[surface]} if surface in _MENDED else {}
    return {
        "id": identifier, "kind": kind, "title": "", "source": source, "year": datetime.now(UTC).year, "believed": "",
        "truth": "", "noticed": "", "late": "", "cost": "", "surface": surface,
        "subject": f"falsifiers.corpus.{kind}:{_name(identifier, surface)}", **mended, "claims": _CLAIMS[surface],
    }  # fmt: skip


def subject(identifier: str, surface: str) -> str:
    """The source code of a template subject."""
    return Template(_SUBJECTS[surface]).substitute(name=_name(identifier, surface)).strip()


def _name(identifier: str, surface: str) -> str:
    words = identifier.split("-")
    if surface in ("function", "suite"):
        return "_".join(words)
    return "".join(word.capitalize() for word in words)
