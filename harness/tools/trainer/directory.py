"""The files in the directory of a run: checkpoints by step, logs, and the export."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.authoring.faults import NotMeasured
from harness.base import regular_file
from harness.base.strictjson import JsonObject
from harness.tools.trainer import tracked_runs
from harness.tools.trainer.output_events import Event, LogReader
from harness.tools.trainer.output_summary import Telling
from harness.tools.trainer.trainer_file import Trainer

__all__ = ["checkpoint_files", "checkpoints", "digest", "dumps", "events_of", "logs", "read_logs"]

_MOST_FILES = 100_000


def checkpoints(trainer: Trainer, values: JsonObject, suffix: str = "") -> dict[int, Path]:
    """The checkpoints by step, in order. With a suffix, the files named like checkpoints with that suffix."""
    by_step: dict[int, Path] = {}
    for path in checkpoint_files(trainer, values, suffix):
        match = _step(trainer, path, values, suffix)
        if match is not None and match["step"].isdecimal():
            by_step[int(match["step"][:18])] = path
    return dict(sorted(by_step.items()))


def checkpoint_files(trainer: Trainer, values: JsonObject, suffix: str = "") -> list[Path]:
    """The files that the glob of the checkpoints finds, whether their names have a step or not."""
    if not trainer.files.checkpoints:
        return []
    escaped = {name: glob.escape(str(value)) if value is not None else None for name, value in values.items()}
    return [Path(text) for text in glob.glob(trainer.filled(trainer.files.checkpoints, escaped) + suffix)[:_MOST_FILES]]


def dumps(trainer: Trainer, values: JsonObject) -> list[Path]:
    """The files of the dumped steps, in the order of their names."""
    escaped = {name: glob.escape(str(value)) if value is not None else None for name, value in values.items()}
    files = trainer.dumps.files
    if not files or not trainer.has_values(files, escaped):
        return []
    return sorted(map(Path, glob.glob(trainer.filled(files, escaped))))[:_MOST_FILES]


def _step(trainer: Trainer, path: Path, values: JsonObject, suffix: str) -> Any:
    """The match of the step in a checkpoint's path from the run's folder, as `checkpoint-20/model.safetensors`; else in
    its name."""
    output = str(values.get("output", ""))
    names = [os.path.relpath(path, output)] if output and path.is_relative_to(output) else []
    matches = (trainer.files.step.search(name.removesuffix(suffix)) for name in (*names, path.name))
    return next((match for match in matches if match is not None), None)


def logs(trainer: Trainer, directory: Path) -> list[Path]:
    """The logs of a finished run, in the order of the trainer's globs and then by name."""
    files: dict[Path, None] = {}
    for pattern in trainer.logs:
        for path in sorted(directory.glob(pattern)):
            if path.is_file() or tracked_runs.is_tracked(path):
                files.setdefault(path)
    return list(files)


def digest(path: Path) -> str:
    """The sha256 of a file of a run, for the trial's log: the evidence is about these bytes.

    Raises:
        NotMeasured: the file cannot be read.
    """
    try:
        return regular_file.sha256(path)
    except OSError as error:
        raise NotMeasured(f"{path} cannot be read: {error.strerror}") from error


def read_logs(trainer: Trainer, files: Sequence[Path], telling: Telling) -> None:
    """Read logs to their end. An unfinished last line is ignored, because the run may have been cut off.

    Raises:
        NotMeasured: a log cannot be read.
    """
    for path in files:
        for event in events_of(path, LogReader(trainer.lines)):
            telling.hear(event)
    telling.end()


def events_of(path: Path, reader: LogReader) -> Iterator[Event]:
    """Yield the events of the complete lines of a log.

    Raises:
        NotMeasured: the log cannot be read.
    """
    try:
        if tracked_runs.is_tracked(path):
            for line in tracked_runs.lines(path):
                yield from reader.feed(line)
            return
        with regular_file.opened(path) as file:
            while chunk := file.read(regular_file.CHUNK):
                yield from reader.feed(chunk)
    except OSError as error:
        raise NotMeasured(f"{path} cannot be read: {error.strerror}") from error
