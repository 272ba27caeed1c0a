"""Keys of a contract that affect no verdict.

`stands_in_for` states what the source requires and what the falsifier does instead. `refuted` lists known refutations.
`figures` names the figures that bounds come from. A contract's digest excludes these keys (`judging_part`), so changing
them makes no evidence stale.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from json import JSONDecoder
from typing import Final, final

from harness.base.json_dataclass import JsonDataclass
from harness.base.vocabulary import Verdict
from harness.contract.claim_folder import same_schema

__all__ = [
    "ANNOTATIONS",
    "FIGURES",
    "Refutation",
    "Result",
    "counted",
    "judging_part",
    "refutation_of",
]

ANNOTATIONS: Final = ("stands_in_for", "refuted", "figures")
"""Keys of a contract that affect no verdict."""

FIGURES: Final = "figures.json"
"""The file with the figures, in the folder of a family of contracts."""

_SPACE = " \t\r\n"


@final
@dataclass(frozen=True, slots=True)
class Refutation(JsonDataclass):
    """A known refutation: in one profile on one device class, exactly these clauses fail."""

    since: str
    """The day, ISO 8601."""
    device: str
    """A substring of the name of the device class, as for `harness status --device`."""
    profile: str
    clauses: tuple[str, ...]
    explanation: str

    def expects(self, result: Result) -> bool:
        """Whether exactly these clauses failed and no mutant lived."""
        return result.verdict is Verdict.FAIL and set(result.failed) == set(self.clauses) and not result.lived


@final
@dataclass(frozen=True, slots=True)
class Result:
    """The part of a run's result that a known refutation predicts."""

    verdict: Verdict
    failed: Collection[str]
    """The ids of the subject's clauses that failed."""
    lived: bool
    """Whether a mutant survived, or failed on other clauses than the contract names."""


def refutation_of(refuted: Iterable[Refutation], device: str, profile: str) -> Refutation | None:
    """Return the known refutation for a device class and profile; None if there is none."""
    return next(
        (refutation for refutation in refuted if refutation.device in device and refutation.profile == profile), None
    )


def counted(refutation: Refutation | None, result: Result) -> Verdict:
    """Return the verdict for an exit status: PASS for a known refutation, FAIL for a PASS despite one."""
    if refutation is None:
        return result.verdict
    if refutation.expects(result):
        return Verdict.PASS
    return Verdict.FAIL if result.verdict is Verdict.PASS else result.verdict


def judging_part(content: bytes) -> bytes:
    """Return a contract's bytes without its annotations and its path to the schemas; the rest is unchanged.

    Args:
        content: UTF-8, a JSON object. Other bytes are returned as they are.
    """
    content = same_schema(content)
    try:
        text = content.decode()
        decode = JSONDecoder().raw_decode
        at = _after_space(text, _after_space(text, 0) + 1)  # after the brace
        head, members, is_last = text[:at], [], text[at] == "}"
        while not is_last:
            start = at
            key, at = decode(text, at)
            _, at = decode(text, _after_space(text, _after_space(text, at) + 1))  # after the colon
            after = _after_space(text, at)
            is_last = text[after] == "}"
            at = at if is_last else _after_space(text, after + 1)  # after the comma
            members.append((key, text[start:at]))
    except (ValueError, IndexError, RecursionError):
        return content
    relevant = [member for key, member in members if key not in ANNOTATIONS]
    if len(relevant) == len(members):
        return content
    if members[-1][0] in ANNOTATIONS and relevant:
        relevant[-1] = relevant[-1].rstrip(_SPACE).removesuffix(",")
    return "".join([head, *relevant, text[at:]]).encode()


def _after_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
