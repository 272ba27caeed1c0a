"""The TOML file that describes a trainer: how to start it, what its output means, and which files it writes.

    trainer = load(Path("trainers/apr-distill.toml"))
    words = trainer.words({"steps": 50, "output": "/tmp/run", ...})

contracts/schema/trainer.schema.json is its format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.authoring.faults import NotMeasured
from harness.base import near, schemas, toml
from harness.base.redaction import Redactor, looks_secret
from harness.base.strictjson import JsonObject
from harness.tools.trainer.linear_regex import PatternRefused, compiled
from harness.tools.trainer.output_events import EventKind, LineRule
from harness.tools.trainer.trainer_parts import DeviceCodeFiles, Dumps, Files, Models

__all__ = ["GIVEN", "Exit", "Flag", "Trainer", "TrainerError", "load"]

GIVEN = ("output", "seed", "device", "here", "python")
"""Placeholders that every command has: the output folder, the trial's seed, "cpu" or "cuda", the folder of the TOML
file, and the Python interpreter of the trial."""
_TAKEN = frozenset({*GIVEN, "trainer", "dir", "steps", "dtype", "backend"})
"""Names that no parameter of a trainer may have. The harness sets some of them, and compares others with what ran."""
_LARGEST = 1 << 20
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_DEEPEST = 4
_VALUES: Mapping[EventKind, frozenset[str]] = {
    EventKind.SUMMARY: frozenset({"steps", "initial_loss", "final_loss", "seconds"}),
    EventKind.CHECKPOINT: frozenset({"step", "path"}),
    EventKind.FAILED_SAVE: frozenset({"step", "path"}),
    EventKind.RAN: frozenset({"device", "dtype", "backend", "target"}),
    EventKind.FAILED_UPLOAD: frozenset({"block"}),
    EventKind.COMPILED: frozenset({"kernel", "count"}),
    EventKind.WARMED: frozenset({"kernels"}),
}
"""By event, the values that it can have; none for the others. A step can have any values, which are numbers."""


class TrainerError(NotMeasured):
    """A file does not describe a trainer. The message names the place and the remedy."""


class Exit(StrEnum):
    """The meaning of a command's exit status."""

    COMPLETED = "completed"
    FAILED = "failed"
    USAGE = "usage"
    MACHINE = "machine"
    OUT_OF_MEMORY = "out_of_memory"


