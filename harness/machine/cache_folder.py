"""The cache folder of this user."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["NoCacheFolderError", "cache_folder", "made_cache_folder"]


class NoCacheFolderError(Exception):
    """The cache folder is unknown, as in a container without the user's home folder, or cannot be created."""


def cache_folder() -> Path:
    """Return the cache folder: $HARNESS_CACHE_DIR, or the XDG cache folder.

    Raises:
        NoCacheFolderError: neither variable is set, and the user has no home folder.
    """
    chosen = os.environ.get("HARNESS_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "falsifier-harness"
    except RuntimeError as error:
        raise NoCacheFolderError("this user has no home folder to keep a cache in; set HARNESS_CACHE_DIR") from error


def made_cache_folder() -> Path:
    """Return the cache folder and create it if it does not exist.

    Raises:
        NoCacheFolderError: the folder is unknown, or cannot be created.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NoCacheFolderError(
            f"the cache {folder} cannot be used: {error.strerror}; set HARNESS_CACHE_DIR"
        ) from error
    return folder
