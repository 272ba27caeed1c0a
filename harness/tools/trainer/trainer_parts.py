"""The tables of a trainer's file: its files, its models, its GPU code and its dumps, as texts with placeholders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["DeviceCodeFiles", "Dumps", "Files", "Models"]


@dataclass(frozen=True)
class Files:
    """The files that a run writes, as texts with placeholders."""

    export: str
    checkpoints: str = ""
    step: Any = None
    """A compiled expression on a checkpoint's path or name, with a group `step`; None without checkpoints."""
    last: bool = False
    """Whether a run also writes a checkpoint of its last step, which is no periodic one."""
    prefix: str = ""
    initial: str = ""
    initial_prefix: str = ""
    export_prefix: str = ""
    frozen: Any = None
    """A compiled expression on the names of tensors that the run does not train; None if it trains all."""
    compute_cache: str = ""
    """For a finished run: the folder that CUDA_CACHE_PATH named."""


@dataclass(frozen=True)
class Models:
    """The files and values that a falsifier needs to evaluate a run's models, as texts with placeholders; empty if not
    named."""

    teacher: str = ""
    teacher_prefix: str = ""
    config: str = ""
    """The folder of the student's config.json, or the file."""
    tokenizer: str = ""
    text: str = ""


@dataclass(frozen=True)
class Dumps:
    """The files in which a trainer dumps its steps."""

    files: str = ""
    """A glob with placeholders; empty if it dumps none."""
    names: tuple[tuple[Any, str], ...] = ()
    """Compiled expressions on the names of its parameters, each with the text that replaces the match."""
    adapters: float | None = None
    """The scale of LoRA's adapters, whose products are added to the initial weights; None if it trains none."""

    def name(self, own: str) -> str:
        """The evaluated model's name of a parameter of the trainer."""
        for expression, text in self.names:
            own = expression.sub(text, own)
        return own


@dataclass(frozen=True)
class DeviceCodeFiles:
    """The files with a trainer's GPU code."""

    files: tuple[str, ...] = ()
    """Globs with placeholders for programs, libraries and archives. Empty: the command's program."""
    kernels: tuple[Any, ...] = ()
    """Compiled expressions, one for each kernel that training needs; empty if the file names none."""
