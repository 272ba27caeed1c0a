"""Folders of the user's machine that outlive a run."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """Where trials keep what is dear to make twice: $HARNESS_CACHE_DIR, or the XDG cache folder."""
    chosen = os.environ.get("HARNESS_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "falsifier-harness"
