"""More subjects of the trial's kind, with some parameters changed, for falsifiers that need several runs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from falsifiers.distill.subject import Checkpointing
from harness import Setting, Trial

S = TypeVar("S")


def setting_of(trial: Trial[Any], name: str, *, without: tuple[str, ...] = (), **changed: Any) -> Setting:
    """The trial's setting with parameters changed or left out, and a new workspace that does not exist yet."""
    parameters = {key: value for key, value in {**trial.parameters, **changed}.items() if key not in without}
    return replace(trial.setting, parameters=parameters, workspace=trial.workspace / name)


def further_subject(trial: Trial[S], name: str, *, without: tuple[str, ...] = (), **changed: Any) -> S:
    """Build a subject of the trial's kind for that setting. Call it inside `subject_fault`.

    Raises:
        NotObserved: the subject is a finished run.
    """
    build: Callable[[Setting], S] = getattr(trial.subject, "again", type(trial.subject))
    return build(setting_of(trial, name, without=without, **changed))


def directory_of(trial: Trial[Checkpointing], name: str) -> Path:
    """The checkpoint folder of the subject of that name. No subject is built."""
    return setting_of(trial, name).workspace / Path(trial.subject.directory).relative_to(trial.workspace)