@dataclass(frozen=True)
class Flag:
    """Words of the command line that depend on a boolean parameter."""

    name: str
    words: tuple[str, ...]
    otherwise: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trainer:
    """An external trainer."""

    path: Path
    name: str
    line: tuple[str | tuple[str, ...] | Flag, ...]
    lines: tuple[LineRule, ...]
    files: Files
    sources: tuple[str, ...] = ()
    parameters: JsonObject = field(default_factory=dict)
    """The trainer's own parameters with defaults. One with an empty text must be set."""
    environment: Mapping[str, str] = field(default_factory=dict)
    admits: tuple[str, ...] = ()
    seconds: float | None = None
    exits: Mapping[int, Exit] = field(default_factory=dict)
    logs: tuple[str, ...] = ()
    first_step: int = 1
    every: int = 1
    """Steps from one line without a step's number to the next."""
    ran_on: str | None = None
    models: Models = field(default_factory=Models)
    loss: str = ""
    """The kind of loss in the lines: "distillation", "cross_entropy", "kl" or a placeholder; empty if none."""
    device_code: DeviceCodeFiles = field(default_factory=DeviceCodeFiles)
    dumps: Dumps = field(default_factory=Dumps)

    def words(self, values: JsonObject) -> list[str]:
        """The command line for these values of the placeholders. Words that name a null or empty value are left out.

        Raises:
            TrainerError: a word that cannot be left out names a placeholder without a value.
        """
        words: list[str] = []
        for entry in self.line:
            if isinstance(entry, str):
                words.append(self.filled(entry, values))
            elif isinstance(entry, Flag):
                chosen = entry.words if self.is_set(entry.name, values) else entry.otherwise
                words += [self.filled(word, values) for word in chosen]
            elif all(self.has_values(word, values) for word in entry):
                words += [self.filled(word, values) for word in entry]
        return words

    def variables(self, values: JsonObject) -> dict[str, str]:
        """The additional environment variables of the command."""
        return {
            name: self.filled(text, values) for name, text in self.environment.items() if self.has_values(text, values)
        }

    def filled(self, text: str, values: JsonObject) -> str:
        """A text with values instead of its placeholders. Raises TrainerError if one has no value."""

        def value(match: re.Match[str]) -> str:
            text_value = self.value(match[1], values)
            if text_value is None:
                raise TrainerError(f"{self.path}: {{{match[1]}}} has no value; set it with -P {match[1]}=…")
            return str(text_value).lower() if isinstance(text_value, bool) else str(text_value)

        return _PLACEHOLDER.sub(value, text)

    def has_values(self, text: str, values: JsonObject) -> bool:
        """Whether every placeholder of a text has a value."""
        return all(self.value(name, values) is not None for name in _names(text))

    def is_set(self, name: str, values: JsonObject) -> bool:
        """Whether a parameter is true. A number is true unless it is 0, and a text unless it is empty or "false"."""
        value = self.value(name, values)
        return bool(value) and str(value).lower() not in ("false", "0")

    def meaning(self, status: int) -> Exit:
        """The meaning of an exit status. A negative status is the signal that ended the process."""
        return Exit.COMPLETED if status == 0 else self.exits.get(status, Exit.FAILED)

    def placeholders(self) -> dict[str, str]:
        """Every placeholder of the file, with one of its places."""
        places: dict[str, str] = {}
        for place, text in self._texts():
            for name in _names(text):
                places.setdefault(name, place)
        return places

    def needed(self) -> set[str]:
        """The placeholders that the command line requires."""
        words = [word for word in self.line if isinstance(word, str)]
        needed = {name for text in (*words, self.files.export) for name in _names(text)}
        for flag in (entry for entry in self.line if isinstance(entry, Flag)):
            needed |= {name for word in (*flag.words, *flag.otherwise) for name in _names(word)} - {flag.name}
        return needed

    def _texts(self) -> Iterator[tuple[str, str]]:
        for position, entry in enumerate(self.line):
            for word in _words(entry):
                yield f"/command/line/{position}", word
        for name, text in self.environment.items():
            yield f"/command/environment/{name}", text
        yield "/log/loss", self.loss
        for name in ("export", "checkpoints", "initial", "compute_cache"):
            yield f"/files/{name}", getattr(self.files, name)
        for name in ("teacher", "config", "tokenizer", "text"):
            yield f"/models/{name}", getattr(self.models, name)
        yield "/dump/files", self.dumps.files
        for position, text in enumerate(self.device_code.files):
            yield f"/device_code/files/{position}", text
        for name, value in self.parameters.items():
            if isinstance(value, str):
                yield f"/parameters/{name}", value

    def value(self, name: str, values: JsonObject, depth: int = 0) -> Any:
        """A placeholder's value. A text among the trainer's own parameters can contain placeholders itself."""
        value = values.get(name, self.parameters.get(name))
        if isinstance(value, str) and name in self.parameters and depth < _DEEPEST:
            inner = {name: self.value(name, values, depth + 1) for name in _names(value)}
            if any(value is None for value in inner.values()):
                return None
            value = _PLACEHOLDER.sub(lambda match: str(inner[match[1]]), value)
        return None if value == "" else value


def load(path: Path) -> Trainer:
    """Read and check a trainer's file.

    Raises:
        TrainerError: with the place and the remedy.
    """
    try:
        document = toml.load(path)
    except OSError as error:
        raise TrainerError(f"{path}: {error.strerror}; name the trainer's TOML file") from error
    except ValueError as error:
        raise TrainerError(f"{path}: not TOML: {error}") from error
    problems = schemas.problems("trainer", document)
    if problems:
        raise TrainerError(f"{path}: {problems[0]}")
    trainer = _trainer(path, document)
    steps = [place for place, rule in enumerate(trainer.lines) if rule.kind is EventKind.STEP]
    unnumbered = [place for place in steps if "step" not in trainer.lines[place].names]
    if unnumbered and "every" not in document["log"]:
        raise TrainerError(
            f"{path}: /log/line/{unnumbered[0]}: a step needs 'step'; name a group (?P<step>…) or a key so, or, if the "
            "line has no number, say with /log/every how many steps it stands for"
        )
    _check(trainer)
    return trainer


