"""Verifying: check that a bundle is as it was sealed, and that its record agrees with judging it again.

    for verification in verify_all(find_bundles([Path("evidence")])):
        print(verification.path, verification.verdict, *verification.findings, *verification.remarks)

Verifying needs neither torch nor a GPU. A bundle is not trusted: any defect in it becomes a finding, never an
exception, and its checks run with limited time and memory.
"""

from __future__ import annotations

import json
import os
import shlex
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.evidence.bundle_layout import MANIFEST, OBSERVATION, RECORD, UNFINISHED, UNPACKING
from harness.evidence.findings import Code, Detail, Verification, finding
from harness.machine.limited_process import Limits, Stopped, decoded, isolated_all

if TYPE_CHECKING:
    from harness.evidence.signing import Key
    from harness.evidence.staleness import ProjectState

__all__ = ["Against", "Code", "Limits", "Verification", "find_bundles", "no_folder", "verify", "verify_all"]

_MARKS = frozenset({MANIFEST, RECORD, OBSERVATION})
"""A folder with one of these files is, or was, a bundle."""


@dataclass(frozen=True)
class Against:
    """What bundles are compared with, besides themselves."""

    trusted: Mapping[str, Key] = field(default_factory=dict)
    """Public keys whose signatures count, by id."""
    state: ProjectState | None = None
    """The project that the bundles should be evidence for; None skips the checks for staleness."""
    refused: frozenset[Code] = frozenset()
    """Codes of the remarks that an accepted bundle must not have."""


def verify(path: Path, limits: Limits | None = None, against: Against | None = None) -> Verification:
    """Verify one bundle.

    Args:
        path: its folder, or a folder that was never finished.
        limits: the time and memory for the checks.
        against: keys and project. Without them, signatures stay unknown and staleness is not checked.
    """
    (verification,) = verify_all([path], limits, against)
    return verification


def verify_all(
    paths: Sequence[Path], limits: Limits | None = None, against: Against | None = None
) -> Iterator[Verification]:
    """Verify bundles, one per processor at the same time. Yield the results in the order of the paths."""
    from harness.evidence import bundle_checks

    if paths:
        bundle_checks.prepare(paths)
    against = against or Against()
    works = [partial(_checked, Path(os.path.realpath(path)), against.trusted) for path in paths]
    outcomes = isolated_all(works, limits or Limits(), len(os.sched_getaffinity(0)))
    for path, outcome in zip(paths, outcomes, strict=True):
        if isinstance(outcome, Stopped):
            yield Verification(path, (finding(Code.INVALID, Detail.CHECK_STOPPED, text=str(outcome)),))
        else:
            yield _known(path, outcome, against)


def _checked(folder: Path, trusted: Mapping[str, Key]) -> bytes:
    """Run the checks of a bundle in its process. Return the result as JSON."""
    from harness.evidence import bundle_checks

    verification, origin = bundle_checks.check(folder, trusted)
    return json.dumps([verification.to_json(), origin and origin.to_json()]).encode("ascii")


def _known(path: Path, told: bytes, against: Against) -> Verification:
    from harness.evidence.staleness import Origin, staleness, unplanted

    document, origin = decoded(told)
    verification = Verification.from_json(document)
    remarks = verification.remarks
    if against.state is not None and origin is not None:
        source = Origin.from_json(origin)
        remarks += (*staleness(source, against.state), *unplanted(source, against.state))
    refused = tuple(sorted({remark.code for remark in remarks} & against.refused))
    return replace(verification, path=path, remarks=remarks, refused=refused)


def find_bundles(paths: Iterable[Path]) -> list[Path]:
    """Return the bundles at or below these folders, including unfinished ones, sorted. Links are not followed."""
    found: dict[str, None] = {}
    for start in paths:
        pending = [str(start)]
        while pending:
            folder = pending.pop()
            unfinished = os.path.basename(folder).startswith((UNFINISHED, UNPACKING))
            folders = None if unfinished else _look_into(folder)
            if folders is None:
                found[folder] = None
            else:
                pending += folders
    return [Path(folder) for folder in sorted(found, key=lambda folder: folder.split("/"))]


def no_folder(path: Path) -> str:
    """Return why there are no bundles below a path that is not a folder, with the remedy."""
    if path.is_file() and zipfile.is_zipfile(path):
        return f"is an archive; extract it first: harness merge {shlex.quote(str(path))} --into DIR"
    what = "is not a folder" if path.exists() else "does not exist"
    return f"{what}; name a bundle or a folder of bundles"


def _look_into(folder: str) -> list[str] | None:
    """Return the folders in a folder; None if it is a bundle or cannot be read, so that no bundle stays hidden."""
    if os.path.lexists(f"{folder}/{MANIFEST}"):  # as in most folders, which then need not be listed
        return None
    try:
        with os.scandir(folder) as scanned:
            entries = list(scanned)
    except OSError:
        return None
    if any(entry.name in _MARKS for entry in entries):
        return None
    return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
