"""What a trainer's file matches in a log and in a run's directory, for `harness trainer check`. It judges nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from harness.tools.trainer import directory
from harness.tools.trainer.linear_regex import PatternRefused, compiled
from harness.tools.trainer.output_events import EventKind, LineRule, LogReader
from harness.tools.trainer.output_summary import Telling
from harness.tools.trainer.trainer_file import Trainer

__all__ = ["Matches", "Near", "check_log", "check_run"]

_NEAR = 0.3
"""Share of a pattern that a line must match to nearly match it."""
_WORD = re.compile(r"[A-Za-z]{2}")


@dataclass(frozen=True)
class Near:
    """A line that matches only the beginning of a pattern."""

    line: str
    kind: EventKind
    pattern: str
    matched: str
    """The longest beginning of the pattern that the line matches."""


@dataclass
class Matches:
    """The results of a check."""

    telling: Telling
    events: Counter[EventKind] = field(default_factory=Counter)
    logs: list[Path] = field(default_factory=list)
    unmatched: int = 0
    first_unmatched: str = ""
    near: list[Near] = field(default_factory=list)
    checkpoint_files: int = 0
    """The files that the glob finds."""
    checkpoints: list[int] = field(default_factory=list)
    """The steps of those whose name has one."""
    export: Path | None = None
    """None if only a log was checked, or if the export's name needs a parameter that has no value."""
    export_tensors: int | None = None
    """None if the export cannot be read."""
    export_problem: str = ""

    @property
    def problems(self) -> list[str]:
        """Problems of the file that prevent the measurement of a claim."""
        problems = []
        if self.logs and not self.events:
            problems.append("no line matches any event")
        elif self.logs and not self.events[EventKind.STEP]:
            problems.append("no line matches a step")
        elif self.logs and (why := self.telling.contradiction or self.telling.unseen):
            problems.append(why)
        if self.checkpoint_files > len(self.checkpoints):
            problems.append(f"/files/step finds no step in {self.checkpoint_files - len(self.checkpoints)} checkpoints")
        if self.export_problem:
            problems.append(self.export_problem)
        return problems


def check_log(trainer: Trainer, files: Sequence[Path]) -> Matches:
    """What the file matches in logs.

    Raises:
        NotMeasured: a log cannot be read.
    """
    matches = Matches(Telling(lambda step, values: None, trainer.first_step, trainer.every), logs=list(files))
    unmatched: list[str] = []
    for path in files:
        reader = LogReader(trainer.lines)
        for event in chain(directory.events_of(path, reader), reader.end()):
            matches.events[event.kind] += 1
            matches.telling.hear(event)
        matches.unmatched += reader.unmatched
        unmatched += reader.first_unmatched
    matches.telling.end()
    matches.first_unmatched = unmatched[0] if unmatched else ""
    matches.near = _nearest(trainer.lines, unmatched)
    return matches


def check_run(trainer: Trainer, folder: Path, values: Mapping[str, Any]) -> Matches:
    """What the file matches in the directory of a run, its logs among it.

    Args:
        values: of the placeholders, as far as they are known.

    Raises:
        NotMeasured: a log cannot be read.
    """
    matches = check_log(trainer, directory.logs(trainer, folder))
    given = {**values, "output": str(folder)}
    if trainer.has_values(trainer.files.checkpoints, given):
        matches.checkpoint_files = len(directory.checkpoint_files(trainer, given))
        matches.checkpoints = list(directory.checkpoints(trainer, given))
    if trainer.has_values(trainer.files.export, given):
        matches.export = Path(trainer.filled(trainer.files.export, given))
        matches.export_tensors, matches.export_problem = _tensors(matches.export, trainer.files.export_prefix)
    return matches


def _tensors(path: Path, prefix: str) -> tuple[int | None, str]:
    """How many tensors a file holds, and what is wrong with it."""
    from harness.tools.inspect.checkpoint import Refused, formats
    from harness.tools.inspect.checkpoint.bounded_file import opened
    from harness.tools.trainer.model_folder import weight_paths

    if not path.exists():
        return None, f"there is no export {path}"
    names = []
    try:
        for part in weight_paths(path):
            with opened(part) as source:
                names += [entry.name for entry in formats.read(source).entries]
    except Refused as error:
        return None, f"the export {path} cannot be read: {error}"
    count = sum(name.startswith(prefix) for name in names)
    return count, "" if count else f"the export {path} holds no tensor{f' named {prefix}…' if prefix else ''}"


def _nearest(rules: Sequence[LineRule], lines: Sequence[str]) -> list[Near]:
    """For each rule, the line that matches most of its pattern, if it is enough to be near."""
    near = []
    for rule in rules:
        if rule.pattern is None:
            continue
        pattern = rule.pattern.pattern
        for end in range(len(pattern) - 1, int(_NEAR * len(pattern)), -1):
            if (line := _matching(pattern[:end], lines)) is not None:
                near.append(Near(line, rule.kind, pattern, pattern[:end]))
                break
    return near


def _matching(beginning: str, lines: Sequence[str]) -> str | None:
    """The first line in which the beginning of a pattern matches a word; None also if it does not compile."""
    try:
        expression = compiled(beginning)
    except PatternRefused:
        return None
    matches = ((line, expression.search(line)) for line in lines)
    return next((line for line, match in matches if match is not None and _WORD.search(match.group())), None)
