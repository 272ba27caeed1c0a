"""The status of every claim, remembered until a file changes on which it depends.

    known = known_statuses(project, lambda: dict(Survey.of(project).by_id))

To work the statuses out takes a second for fifty claims: contracts are validated, and the imports of falsifiers are
followed. To find that nothing has changed takes some milliseconds: the contracts, the records of evidence and the
sources that they list have the sizes, times and inodes of the last time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.base import strictjson
from harness.contract.project import Project
from harness.evidence.walk import identity, state_of, walk
from harness.machine.paths import NoCacheFolderError, cache_folder

__all__ = ["known_statuses", "remember"]

_CODE = ("claim_status.py", "staleness.py", "index.py", "survey.py", "walk.py")
"""The modules beside this one that decide a status."""


def known_statuses(project: Project, look: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Return the status of each claim by id, as remembered, or worked out anew.

    Args:
        look: works them out, and remembers them.
    """
    try:
        found = strictjson.load(_file(project))
        if found["key"] == _key(project, found["sources"], state_of(dict(walk(project.evidence)))):
            return dict(found["statuses"])
    except (OSError, strictjson.JsonError, NoCacheFolderError, LookupError, TypeError):
        pass
    return look()


def remember(project: Project, sources: Iterable[str], statuses: Mapping[str, str], evidence: str) -> None:
    """Keep the statuses that follow from the project's own evidence, from every device.

    Args:
        sources: the names of the files that the records list.
        statuses: by the id of the claim.
        evidence: the state of the bundles from which they follow.
    """
    sources = sorted(sources)
    document: dict[str, Any] = {
        "key": _key(project, sources, evidence),
        "sources": sources,
        "statuses": dict(statuses),
    }
    try:
        file = _file(project)
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f"{file.name}.{os.getpid()}")
        strictjson.dump(document, beside)
        beside.replace(file)
    except (OSError, NoCacheFolderError):
        pass  # without a cache, the next list takes longer


def _file(project: Project) -> Path:
    name = hashlib.sha256(str(project.root).encode()).hexdigest()[:16]
    return cache_folder() / f"statuses-{name}.json"


def _key(project: Project, sources: Iterable[str], evidence: str) -> str:
    """A digest of the state of each file on which a status depends, and of the day: clocks that are ahead matter."""
    lines = [f"{datetime.now(UTC):%Y-%m-%d} {project.root} {evidence}"]
    files = [*(Path(__file__).with_name(name) for name in _CODE), project.root / "pyproject.toml", *project.known()]
    for file in map(str, (*files, *(project.named(name) for name in sources))):
        try:
            lines.append(f"{file} {identity(file)}")
        except (OSError, ValueError):
            lines.append(f"{file} is not there")
    return hashlib.sha256("\n".join(lines).encode("utf-8", "replace")).hexdigest()
