"""The tests of our pipelines, or those of another file."""

from pathlib import Path

from harness import Setting

_ROOT = Path(__file__).parents[3]


class PipelineSuite:
    """The file that the parameter `suite` names, from the project's root."""

    def __init__(self, setting: Setting) -> None:
        self.file, self.workspace = _ROOT / setting.parameters["suite"], setting.workspace

    def arguments(self) -> list[str]:
        return [str(self.file)]
