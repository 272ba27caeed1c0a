"""What git says of a checkout: its commit, whether files differ from it, and its history.

A repository's own configuration can name programs (hooks, filters, a monitor of files, a transport), and its replaced
objects and grafts can give false answers. `git` is the one function of the harness that calls git, and prevents both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from harness.machine import timebox

__all__ = ["Ancestry", "Commit", "ancestry", "commit", "git", "is_untracked"]

_SECONDS, _HISTORY_SECONDS = 10.0, 60.0
"""How long git may take, and how long to list a history. A million commits take about ten seconds."""
_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "safe.bareRepository": "explicit",  # a folder of the checkout can look like a repository, with its own settings
}
_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone fetches missing objects through programs that its remote names
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",  # looking does not block a user's git
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": os.devnull,
    "LC_ALL": "C",
}


_STATUS = ("status", "--porcelain=v2", "--untracked-files=normal")


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


def git(
    folder: Path,
    *arguments: str,
    stdin: bytes = b"",
    seconds: float = _SECONDS,
    settings: Mapping[str, str] | None = None,
) -> timebox.Answer[bytes]:
    """Run a git command in a folder and return its stdout.

    No hook and no transport runs. Call only commands that compare no content of files: a filter of the repository
    would run. Such commands are rev-parse, rev-list, ls-tree, ls-files, and cat-file without --filters and --textconv.

    Args:
        settings: further values that replace those of the repository's configuration.
    """
    # A hook or a wrapper may point GIT_DIR elsewhere.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | _VARIABLES
    # Not as `-c NAME=VALUE`: a name can contain an equals sign.
    replaced = {**_SETTINGS, **(settings or {})}
    environment["GIT_CONFIG_COUNT"] = str(len(replaced))
    for number, (name, value) in enumerate(replaced.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    command = ["git", "--no-pager", "-C", str(folder), *arguments]
    return timebox.output(command, seconds, stdin=stdin, environment=environment)


def commit(root: Path, *, outputs: Sequence[str] = ("evidence",)) -> Commit:
    """Return the commit that is checked out at `root`.

    Args:
        root: any folder inside a checkout. Only files below it count as dirty.
        outputs: folders below `root` that runs write to, so that a bundle does not make the next run dirty.
    """
    excluded = [f":(exclude){folder}" for folder in outputs]
    answer = git(root, *_STATUS, "--branch", "--", ".", *excluded, settings=_no_filters(root))
    if answer.value is None:
        return Commit(None, None, answer.reason)
    lines = os.fsdecode(answer.value).splitlines()
    oid = next((line.removeprefix("# branch.oid ") for line in lines if line.startswith("# branch.oid ")), "(unknown)")
    dirty = any(not line.startswith("#") for line in lines)
    if not re.fullmatch(r"[0-9a-f]{40,64}", oid):
        return Commit(None, dirty, "the repository has no commit yet")
    return Commit(oid, dirty)


def is_untracked(path: Path) -> bool:
    """Whether a file lies in a git checkout that neither tracks nor ignores it; False if git cannot tell."""
    return bool(git(path.parent, "ls-files", "--others", "--exclude-standard", "--", f":(literal){path.name}").value)


def ancestry(root: Path) -> Ancestry:
    """Return the history of the commit that is checked out at `root`, any folder inside a checkout."""
    listed = git(root, "rev-list", "HEAD", "--", seconds=_HISTORY_SECONDS)
    if listed.value is None:
        reason = listed.reason or "git lists no commits"
        return Ancestry(frozenset(), "nothing was committed here yet" if "bad revision 'HEAD'" in reason else reason)
    complete = git(root, "rev-parse", "--is-shallow-repository").value == b"false\n"
    obstacle = "" if complete else "the clone is shallow (git fetch --unshallow)"
    return Ancestry(frozenset(listed.value.decode().split()), obstacle)


def _no_filters(root: Path) -> dict[str, str]:
    """Settings without which `git status` runs the filters of a repository."""
    listed = git(root, "config", "--null", "--name-only", "--get-regexp", r"^filter\.").value or b""
    return {os.fsdecode(name): "" for name in listed.split(b"\0") if name}
