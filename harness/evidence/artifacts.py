"""The files that a falsifier leaves in its artifacts folder. A bundle copies small ones and names others by digest.

Text is masked: known shapes of secrets are replaced, as in logs. A file that is not text cannot be masked. If it
contains such a shape, the bundle names it by digest only. The same holds for a file whose name contains one.

The code under test can write to the folder. Links are not followed, pipes and devices are not opened, and the depth
and the number of entries are limited.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from harness.base import strictjson
from harness.base.redaction import Redactor
from harness.evidence import manifest
from harness.evidence.bundle_layout import ARTIFACTS, COUNTEREXAMPLE, INDEX, MOST_ARTIFACTS
from harness.search.counterexample import Counterexample, CounterexampleError

__all__ = ["LARGEST", "LARGEST_TOGETHER", "Artifact", "collect", "counterexample", "index"]

LARGEST: Final = 256 << 10
"""Bytes of an artifact that is copied."""
LARGEST_TOGETHER: Final = 1 << 20
"""Bytes of all artifacts that are copied."""
MOST: Final = 1000
"""Artifacts that INDEX.json lists; further ones are only counted."""
_DEEPEST = 8
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Artifact:
    """One entry of artifacts/INDEX.json."""

    name: str
    copied: bool
    size: int | None
    sha256: str | None
    reason: str
    """Why it was not copied; or that it was masked, with the digest of what the falsifier left."""


def collect(folder: Path, redactor: Redactor) -> Iterator[tuple[Artifact | None, bytes]]:
    """Yield every artifact in the order of names, and its content if it is to be copied; None for each beyond MOST."""
    room, count, copied = LARGEST_TOGETHER, 0, 0
    for name, path, obstacle in _walk(folder, "", 0):
        count += 1
        if count > MOST:
            yield None, b""
            if count > 10 * MOST:
                return
            continue
        most = name != COUNTEREXAMPLE and copied == MOST_ARTIFACTS
        unwelcome = f"a bundle has copies of at most {MOST_ARTIFACTS} artifacts" if most else _unwelcome(name)
        artifact, content = _artifact(name, path, obstacle, min(room, LARGEST), redactor, unwelcome)
        room -= len(content)
        copied += artifact.copied and name != COUNTEREXAMPLE
        yield artifact, content


def counterexample(folder: Path, redactor: Redactor) -> Counterexample | None:
    """Return the counterexample that a search left; None if there is none."""
    artifact, content = _artifact(COUNTEREXAMPLE, folder / COUNTEREXAMPLE, "", LARGEST, redactor, "")
    return Counterexample.from_json(strictjson.loads(content)) if artifact.copied else None


def index(entries: list[Artifact], omitted: int) -> dict[str, Any]:
    """Return the content of artifacts/INDEX.json."""
    return {"artifacts": [asdict(entry) for entry in entries], "omitted": omitted}


def _walk(folder: Path, prefix: str, depth: int) -> Iterator[tuple[str, Path, str]]:
    """Yield everything that is not a folder: its name, its path, and why it cannot be opened (empty if it can)."""
    try:
        entries = sorted(islice(os.scandir(folder), 10 * MOST), key=lambda entry: entry.name)
    except OSError as error:
        if prefix:
            yield prefix, folder, f"cannot be read: {error.strerror}"
        return
    for entry in entries:
        name = f"{prefix}/{entry.name}" if prefix else entry.name
        if entry.is_symlink():
            yield name, Path(entry), "a symbolic link, which is not followed"
        elif entry.is_dir(follow_symlinks=False):
            if depth + 1 >= _DEEPEST:
                yield name, Path(entry), f"lies more than {_DEEPEST} folders deep"
            else:
                yield from _walk(Path(entry), name, depth + 1)
        else:
            yield name, Path(entry), ""


def _artifact(
    name: str, path: Path, obstacle: str, room: int, redactor: Redactor, unwelcome: str
) -> tuple[Artifact, bytes]:
    """Return one artifact, and its content if it is copied.

    Args:
        obstacle: why it cannot be opened; empty if it can.
        room: the most bytes that it may have.
        unwelcome: a reason not to copy it that does not depend on its content; empty if there is none.
    """
    if obstacle:
        return Artifact(redactor.mask(name), False, None, None, obstacle), b""
    obstacle = unwelcome
    if redactor.mask(name) != name:
        name, obstacle = redactor.mask(name), "its name holds what looks like a secret"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return Artifact(name, False, None, None, "neither a file nor a folder"), b""
            content, size, digest = b"", 0, hashlib.sha256()
            while chunk := file.read(_CHUNK):
                size += len(chunk)
                digest.update(chunk)
                if size <= room:
                    content += chunk
    except OSError as error:
        return Artifact(name, False, None, None, f"cannot be read: {error.strerror}"), b""
    if size > room:
        # `room` is what two limits leave. The message does not say which limit, because the remedy is the same.
        obstacle = obstacle or f"larger than the {room} bytes that artifacts may still take"
    masked = content if obstacle else _masked(content, redactor)
    if masked is None:
        obstacle = "holds what looks like a secret, and is no text in which that could be masked"
    elif name == COUNTEREXAMPLE and not obstacle:
        obstacle = _no_counterexample(masked)
    if masked is None or obstacle:
        return Artifact(name, False, size, digest.hexdigest(), obstacle), b""
    if masked == content:
        return Artifact(name, True, size, digest.hexdigest(), ""), content
    reason = f"secrets in it were masked; before that it had {size} bytes and the sha256 {digest.hexdigest()}"
    return Artifact(name, True, len(masked), hashlib.sha256(masked).hexdigest(), reason), masked


def _masked(content: bytes, redactor: Redactor) -> bytes | None:
    """Return text with its secrets masked. Content that is not UTF-8 stays as it is; None if it contains a secret."""
    if b"\0" not in content:
        with suppress(UnicodeDecodeError):
            return redactor.mask(content.decode("utf-8")).encode("utf-8")
    bytewise = content.decode("latin-1")
    return content if redactor.mask(bytewise) == bytewise else None


def _no_counterexample(content: bytes) -> str:
    try:
        Counterexample.from_json(strictjson.loads(content))
    except (strictjson.JsonError, CounterexampleError) as error:
        return f"has the name of a counterexample and is none: {str(error)[:200]}"
    return ""


def _unwelcome(name: str) -> str:
    try:
        manifest.check_name(name)
    except manifest.ManifestError:
        return "its name cannot stand in a manifest"
    if f"{ARTIFACTS}/{name}" == INDEX:
        return "has the name of this index"
    if any(part.startswith(".git") for part in name.split("/")):
        return "git would take it for its own"
    return ""
