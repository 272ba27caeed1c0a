"""A batch file of the user as the subject: `--subject file:FILE`."""

from pathlib import Path

from harness import NotMeasured, Setting
from harness.base import regular_file

_LARGEST = 1 << 20


class File:
    """The file as it is. See `BatchFile`."""

    def __init__(self, setting: Setting) -> None:
        """The parameter `trainer` has its path, from the project's root."""
        self._path = Path(setting.parameters["trainer"])

    def text(self) -> str:
        try:
            return regular_file.read(self._path, _LARGEST).decode()
        except (OSError, ValueError) as error:
            raise NotMeasured(f"{self._path} cannot be read as text: {error}") from error
