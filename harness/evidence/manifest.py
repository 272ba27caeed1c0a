"""MANIFEST.sha256: the digest of every file of a bundle, in the format of `sha256sum -c`.

The manifest lists neither itself nor the attestation.

    digests = {"record.json": "9f86d08…"}
    parse(render(digests)) == digests

Reading is strict. Each set of files has exactly one manifest, so manifests that differ describe different bundles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from harness.evidence.bundle_layout import ATTESTATION, MANIFEST

__all__ = ["ManifestError", "check_name", "parse", "render"]

_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
# sha256sum escapes a backslash, a line feed and a carriage return. The other characters could control a terminal.
_FORBIDDEN = re.compile(r"[\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class ManifestError(ValueError):
    """A manifest cannot contain this name, or this text is not a manifest; the message names the line."""


def render(digests: Mapping[str, str]) -> bytes:
    """Return the manifest of these files: one line each, sorted by name.

    Args:
        digests: lower-case hex sha256 by relative POSIX name.

    Raises:
        ManifestError: a name leads out of the folder, or `sha256sum -c` would have to unescape it.
    """
    for name in digests:
        check_name(name)
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests)).encode("utf-8")


def parse(content: bytes) -> dict[str, str]:
    """Return the digests by name.

    Raises:
        ManifestError: `render` would not have written this text.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ManifestError(f"is not UTF-8 at byte {error.start}") from error
    if not text.endswith("\n"):
        raise ManifestError("is empty" if not text else "does not end in a newline: it may have been cut short")
    digests: dict[str, str] = {}
    before = ""
    for number, line in enumerate(text[:-1].split("\n"), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ManifestError(f"line {number} is not a lower-case sha256, two spaces and a name")
        name = match[2]
        try:
            check_name(name)
        except ManifestError as error:
            raise ManifestError(f"line {number}: {error}") from error
        if name <= before:
            raise ManifestError(f"line {number}: {name!r} does not come after {before!r}")
        digests[name] = match[1]
        before = name
    return digests


def check_name(name: str) -> None:
    """Refuse a name that no manifest may contain.

    Raises:
        ManifestError: the name is absolute, has an empty, "." or ".." part or a forbidden character, or is that of the
            manifest or the attestation.
    """
    if _FORBIDDEN.search(name):
        raise ManifestError(f"{name!r} has a backslash, a control character, or is not UTF-8")
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise ManifestError(f"{name!r} is not a plain relative name")
    if name in (MANIFEST, ATTESTATION):
        raise ManifestError(f"a manifest lists neither itself nor {ATTESTATION}, which is signed over it")
