"""trials.log: what every trial wrote to stdout and stderr, bounded, with the digest of the whole.

    ==> subject stdout: 70512 bytes, sha256 9f86d0…; 65607 follow
    …
    ==> mutant forgets-one stderr: 120 bytes, sha256 60303a…; 120 follow
    …

A heading says how many bytes belong to it, so a trial that prints such a line cannot pass for another one.
A stream to which nothing was written has no heading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harness.execution.executor import TrialResult

__all__ = ["SUBJECT", "Stream", "TrialLogError", "parse_log", "sections", "trial_of"]

SUBJECT = "subject"
_HEADING = re.compile(
    rb"==> (?P<trial>subject|mutant [a-z0-9-]{1,80}) (?P<stream>stdout|stderr): (?P<size>[0-9]{1,18}) bytes, "
    rb"sha256 (?P<sha256>[0-9a-f]{64}); (?P<kept>[0-9]{1,18}) follow\n"
)


class TrialLogError(ValueError):
    """A file is not a log of trials; the text says at which byte."""


@dataclass(frozen=True)
class Stream:
    """One stream of one trial."""

    text: str
    """Head and tail, with a line between them that says what is left out."""
    size: int
    """Bytes that the trial wrote."""
    sha256: str
    """Of every byte that the trial wrote."""


def trial_of(mutant: str) -> str:
    """The name of a mutant's trial in the log."""
    return f"mutant {mutant}"


def sections(trial: str, result: TrialResult, limit: int) -> Iterator[bytes]:
    """The sections of one trial.

    Args:
        trial: SUBJECT, or `trial_of` a mutant.
        limit: bytes of each stream that are kept.
    """
    for stream, log in (("stdout", result.stdout), ("stderr", result.stderr)):
        if log.size:
            kept = _shortened(log.text.encode("utf-8", errors="backslashreplace"), limit)
            heading = f"==> {trial} {stream}: {log.size} bytes, sha256 {log.digest}; {len(kept)} follow\n"
            yield heading.encode("ascii") + kept + b"\n"


def parse_log(content: bytes) -> Mapping[tuple[str, str], Stream]:
    """The streams by trial and name.

    Raises:
        TrialLogError: anything that `sections` would not have written.
    """
    streams: dict[tuple[str, str], Stream] = {}
    position = 0
    while position < len(content):
        heading = _HEADING.match(content, position)
        if heading is None:
            raise TrialLogError(f"has no heading at byte {position}")
        start, kept = heading.end(), int(heading["kept"])
        position = start + kept + 1
        if content[position - 1 : position] != b"\n":
            raise TrialLogError(f"does not have the {kept} bytes that its heading at byte {heading.start()} announces")
        key = (heading["trial"].decode("ascii"), heading["stream"].decode("ascii"))
        if key in streams:
            raise TrialLogError(f"has {' '.join(key)} twice")
        text = content[start : start + kept].decode("utf-8", errors="backslashreplace")
        streams[key] = Stream(text, int(heading["size"]), heading["sha256"].decode("ascii"))
    return streams


def _shortened(content: bytes, limit: int) -> bytes:
    """A log cut to its head and, three times as long, its tail, with a line between them that says so."""
    if len(content) <= limit:
        return content
    head = content[: limit // 4].decode("utf-8", errors="ignore").encode("utf-8")
    tail = content[-(limit - limit // 4) :].decode("utf-8", errors="ignore").encode("utf-8")
    return head + f"\n[… {len(content) - len(head) - len(tail)} bytes left out here …]\n".encode() + tail
