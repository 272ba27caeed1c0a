"""A copy of a project in which one file differs: links to everything else, so that it costs nothing.

with project_copy(project.root, "toy/sorting.py", changed) as root:
    …
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from harness.base.beneath import Beneath
from harness.base.removal import remove

__all__ = ["project_copy"]


@contextmanager
def project_copy(root: Path, file: str, content: bytes) -> Iterator[Path]:
    """The root of a copy whose file has this content; it is removed at the end of the block.

    Args:
        file: the path from the root.
    """
    copy = Path(tempfile.mkdtemp(prefix="falsifier-planted-"))
    try:
        source, target = root, copy
        for part in PurePosixPath(file).parts:
            for entry in source.iterdir():
                # Bytecode of the healthy file must not stand in for the changed one.
                if entry.name not in (part, "__pycache__"):
                    (target / entry.name).symlink_to(entry)
            source, target = source / part, target / part
            if source.is_dir():
                target.mkdir()
        target.write_bytes(content)
        yield copy
    finally:
        remove(Beneath(copy.parent, copy.name))  # it removes links, not what they lead to
