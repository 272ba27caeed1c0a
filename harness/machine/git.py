"""Queries git for the commit of a checkout, the files that differ from it, and its history.

A repository's own configuration can name programs (hooks, filters, a monitor of files, a transport), and its replaced
objects and grafts can give false answers. `git` is the one function of the harness that calls git, and prevents both.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import final

from harness.base import regular_file
from harness.machine import timebox

__all__ = ["Ancestry", "ancestry", "commit", "differing", "git", "is_untracked"]

_SECONDS, _HISTORY_SECONDS = 10.0, 60.0
"""Time limits of git, and of listing a history. A million commits take about ten seconds."""
_LARGEST = 1 << 30
"""Maximum bytes of a source file, which can be a shared library."""
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


@final
@dataclass(frozen=True, slots=True)
class Ancestry:
    """The commits in the history of a checkout."""

    revisions: frozenset[str]
    """Full object names, including the current commit."""
    obstacle: str = ""
    """Why commits of the history may be missing here; empty if it is complete."""

    def lacks(self, revision: str | None) -> str:
        """Return why a commit is not, or not known to be, in this history; empty if it is."""
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
) -> timebox.Answer[bytes]:
    """Run a git command in a folder and return its stdout.

    No hook and no transport runs. Use only commands that do not read the content of files: a filter of the repository
    would run. Such commands are rev-parse, rev-list, ls-tree, ls-files, and cat-file without --filters and --textconv.
    """
    # A hook or a wrapper may have set GIT_DIR.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | _VARIABLES
    # Not as `-c NAME=VALUE`: a name can contain an equals sign.
    environment["GIT_CONFIG_COUNT"] = str(len(_SETTINGS))
    for number, (name, value) in enumerate(_SETTINGS.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    command = ["git", "--no-pager", "-C", str(folder), *arguments]
    return timebox.output(command, seconds, stdin=stdin, environment=environment)


def commit(root: Path) -> timebox.Answer[str]:
    """Return the full name of the commit that is checked out at `root`, any folder inside a checkout."""
    answer = git(root, "rev-parse", "--is-inside-work-tree", "--verify", "--quiet", "HEAD^{commit}")
    lines = (answer.value or b"").decode().split()
    if not lines and (inside := git(root, "rev-parse", "--is-inside-work-tree")).value is None:
        return timebox.Answer(None, inside.reason)
    oid = lines[-1] if lines else ""
    if not re.fullmatch(r"[0-9a-f]{40,64}", oid):
        return timebox.Answer(None, "the repository has no commit yet")
    return timebox.Answer(oid)


def differing(root: Path, revision: str, digests: Mapping[str, str]) -> timebox.Answer[list[str]]:
    """Return the files whose contents differ from the commit or that are outside of the checkout, sorted.

    Git's index and its settings for files are not used, because they can hide a change.

    Args:
        root: any folder inside the checkout.
        digests: SHA-256 of contents, by path relative to `root`.
    """
    names = [name for name in sorted(digests) if "\n" not in name]
    resolved = cache(os.path.realpath)  # files share their folders
    tracked = (_tracked(resolved, root, name) for name in names)
    objects = "".join(f"{revision}:./{name}\n" for name in tracked).encode()
    answer = git(root, "cat-file", "--batch-check=%(objectname)", stdin=objects)
    if answer.value is None:
        return timebox.Answer(None, answer.reason)
    blobs = dict(zip(names, answer.value.decode().splitlines(), strict=False))
    same = (name for name in digests if _is_blob(root / name, digests[name], blobs.get(name)))
    return timebox.Answer(sorted(digests.keys() - set(same)))


def _tracked(resolved: Callable[[Path], str], root: Path, name: str) -> str:
    """Return the path, relative to the root, of the target of a link in the checkout."""
    file = root / name
    place = resolved(file) if file.is_symlink() else os.path.join(resolved(file.parent), file.name)
    return os.path.relpath(place, resolved(root))


def _is_blob(file: Path, digest: str, blob: str | None) -> bool:
    """Whether a file's content has this digest and this git object name."""
    try:
        content = regular_file.read(file, _LARGEST)
    except (OSError, ValueError):
        return False
    algorithm = hashlib.sha1 if blob is not None and len(blob) == 40 else hashlib.sha256
    named = algorithm(b"blob %d\0" % len(content) + content).hexdigest()
    return hashlib.sha256(content).hexdigest() == digest and named == blob


def is_untracked(path: Path) -> bool:
    """Whether a file is in a git checkout that neither tracks nor ignores it; False if git fails."""
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
