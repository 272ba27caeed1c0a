"""Verifies that a bundle is unchanged since it was sealed, and that a second judgment agrees with its record.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base.plugins import plugins
from harness.base.strictjson import JsonObject
from harness.evidence.bundle_layout import find_bundles
from harness.evidence.findings import Code, Detail, Finding, Verification, finding
from harness.evidence.signing import signing
from harness.judging.record import Record
from harness.machine.limited_process import Limits, Stopped, decoded, isolated_all

if TYPE_CHECKING:
    from harness.contract.project import Project
    from harness.evidence.signing import Key
    from harness.evidence.staleness import ProjectState

__all__ = ["Against", "Code", "Limits", "Verification", "find_bundles", "no_folder", "verify", "verify_all"]


_SIGNED = frozenset({Code.UNSIGNED, Code.UNKNOWN_KEY})


@dataclass(frozen=True)
class Against:
    """The trusted keys and the project to verify bundles against."""

    trusted: Mapping[str, Key] = field(default_factory=dict)
    """Public keys whose signatures count, by id."""
    state: ProjectState | None = None
    """The project that the bundles should be evidence for; None skips the checks for staleness."""
    refused: frozenset[Code] = frozenset()
    """Codes of the remarks that an accepted bundle must not have."""

    @classmethod
    def of(cls, trusted_keys: Iterable[Path], project: Project | None, refused: Iterable[Code] = ()) -> Against:
        """Load the trusted keys.

        Args:
            trusted_keys: files of public keys. If there are any, a bundle that none of them signed is not accepted.
            refused: codes of further remarks that are not accepted.

        Raises:
            KeyRefused: a file is not a usable public key.
        """
        from harness.evidence.staleness import ProjectState

        keys = {key.keyid: key for key in (signing().load_public(path) for path in trusted_keys)}
        state = ProjectState(project) if project else None
        return cls(keys, state, frozenset(refused) | (_SIGNED if keys else frozenset()))


def verify(path: Path, limits: Limits | None = None, against: Against | None = None) -> Verification:
    """Verify one bundle.

    Args:
        path: its folder, finished or not.
        limits: limits of time and memory for the checks.
        against: keys and project. Without them, signatures remain unknown and staleness is not checked.
    """
    (verification,) = verify_all([path], limits, against)
    return verification


def verify_all(
    paths: Sequence[Path], limits: Limits | None = None, against: Against | None = None, at_once: int = 1
) -> Iterator[Verification]:
    """Verify bundles with one process per CPU. Yields the results in the order of the paths.

    Args:
        at_once: how many bundles one process checks. If one of them crashes the process, each gets its own.
    """
    from harness.evidence import bundle_checks

    if paths:
        bundle_checks.prepare(paths)
    against = against or Against()
    groups = [paths[first : first + at_once] for first in range(0, len(paths), at_once)]
    works = [partial(_checked, group, against) for group in groups]
    outcomes = isolated_all(works, limits or Limits(), len(os.sched_getaffinity(0)))
    for group, outcome in zip(groups, outcomes, strict=True):
        if not isinstance(outcome, Stopped):
            answers = zip(group, decoded(outcome), strict=True)
            yield from (_known(path, document, record, against) for path, (document, record) in answers)
        elif len(group) > 1:
            yield from verify_all(group, limits, against)
        else:
            yield Verification(group[0], (finding(Code.INVALID, Detail.CHECK_STOPPED, text=str(outcome)),))


def _checked(folders: Sequence[Path], against: Against) -> bytes:
    """Check bundles, in a child process. Returns each result, and the record if needed, as JSON."""
    from harness.evidence import bundle_checks

    results = []
    for folder in folders:
        verification, record = bundle_checks.check(Path(os.path.realpath(folder)), against.trusted)
        results.append((verification.to_json(), record.to_json() if record and against.state else None))
    return json.dumps(results).encode("ascii")


def _known(path: Path, document: JsonObject, recorded: JsonObject | None, against: Against) -> Verification:
    from harness.evidence.staleness import staleness

    verification = Verification.from_json(document)
    remarks = verification.remarks
    if against.state is not None and recorded is not None:
        record = Record.from_json(recorded)
        for remark in (staleness, *_remarks()):
            remarks += (*remark(record, against.state),)
    refused = tuple(sorted({remark.code for remark in remarks} & against.refused))
    return replace(verification, path=path, remarks=remarks, refused=refused)


@cache
def _remarks() -> list[Callable[[Record, ProjectState], Iterable[Finding]]]:
    """Load the functions of tools that add remarks."""
    return [plugin.load() for plugin in plugins("harness.remarks").values()]


def no_folder(path: Path) -> str:
    """Return why there are no bundles below a path that is not a folder, with the remedy."""
    if path.is_file() and zipfile.is_zipfile(path):
        return f"is an archive; extract it first: harness merge {shlex.quote(str(path))} --into DIR"
    what = "is not a folder" if path.exists() else "does not exist"
    return f"{what}; name a bundle or a folder of bundles"
