"""Which commits led to the one that is checked out, by asking git once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import final

from harness.machine import timebox

__all__ = ["Ancestry", "ancestry"]


@final
@dataclass(frozen=True, slots=True)
class Ancestry:
    """The commits that are in the history of a checkout."""

    revisions: frozenset[str]
    """Full object names, the commit that is checked out among them."""
    obstacle: str = ""
    """Why commits may be missing here that are in the history; empty where none is."""

    def lacks(self, revision: str | None) -> str:
        """Why a commit cannot be said to be in this history; empty where it is in it."""
        if revision is None:
            return "the record names no commit"
        if revision in self.revisions:
            return ""
        known = f" as far as that is known: {self.obstacle}" if self.obstacle else ""
        return f"{revision[:12]} is not in this history{known}"


def ancestry(root: Path, *, seconds: float = 60.0) -> Ancestry:
    """The history of the commit that is checked out at `root`.

    Args:
        root: any folder inside a checkout.
        seconds: how long git may take; a million commits take it about ten.
    """
    # A hook or a wrapper may point GIT_DIR elsewhere.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"LC_ALL": "C"}
    git = ["git", "-C", str(root)]
    listed = timebox.run([*git, "rev-list", "HEAD", "--"], seconds, environment=environment)
    if listed.value is None:
        reason = listed.reason or "git lists no commits"
        return Ancestry(frozenset(), "nothing was committed here yet" if "bad revision 'HEAD'" in reason else reason)
    shallow = timebox.run([*git, "rev-parse", "--is-shallow-repository"], seconds, environment=environment)
    complete = shallow.value is not None and shallow.value.strip() == "false"
    obstacle = "" if complete else "the clone is shallow (git fetch --unshallow)"
    return Ancestry(frozenset(listed.value.split()), obstacle)
