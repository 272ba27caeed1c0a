"""Roofs kept in the user's cache folder, by device and driver."""

from __future__ import annotations

import hashlib
from pathlib import Path

from harness.base import strictjson
from harness.base.schemas import problems
from harness.machine.cache_folder import NoCacheFolderError, made_cache_folder
from harness.tools.roofline.measured_device import identity
from harness.tools.roofline.roofs import Roofs, Sizes, measured

__all__ = ["kept"]


def kept(kind: str, *, again: bool = False, sizes: Sizes | None = None) -> Roofs:
    """Return the roofs of the current device of a kind, "cuda" or "cpu", measured now if they are not in the cache.

    Args:
        again: measure them even if they are.

    Raises:
        RooflineError: torch has no such device.
    """
    file = _file(kind)
    if file is not None and not again:
        try:
            document = strictjson.load(file)
        except (OSError, strictjson.JsonError):
            document = None  # none yet
        if not problems("roofline", document):  # else another version wrote it
            del document["step"]
            return Roofs.from_json(document)
    roofs = measured(kind, sizes)
    if file is not None:
        file.parent.mkdir(exist_ok=True)
        strictjson.dump({**roofs.to_json(), "step": None}, file)
    return roofs


def _file(kind: str) -> Path | None:
    try:
        folder = made_cache_folder()
    except NoCacheFolderError:
        return None
    try:
        key = strictjson.dumps(dict(sorted(identity(kind).items())))
    except (RuntimeError, AssertionError):  # no such device; `measured` says so
        return None
    return folder / "roofs" / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
