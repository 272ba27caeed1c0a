"""A batch file that starts a trainer with torch.distributed's variables: train.sbatch, beside this module."""

from pathlib import Path

from harness import Setting

FILE = Path(__file__).with_name("train.sbatch")


class TrainingJob:
    """The file, unchanged."""

    def __init__(self, setting: Setting) -> None: ...

    def text(self) -> str:
        return FILE.read_text()
