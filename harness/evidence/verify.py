"""Verifying: whether a bundle is the one that was sealed, and whether it says what it should when judged again.

    for path in find_bundles([Path("evidence")]):
        verification = verify(path)
        print(verification.verdict, *verification.findings)

Neither torch nor a GPU is needed. A bundle may come from anybody: whatever is in it becomes a finding, never an
exception, and no bundle gets more than its time and memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from harness import strictjson
from harness.evidence.archive import UNPACKING
from harness.evidence.findings import Code, Finding, Verification
from harness.evidence.isolation import Limits, Stopped, isolated
from harness.evidence.layout import MANIFEST, OBSERVATION, RECORD, UNFINISHED

__all__ = ["Code", "Finding", "Limits", "Verification", "find_bundles", "verify"]

_MARKS = frozenset({MANIFEST, RECORD, OBSERVATION})
"""A folder that has one of these is, or was, a bundle."""


def verify(path: Path, limits: Limits | None = None) -> Verification:
    """Verify one bundle.

    Args:
        path: its folder, or a folder that was never finished.
        limits: what verifying it may use.
    """
    folder = Path(os.path.realpath(path))
    if folder.name.startswith(UNPACKING):
        message = "is being unpacked, or was when that was interrupted; the next `harness unpack` there removes it then"
        return Verification(path, (Finding(Code.INCOMPLETE, "", message),))
    if folder.name.startswith(UNFINISHED):
        message = "was never finished: it is being written, or its writer died; the claim's next run removes it then"
        return Verification(path, (Finding(Code.INCOMPLETE, "", message),))
    if not folder.is_dir():
        return Verification(path, (Finding(Code.INCOMPLETE, "", "is no folder"),))
    from harness.evidence import examination

    examination.prepare()

    def work() -> bytes:
        found = examination.examine(folder).to_json()
        return json.dumps(strictjson.tag_nonfinite({**found, "path": ""})).encode("ascii")

    limits = limits or Limits()
    try:
        document = strictjson.untag_nonfinite(json.loads(isolated(work, limits)))
    except Stopped as stopped:
        message = f"could not be verified: {stopped}; no bundle of ours needs as much"
        return Verification(path, (Finding(Code.INVALID, "", message),))
    return Verification.from_json({**document, "path": path})


def find_bundles(paths: Iterable[Path]) -> list[Path]:
    """The bundles at or below these folders, and the folders that were never finished, sorted; no link is followed."""
    found: dict[Path, None] = {}
    for start in paths:
        pending = [start]
        while pending:
            folder = pending.pop()
            if folder.name.startswith((UNFINISHED, UNPACKING)):
                found[folder] = None
                continue
            folders = _look_into(folder)
            if folders is None:
                found[folder] = None
            else:
                pending += folders
    return sorted(found)


def _look_into(folder: Path) -> list[Path] | None:
    """The folders in a folder; None where it is a bundle, or cannot be read, which must not hide one."""
    try:
        with os.scandir(folder) as scanned:
            entries = list(scanned)
    except OSError:
        return None
    if any(entry.name in _MARKS for entry in entries):
        return None
    return [folder / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
