"""What git says of a checkout: its commit, whether files differ from it, and its history."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from harness.machine import timebox

__all__ = ["Ancestry", "Commit", "ancestry", "commit", "is_untracked"]

_SECONDS, _HISTORY_SECONDS = 10.0, 60.0
"""How long git may take, and how long to list a history. A million commits take about ten seconds."""


@final
@dataclass(frozen=True, slots=True)
class Commit:
    """The state of a git checkout. What git cannot tell is None."""

    revision: str | None
    """The full object name of the commit."""
    dirty: bool | None
    """Whether a file that git does not ignore differs from the commit or is not in it."""
    reason: str | None = None
    """Why `revision` or `dirty` is None."""


@final
@dataclass(frozen=True, slots=True)
class Ancestry:
    """The commits in the history of a checkout."""

    revisions: frozenset[str]
    """Full object names, including the commit that is checked out."""
    obstacle: str = ""
    """Why commits of the history may be missing here; empty if it is complete."""

    def lacks(self, revision: str | None) -> str:
        """The reason why a commit cannot be said to be in this history; empty if it is in it."""
        if revision is None:
            return "the record names no commit"
        if revision in self.revisions:
            return ""
        known = f" as far as that is known: {self.obstacle}" if self.obstacle else ""
        return f"{revision[:12]} is not in this history{known}"


def commit(root: Path, *, outputs: Sequence[str] = ("evidence",)) -> Commit:
    """Return the commit that is checked out at `root`.

    Args:
        root: any folder inside a checkout. Only files below it count as dirty.
        outputs: folders below `root` that runs write to, so that a bundle does not make the next run dirty.
    """
    excluded = [f":(exclude){folder}" for folder in outputs]
    answer = _status(root, ["--branch", "--", ".", *excluded])
    if answer.value is None:
        return Commit(None, None, answer.reason)
    lines = answer.value.splitlines()
    oid = next((line.removeprefix("# branch.oid ") for line in lines if line.startswith("# branch.oid ")), "(unknown)")
    dirty = any(not line.startswith("#") for line in lines)
    if not re.fullmatch(r"[0-9a-f]{40,64}", oid):
        return Commit(None, dirty, "the repository has no commit yet")
    return Commit(oid, dirty)


def is_untracked(path: Path) -> bool:
    """Whether a file lies in a git checkout that neither tracks nor ignores it; False if git cannot tell."""
    answer = _status(path.parent, ["--", f":(literal){path.name}"])
    return answer.value is not None and answer.value.startswith("? ")


def ancestry(root: Path) -> Ancestry:
    """Return the history of the commit that is checked out at `root`, any folder inside a checkout."""
    listed = _git(root, ["rev-list", "HEAD", "--"], _HISTORY_SECONDS)
    if listed.value is None:
        reason = listed.reason or "git lists no commits"
        return Ancestry(frozenset(), "nothing was committed here yet" if "bad revision 'HEAD'" in reason else reason)
    shallow = _git(root, ["rev-parse", "--is-shallow-repository"])
    complete = shallow.value is not None and shallow.value.strip() == "false"
    obstacle = "" if complete else "the clone is shallow (git fetch --unshallow)"
    return Ancestry(frozenset(listed.value.split()), obstacle)


def _status(folder: Path, arguments: Sequence[str]) -> timebox.Answer[str]:
    return _git(folder, ["status", "--porcelain=v2", "--untracked-files=normal", *arguments])


def _git(folder: Path, arguments: Sequence[str], seconds: float = _SECONDS) -> timebox.Answer[str]:
    # A hook or a wrapper may point GIT_DIR elsewhere. Without the optional locks, looking does not block a user's git.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    return timebox.run(["git", "-C", str(folder), *arguments], seconds, environment=environment)
