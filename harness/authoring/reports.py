"""Messages of a trial while its falsifier runs. Values are JSON; non-finite numbers are tagged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Phase

__all__ = ["Entered", "Logged", "Measured", "Report", "Resolved", "Stepped", "TrialReport", "Unseen", "Used", "Working"]


@final
@dataclass(frozen=True)
class Measured(JsonDataclass):
    """Measurements by name. A longer list replaces an earlier one."""

    values: JsonObject


@final
@dataclass(frozen=True)
class Stepped(JsonDataclass):
    """One row of the step series."""

    step: int
    values: JsonObject


@final
@dataclass(frozen=True)
class Resolved(JsonDataclass):
    """The device, dtype, backend and steps that ran, as read back."""

    values: JsonObject


@final
@dataclass(frozen=True)
class Unseen(JsonDataclass):
    """Why measurements of this subject are missing, by name."""

    values: Mapping[str, str]


@final
@dataclass(frozen=True)
class Entered(JsonDataclass):
    """A new phase begins."""

    phase: Phase


@final
@dataclass(frozen=True)
class Used(JsonDataclass):
    """Files that another process of the trial used, as paths relative to the project's root."""

    names: tuple[str, ...]


@final
@dataclass(frozen=True)
class Logged(JsonDataclass):
    """A line for the trial's log. No verdict depends on it."""

    text: str
    topic: str = ""
    """The log keeps only a few lines of each topic. It keeps every line without a topic."""


@final
@dataclass(frozen=True)
class Working(JsonDataclass):
    """A command of the subject has started, printed a line, or used CPU time."""

    run: int
    """The number of the command in this trial, from 1."""
    said: str = ""
    """The last line of its output."""


TrialReport = Logged | Measured | Stepped | Resolved | Unseen | Entered | Used | Working
Report = Callable[[TrialReport], None]
