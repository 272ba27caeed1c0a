"""Folders of the user's machine that outlive a run."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["NoCacheFolderError", "cache_folder", "made_cache_folder"]


class NoCacheFolderError(Exception):
    """Nothing says where this user's cache is, as in a container that does not know the user; or it cannot be made."""


def cache_folder() -> Path:
    """Where trials keep what is dear to make twice: $HARNESS_CACHE_DIR, or the XDG cache folder.

    Raises:
        NoCacheFolderError: neither is set, and the user has no home folder.
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
    """The same, which is there afterwards.

    Raises:
        NoCacheFolderError: it is not known, or cannot be made.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NoCacheFolderError(
            f"the cache {folder} cannot be used: {error.strerror}; set HARNESS_CACHE_DIR"
        ) from error
    return folder
