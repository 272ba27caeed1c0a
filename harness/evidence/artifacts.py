"""The files in a falsifier's artifacts folder. A bundle contains small ones, and lists others by digest.

Secrets in text are masked, as in logs. A binary file cannot be masked: if it contains a secret, it is listed by digest
only. So is a file whose name contains a secret.

The code under test can write to the folder. Links are not followed, pipes and devices are not opened, and the depth
and the number of entries are limited.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from harness.base import strictjson
from harness.base.beneath import Beneath
from harness.base.json_dataclass import JsonDataclass
from harness.base.redaction import Redactor
from harness.base.regular_file import CHUNK
from harness.base.schemas import DocumentError
from harness.evidence import manifest
from harness.evidence.bundle_layout import ARTIFACTS, COUNTEREXAMPLE, INDEX, MOST_ARTIFACTS
from harness.judging.counterexample import Counterexample

__all__ = ["LARGEST", "LARGEST_TOGETHER", "Artifact", "collect", "counterexample", "index"]

LARGEST: Final = 256 << 10
"""Maximum bytes of a copied artifact."""
LARGEST_TOGETHER: Final = 1 << 20
"""Maximum bytes of all copied artifacts."""
MOST: Final = 1000
"""Maximum artifacts that INDEX.json lists. Further ones are only counted."""
LARGEST_READ: Final = 16 << 30
"""Maximum bytes of all artifacts to digest. The size of a sparse file can be arbitrary."""
_DEEPEST = 8


@dataclass(frozen=True)
class Artifact(JsonDataclass):
    """One entry of artifacts/INDEX.json."""

    name: str
    copied: bool
    size: int | None
    sha256: str | None
    reason: str
    """Why it was not copied; or that it was masked, with the digest of what the falsifier left."""


def collect(folder: Beneath, redactor: Redactor) -> Iterator[tuple[Artifact | None, bytes]]:
    """Yield each artifact in the order of names, with its content if it is copied; None for each beyond MOST."""
    room, readable, count, copied = LARGEST_TOGETHER, LARGEST_READ, 0, 0
    for name, place, obstacle in _walk(folder, "", 0):
        count += 1
        if count > MOST:
            yield None, b""
            if count > 10 * MOST:
                return
            continue
        most = name != COUNTEREXAMPLE and copied == MOST_ARTIFACTS
        unwelcome = f"a bundle has copies of at most {MOST_ARTIFACTS} artifacts" if most else _unwelcome(name)
        limits = _Limits(min(room, LARGEST), readable)
        artifact, content = _artifact(name, place, obstacle, limits, redactor, unwelcome)
        room -= len(content)
        readable -= (artifact.size or 0) if artifact.sha256 else 0
        copied += artifact.copied and name != COUNTEREXAMPLE
        yield artifact, content


def counterexample(folder: Beneath, redactor: Redactor) -> Counterexample | None:
    """Return the counterexample of a search; None if there is none."""
    limits = _Limits(LARGEST, LARGEST)
    artifact, content = _artifact(COUNTEREXAMPLE, folder / COUNTEREXAMPLE, "", limits, redactor, "")
    return Counterexample.from_json(strictjson.loads(content)) if artifact.copied else None


def index(entries: list[Artifact], omitted: int) -> dict[str, Any]:
    """Return the content of artifacts/INDEX.json."""
    return {"artifacts": [entry.to_json() for entry in entries], "omitted": omitted}


@dataclass(frozen=True)
class _Limits:
    """Remaining bytes: for the next artifact to copy, and for the next to read."""

    copied: int
    read: int


def _walk(folder: Beneath, prefix: str, depth: int) -> Iterator[tuple[str, Beneath, str]]:
    """Yield everything that is not a folder: its name, its place, and why it cannot be opened (empty if it can)."""
    try:
        entries = folder.entries(10 * MOST)
    except OSError as error:
        if prefix or error.errno != errno.ENOENT:
            yield prefix or ".", folder, f"cannot be read: {error.strerror}"
        return
    for last, status in entries:
        name, place = f"{prefix}/{last}" if prefix else last, folder / last
        if stat.S_ISLNK(status.st_mode):
            yield name, place, "a symbolic link, which is not followed"
        elif not stat.S_ISDIR(status.st_mode):
            yield name, place, ""
        elif depth + 1 >= _DEEPEST:
            yield name, place, f"lies more than {_DEEPEST} folders deep"
        else:
            yield from _walk(place, name, depth + 1)


def _artifact(
    name: str, place: Beneath, obstacle: str, limits: _Limits, redactor: Redactor, unwelcome: str
) -> tuple[Artifact, bytes]:
    """Return one artifact, and its content if it is copied.

    Args:
        obstacle: why it cannot be opened; empty if it can.
        unwelcome: a reason not to copy it, whatever its content is; empty if there is none.
    """
    if obstacle:
        return Artifact(redactor.mask(name), False, None, None, obstacle), b""
    obstacle = unwelcome
    if redactor.mask(name) != name:
        name, obstacle = redactor.mask(name), "its name holds what looks like a secret"
    try:
        with place.opened() as file:
            declared = os.fstat(file.fileno()).st_size
            if declared > limits.read:
                reason = f"larger than the {limits.read} bytes that are still read for digests"
                return Artifact(name, False, declared, None, reason), b""
            content, size, digest = b"", 0, hashlib.sha256()
            while chunk := file.read(min(CHUNK, declared - size)):  # a file that grows is read no further
                size += len(chunk)
                digest.update(chunk)
                if size <= limits.copied:
                    content += chunk
    except OSError as error:
        if error.errno == errno.EINVAL:
            return Artifact(name, False, None, None, "neither a file nor a folder"), b""
        return Artifact(name, False, None, None, f"cannot be read: {error.strerror}"), b""
    if size > limits.copied:
        # The smaller of two limits applies. The message does not say which, because the remedy is the same.
        obstacle = obstacle or f"larger than the {limits.copied} bytes that artifacts may still take"
    masked = content if obstacle else _masked(content, redactor)
    if masked is None:
        obstacle = "holds what looks like a secret, which cannot be masked, because the file is not a text"
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
    except (strictjson.JsonError, DocumentError) as error:
        return f"has the name of a counterexample but is not one: {str(error)[:200]}"
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
