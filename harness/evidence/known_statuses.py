"""The status of every claim, remembered until a file changes on which it depends.

    known = known_statuses(project, lambda: dict(Survey.of(project).by_id))

To work the statuses out takes a second for fifty claims: contracts are validated, and the imports of falsifiers are
followed. To find that nothing has changed takes some milliseconds: the contracts, the records of evidence and the
sources that they list have the sizes, times and inodes of the last time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from harness.contract.project import Project
from harness.evidence.walk import state_of, walk
from harness.machine.file_memory import identity, keep, recall

__all__ = ["known_statuses", "remember"]

_CODE = ("claim_status.py", "staleness.py", "index.py", "survey.py", "walk.py")
"""The modules beside this one that decide a status."""


def known_statuses(project: Project, look: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Return the status of each claim by id, as remembered, or worked out anew.

    Args:
        look: works them out, and remembers them.
    """
    found = recall("statuses", project.root, "")
    if found and found["key"] == _key(
        project, project.known(), found["sources"], state_of(dict(walk(project.evidence)))
    ):
        return dict(found["statuses"])
    return look()


def remember(
    project: Project, known: Iterable[Path], sources: Iterable[str], statuses: Mapping[str, str], evidence: str
) -> None:
    """Keep the statuses that follow from the project's own evidence, from every device.

    Args:
        known: the contract files.
        sources: the names of the files that the records list.
        statuses: by the id of the claim.
        evidence: the state of the bundles from which they follow.
    """
    sources = sorted(sources)
    key = _key(project, known, sources, evidence)
    keep("statuses", project.root, "", {"key": key, "sources": sources, "statuses": dict(statuses)})


def _key(project: Project, known: Iterable[Path], sources: Iterable[str], evidence: str) -> str:
    """A digest of the state of each file on which a status depends, and of the day, because runs may be dated ahead."""
    lines = [f"{datetime.now(UTC):%Y-%m-%d} {project.root} {evidence}"]
    files = [*(Path(__file__).with_name(name) for name in _CODE), project.root / "pyproject.toml", *known]
    for name in (*files, *sources):
        try:
            file = project.named(name) if isinstance(name, str) else name
            lines.append(f"{name} {identity(str(file))}")
        except (OSError, ValueError):
            lines.append(f"{name} is not there")
    return hashlib.sha256("\n".join(lines).encode("utf-8", "replace")).hexdigest()