def _trainer(path: Path, document: JsonObject) -> Trainer:
    command, log, files = document["command"], document["log"], document["files"]
    step = _expression(path, "/files/step", files["step"]) if "step" in files else None
    if step is not None and "step" not in step.groupindex:
        raise TrainerError(f"{path}: /files/step: has no group 'step'; write (?P<step>[0-9]+) where the number is")
    frozen = _expression(path, "/files/frozen", files["frozen"]) if "frozen" in files else None
    exits: dict[int, Exit] = {}
    for meaning, statuses in command.get("exit", {}).items():
        for status in statuses:
            if exits.setdefault(status, Exit(meaning)) != Exit(meaning):
                raise TrainerError(f"{path}: /command/exit/{meaning}: {status} means {exits[status]} already")
    return Trainer(
        path=path,
        name=document["name"],
        line=tuple(map(_entry, command["line"])),
        lines=tuple(_rule(path, position, line) for position, line in enumerate(log["line"])),
        files=Files(**{**files, "step": step, "frozen": frozen}),
        sources=tuple(document.get("sources", ())),
        parameters=document.get("parameters", {}),
        environment=command.get("environment", {}),
        admits=tuple(command.get("admits", ())),
        seconds=command.get("seconds"),
        exits=exits,
        logs=tuple(log.get("files", ())),
        first_step=log.get("first_step", 1),
        every=log.get("every", 1),
        ran_on=document.get("recorded", {}).get("ran_on"),
        models=Models(**document.get("models", {})),
        loss=log.get("loss", ""),
        device_code=_device_code(path, document.get("device_code", {})),
        dumps=_dumps(path, document.get("dump", {})),
    )


def _entry(entry: Any) -> str | tuple[str, ...] | Flag:
    if isinstance(entry, dict):
        return Flag(entry["if"], tuple(entry["words"]), tuple(entry.get("otherwise", ())))
    return entry if isinstance(entry, str) else tuple(entry)


def _words(entry: str | tuple[str, ...] | Flag) -> tuple[str, ...]:
    """All words of an entry. The parameter of a flag counts as a placeholder."""
    if isinstance(entry, Flag):
        return (*entry.words, *entry.otherwise, f"{{{entry.name}}}")
    return (entry,) if isinstance(entry, str) else entry


def _device_code(path: Path, table: JsonObject) -> DeviceCodeFiles:
    kernels = (
        _expression(path, f"/device_code/kernels/{position}", text)
        for position, text in enumerate(table.get("kernels", ()))
    )
    return DeviceCodeFiles(tuple(table.get("files", ())), tuple(kernels))


def _dumps(path: Path, table: JsonObject) -> Dumps:
    names = (
        (_expression(path, f"/dump/names/{pattern}", pattern), text) for pattern, text in table.get("names", {}).items()
    )
    return Dumps(table.get("files", ""), tuple(names), table.get("adapters"))


def _rule(path: Path, position: int, line: JsonObject) -> LineRule:
    kind = EventKind(line["event"])
    if "json" in line:
        rule = LineRule(kind, keys=line["json"])
    else:
        rule = LineRule(kind, pattern=_expression(path, f"/log/line/{position}/pattern", line["pattern"]))
    values = _VALUES.get(kind, frozenset())
    if kind is not EventKind.STEP and (strange := rule.names - values):
        known = ", ".join(sorted(values)) or "no values"
        raise TrainerError(f"{path}: /log/line/{position}: a {kind} has no {min(strange)!r}; it has {known}")
    return rule


def _expression(path: Path, where: str, text: str) -> Any:
    try:
        return compiled(text)
    except PatternRefused as error:
        raise TrainerError(f"{path}: {where}: {error}") from error
    except ModuleNotFoundError as error:
        raise TrainerError(str(error)) from error


def _check(trainer: Trainer) -> None:
    redactor = Redactor({})
    for place, text in trainer._texts():
        if "{" in _PLACEHOLDER.sub("", text) or "}" in _PLACEHOLDER.sub("", text):
            raise TrainerError(f"{trainer.path}: {place}: {text!r} has a brace too many; placeholders are {{name}}")
        if redactor.mask(text) != text:
            raise TrainerError(f"{trainer.path}: {place}: looks like a secret, and this file is evidence")
    for name in (*trainer.admits, *trainer.environment):
        if looks_secret(name):
            raise TrainerError(
                f"{trainer.path}: /command: the variable {name} looks like a secret, which no trial gets; "
                "let the trainer read it from a file"
            )
    for name in trainer.parameters:
        if name in _TAKEN:
            raise TrainerError(
                f"{trainer.path}: /parameters/{name}: {name} has a meaning of its own; choose another name"
            )


def unknown(trainer: Trainer, known: set[str]) -> str:
    """The problem of the first placeholder without a value; empty if all have one."""
    for name, place in trainer.placeholders().items():
        if name not in known and name not in GIVEN and name not in trainer.parameters:
            remedy = f'give it a default under [parameters] ({name} = "" is none), or name one of the claim\'s'
            names = [*known, *GIVEN, *trainer.parameters]
            hint = near.hint(name, names, f"{remedy}: {', '.join(sorted(known))}", "{{{}}}")
            return f"{trainer.path}: {place}: the claim has no parameter {name!r}; {hint}"
    return ""


def _names(text: str) -> list[str]:
    return _PLACEHOLDER.findall(text)
