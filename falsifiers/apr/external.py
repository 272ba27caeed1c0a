"""APR files that somebody else's trainer wrote: `--subject recorded:TRAINER.toml -P dir=RUN`.

Nobody is asked to write or to read: what there is are the files of a run that is over, as they lie there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness import NotShown
from harness.external import directory
from harness.external.adapter import RecordedRun

__all__ = ["Recorded"]

_MAGICS = (b"APR\0", b"APRN", b"APR1", b"APR2")
"""How files of this format begin, and those of its predecessors, which are not taken for something else."""
_MOST_FILES = 1000


class Recorded(RecordedRun):
    """The files of a run that begin as APR files do, or are called so."""

    def apr_files(self) -> Iterator[Path]:
        """The run's export, its checkpoints, and whatever else in its directory is called *.apr.

        Raises:
            NotShown: there is none.
        """
        named = [
            Path(self.filled(self.trainer.files.export)),
            *directory.checkpoints(self.trainer, self.values).values(),
        ]
        there = dict.fromkeys([*named, *sorted(self.directory.glob("*.apr"))])
        found = [path for path in there if path.is_file() and (path.suffix == ".apr" or _begins_as_apr(path))]
        if not found:
            raise NotShown(f"there is no APR file in {self.directory}")
        for path in found[:_MOST_FILES]:
            print("judging", path, "sha256", directory.digest(path))
            yield path


def _begins_as_apr(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in _MAGICS
