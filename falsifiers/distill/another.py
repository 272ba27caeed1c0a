"""More than one run in a trial: another subject like the trial's own, with some parameters changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from falsifiers.distill.subject import Checkpointing
from harness import Setting, Trial

__all__ = ["another", "directory_of", "setting_of"]

S = TypeVar("S")


def setting_of(trial: Trial[Any], name: str, *, without: tuple[str, ...] = (), **changed: Any) -> Setting:
    """The trial's setting in a workspace of its own, which does not exist yet, with parameters changed or left out."""
    asked = {key: value for key, value in {**trial.parameters, **changed}.items() if key not in without}
    return replace(trial.setting, parameters=asked, workspace=trial.workspace / name)


def another(trial: Trial[S], name: str, *, without: tuple[str, ...] = (), **changed: Any) -> S:
    """Build a subject of the trial's kind for that setting; to be called inside `subject_fault`.

    Raises:
        NotShown: the subject is a run that has ended.
    """
    build: Callable[[Setting], S] = getattr(trial.subject, "again", type(trial.subject))
    return build(setting_of(trial, name, without=without, **changed))


def directory_of(trial: Trial[Checkpointing], name: str) -> Path:
    """Where the subject of that name has its checkpoints, without building it."""
    return setting_of(trial, name).workspace / Path(trial.subject.directory).relative_to(trial.workspace)
