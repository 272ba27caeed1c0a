"""What a trial reports while its falsifier runs. Values are JSON; a number that is not finite is tagged."""

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
    """Measurements by name; a longer list replaces an earlier one."""

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
    """What really ran, by name: device, dtype, backend, steps."""

    values: JsonObject


@final
@dataclass(frozen=True)
class Unseen(JsonDataclass):
    """Why measurements could not be made of this subject, by name."""

    values: Mapping[str, str]


@final
@dataclass(frozen=True)
class Entered(JsonDataclass):
    """The phase whose code runs from now on."""

    phase: Phase


@final
@dataclass(frozen=True)
class Used(JsonDataclass):
    """Files that another process of the trial used, by their paths from the project's root."""

    names: tuple[str, ...]


@final
@dataclass(frozen=True)
class Logged(JsonDataclass):
    """A line for the trial's log. No verdict depends on it."""

    text: str
    topic: str = ""
    """Of many lines with the same topic, the log keeps a few. It keeps all lines without a topic."""


@final
@dataclass(frozen=True)
class Working(JsonDataclass):
    """A command of the subject has started, has printed something, or has used its processor."""

    run: int
    """The number of the command in this trial, from 1."""
    said: str = ""
    """Its newest line."""


TrialReport = Logged | Measured | Stepped | Resolved | Unseen | Entered | Used | Working
Report = Callable[[TrialReport], None]
