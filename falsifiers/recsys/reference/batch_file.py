"""A batch file that starts a trainer with the variables of torch.distributed: train.sbatch, beside this module."""

from __future__ import annotations

from pathlib import Path

from harness import Setting

__all__ = ["FILE", "TrainingJob"]

FILE = Path(__file__).with_name("train.sbatch")


class TrainingJob:
    """The file as it is."""

    def __init__(self, setting: Setting) -> None:
        """Nothing depends on the setting."""

    def text(self) -> str:
        """See `BatchFile`."""
        return FILE.read_text()
