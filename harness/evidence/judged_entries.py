"""The bundles from which statuses follow, opened and judged again.

    refused = unsound([cell.decided_by for cell in cells])
    refused[path]       # why a bundle is not what the index says of it

The index keeps what records say, in a cache that other programs can write, and a record can be forged with its
manifest. So no status is shown from either: each bundle that decides one is checked as `harness verify` does, and must
say what the index said. Nothing remembers the result, because what remembers it could be forged too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from harness.evidence.bundle import Bundle
from harness.evidence.bundle_layout import MANIFEST
from harness.evidence.index import Contents, Entry, Unreadable, entry_of
from harness.machine.limited_process import Limits, Stopped, decoded, isolated_all

__all__ = ["unsound", "without"]

_AT_ONCE = 16
"""Bundles in one process. To start one takes as long as to check two bundles."""
_MORE = "; harness verify says more"


def unsound(entries: Sequence[Entry]) -> dict[Path, str]:
    """Return why bundles are unsound, or are not what these entries say of them, by path. The others are left out."""
    from harness.evidence import bundle_checks

    if not entries:
        return {}
    bundle_checks.prepare()
    refused: dict[Path, str] = {}
    alone: list[Entry] = []
    for few, answer in _checked([entries[first : first + _AT_ONCE] for first in range(0, len(entries), _AT_ONCE)]):
        if isinstance(answer, Stopped):
            alone += few  # one of them broke the process
        else:
            refused |= {few[int(place)].path: why for place, why in decoded(answer).items()}
    for (entry,), answer in _checked([[entry] for entry in alone]):
        if isinstance(answer, Stopped):
            refused[entry.path] = f"checking it {answer}{_MORE}"
        else:
            refused.update((entry.path, why) for why in decoded(answer).values())
    return refused


def without(contents: Contents, refused: Mapping[Path, str]) -> Contents:
    """Return the evidence with refused bundles among the unreadable ones."""
    if not refused:
        return contents
    more = (Unreadable(path, why) for path, why in refused.items())
    return Contents(
        tuple(entry for entry in contents.entries if entry.path not in refused),
        tuple(sorted((*contents.unreadable, *more), key=lambda one: one.path)),
    )


def _checked(groups: Sequence[Sequence[Entry]]) -> Iterator[tuple[Sequence[Entry], bytes | Stopped]]:
    works = [partial(_work, group) for group in groups]
    return zip(groups, isolated_all(works, Limits(), len(os.sched_getaffinity(0))), strict=True)


def _work(entries: Sequence[Entry]) -> bytes:
    """Check bundles in a process of their own. Return what is wrong, by the place in the sequence, as JSON."""
    found = {place: why for place, entry in enumerate(entries) if (why := _wrong(entry))}
    return json.dumps(found).encode("ascii")


def _wrong(entry: Entry) -> str:
    """Return why a bundle is unsound or is not what its entry says; empty if it is neither."""
    from harness.evidence import bundle_checks

    path = Path(os.path.realpath(entry.path))
    verification, _ = bundle_checks.check(path, {})
    if verification.findings:
        codes = sorted({f"{one.code} {one.file}".strip() for one in verification.findings})
        return f"is unsound: {', '.join(codes[:3])}{_MORE}"
    now = entry_of(entry.path)
    if isinstance(now, Unreadable):
        return now.reason
    if now != entry or Bundle(path).digest(MANIFEST) != verification.manifest:
        return "is not what the index says of it"
    return ""
