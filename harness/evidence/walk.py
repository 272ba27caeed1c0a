"""The bundles below a folder, each with the state of its files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from harness.evidence.bundle_layout import DEEPEST, MANIFEST, OBSERVATION, RECORD, UNFINISHED
from harness.machine.file_memory import identity

__all__ = ["walk"]


def walk(root: Path) -> Iterator[tuple[bytes, str]]:
    """Yield the relative path of every bundle below a folder, with its fingerprint: "! …" names a problem."""
    pending: list[tuple[str, int]] = [(".", 0)]
    while pending:
        name, depth = pending.pop()
        folder = f"{root}/{name}"
        try:
            where = identity(f"{folder}/{RECORD}")
            try:
                where += f" {identity(f'{folder}/{MANIFEST}')}"
            except FileNotFoundError:
                where = f"! {MANIFEST} is missing"
            yield os.fsencode(name), where
            continue
        except FileNotFoundError:
            pass
        except OSError as error:
            yield os.fsencode(name), f"! {error.strerror}"
            continue
        try:
            with os.scandir(folder) as scanned:
                inside = list(scanned)
        except FileNotFoundError:
            continue  # there is no evidence yet, or the folder was just removed
        except OSError as error:
            yield os.fsencode(name), f"! {error.strerror}"
            continue
        if any(entry.name in (MANIFEST, OBSERVATION) for entry in inside):
            yield os.fsencode(name), f"! {RECORD} is missing"
        elif depth < DEEPEST:
            folders = [entry.name for entry in inside if entry.is_dir(follow_symlinks=False)]
            pending += [(f"{name}/{one}", depth + 1) for one in folders if not one.startswith(UNFINISHED)]
