"""APR files of a finished run: `--subject recorded:TRAINER.toml -P dir=RUN`.

The files are read as they are. There is no writer and no reader to call.
"""

from collections.abc import Iterator
from pathlib import Path

from harness import NotObserved
from harness.tools.trainer import directory
from harness.tools.trainer.adapter import RecordedRun

_MAGICS = (b"APR\0", b"APRN", b"APR1", b"APR2")
"""The first bytes of files of this format and of its predecessors."""
_MOST_FILES = 1000


class Recorded(RecordedRun):
    """The files of a run that begin with an APR magic number or have the suffix .apr."""

    def apr_files(self) -> Iterator[Path]:
        """The run's export, its checkpoints, and other files *.apr in its directory.

        Raises:
            NotObserved: there is no such file.
        """
        named = [
            Path(self.filled(self.trainer.files.export)),
            *directory.checkpoints(self.trainer, self.values).values(),
        ]
        there = dict.fromkeys([*named, *sorted(self.directory.glob("*.apr"))])
        paths = [path for path in there if path.is_file() and (path.suffix == ".apr" or _begins_as_apr(path))]
        if not paths:
            raise NotObserved(f"there is no APR file in {self.directory}")
        for path in paths[:_MOST_FILES]:
            print("judging", path, "sha256", directory.digest(path))
            yield path


def _begins_as_apr(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in _MAGICS
