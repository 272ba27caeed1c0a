"""Runs a trainer's command line and reads its output while it runs.

The output is copied to our own stdout and stderr, where a trial's logs are limited in size. The process stays in the
trial's session, so that it ends with the trial. It has its own process group, so that it can be ended together with its
children.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from harness.authoring.faults import NotMeasured
from harness.base.shortening import cut
from harness.base.strictjson import JsonObject
from harness.tools.trainer import directory
from harness.tools.trainer.memory import LargestProcess
from harness.tools.trainer.output_events import LogReader
from harness.tools.trainer.output_summary import Telling
from harness.tools.trainer.trainer_file import Exit, Trainer

__all__ = ["CommandFailed", "OutOfMemory", "RequestRefused", "run"]

_CHUNK = 1 << 16
_TICK = 0.05
_NEWS_SECONDS = 0.5
"""Seconds between two reports that the command is at work."""
_AT_WORK = 0.01
"""Share of one processor above which a silent command counts as working."""
_AFTERMATH_SECONDS = 1.0
"""Seconds that children may keep the output open after the process has ended."""
_NOT_ITS_OWN = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU)
"""Signals from the kernel, a scheduler or a user. A process that dies of one is not at fault."""
_LARGEST_DIGESTED = 1 << 30
_LARGEST_WORD_DIGESTED = 1 << 24
"""Bytes. Scripts and configurations are smaller; a digest of larger files, such as weights, takes too long."""
_LONGEST_WORDS = 200
_ROOM = 1 << 20
"""Free bytes below which a disk counts as full. Any checkpoint is larger."""


class CommandFailed(RuntimeError):
    """The trainer failed."""


class RequestRefused(NotMeasured):
    """The trainer refused its command line: correct for an invalid request, else a mistake in its TOML file."""


class OutOfMemory(CommandFailed):
    """The trainer ran out of GPU memory."""


def run(
    trainer: Trainer, values: JsonObject, telling: Telling, at_work: Callable[[str], None] = lambda line: None
) -> int | None:
    """Run the trainer to its end.

    Args:
        at_work: called when the command starts, and while it prints or uses a processor, with its newest line.

    Returns:
        The peak CPU memory of its largest process in bytes; None if it is unknown.

    Raises:
        CommandFailed: it failed, by its exit status or a signal that it caused.
        NotMeasured: it could not be started, it refused its command line, or the machine prevented the run.
        TrainerError: there is no command line for these values.
    """
    words, variables = trainer.words(values), trainer.variables(values)
    _announce(words, variables)
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **variables},
            process_group=0,
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise NotMeasured(f"{trainer.name} cannot be started: {words[0]}: {why}") from error
    memory = LargestProcess(process.pid)
    at_work("")
    try:
        readers = _listen(process, trainer, telling, memory, at_work)
        status = process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    if status == 0:
        for reader in readers:
            for event in reader.end():
                telling.hear(event)
    telling.end()
    if status != 0 and _is_full(Path(values["output"])):
        raise NotMeasured(f"the disk of {values['output']} is full; {trainer.name} ended with status {status}")
    _judge(trainer, status, telling, _last_words(readers))
    return memory.bytes()


def _is_full(output: Path) -> bool:
    """Whether the disk was full when a trainer failed. Its own message for that is unknown."""
    place = next((folder for folder in (output, *output.parents) if folder.is_dir()), Path("/"))
    return shutil.disk_usage(place).free < _ROOM


def _last_words(readers: Sequence[LogReader]) -> str:
    """The last line on stderr, else on stdout. It usually says why the trainer failed."""
    line = next((reader.last_words for reader in reversed(readers) if reader.last_words), "")
    return cut(line, _LONGEST_WORDS)


def _judge(trainer: Trainer, status: int, telling: Telling, last_words: str) -> None:
    """Raise the error that fits how the trainer ended; nothing if it succeeded."""
    meaning = trainer.meaning(status)
    if meaning is Exit.COMPLETED:
        return
    after = f"after step {telling.newest}" if telling.newest else "before its first step"
    saying = f", saying {last_words!r}" if last_words else ""
    if status < 0:
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
        if -status in _NOT_ITS_OWN:
            raise NotMeasured(f"{trainer.name} was ended by {name} {after}")
        raise CommandFailed(f"{trainer.name} died of {name} {after}{saying}")
    text = f"{trainer.name} exited with status {status} {after}"
    if meaning is Exit.MACHINE:
        raise NotMeasured(f"{text}{saying}: the machine prevented the run")
    if meaning is Exit.USAGE:
        raise RequestRefused(f"{text}{saying}: it refused its command line; see {trainer.path}")
    if meaning is Exit.OUT_OF_MEMORY or telling.out_of_memory:
        raise OutOfMemory(f"{text}, out of GPU memory: {telling.out_of_memory or 'it says no more'}")
    raise CommandFailed(f"{text}{saying}")


def _listen(
    process: subprocess.Popen[bytes],
    trainer: Trainer,
    telling: Telling,
    memory: LargestProcess,
    at_work: Callable[[str], None],
) -> list[LogReader]:
    """Read both streams until they end, or until a second after the process has ended."""
    streams = [(process.stdout, sys.stdout), (process.stderr, sys.stderr)]
    readers = [LogReader(trainer.lines) for _ in streams]
    give_up = None
    news, used, has_printed = time.monotonic(), 0.0, False
    with selectors.DefaultSelector() as selector:
        for (pipe, ours), reader in zip(streams, readers, strict=True):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, (ours, reader))
        while selector.get_map():
            ready = selector.select(_TICK)
            memory.look()
            has_printed = has_printed or bool(ready)
            if (waited := time.monotonic() - news) > _NEWS_SECONDS:
                before, used = used, memory.processor_seconds()
                if has_printed or used - before > _AT_WORK * waited:
                    at_work(_last_words(readers))
                news, has_printed = time.monotonic(), False
            for key, _ in ready:
                ours, reader = key.data
                chunk = os.read(key.fd, _CHUNK)
                if not chunk:
                    selector.unregister(key.fileobj)
                    continue
                _pass_on(ours, chunk)
                for event in reader.feed(chunk):
                    telling.hear(event)
            if process.poll() is not None:
                give_up = give_up or time.monotonic() + _AFTERMATH_SECONDS
                if not ready or time.monotonic() > give_up:
                    break
    return readers


def _pass_on(ours: IO[str], chunk: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # no reader: the trainer goes on
        ours.flush()
        left = memoryview(chunk)
        while left:
            left = left[os.write(ours.fileno(), left) :]


def _announce(words: list[str], variables: Mapping[str, str]) -> None:
    """Print the command line and the digests of the program and of small files that it names to the trial's log.

    The evidence is about these files. If the program is an interpreter, the script is the trainer.
    """
    assigned = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    print("+", *assigned, shlex.join(words))
    program = shutil.which(words[0], path=variables.get("PATH"))
    if program is not None:
        _tell_digest(Path(os.path.realpath(program)), _LARGEST_DIGESTED)
    for word in dict.fromkeys(words[1:]):
        _tell_digest(Path(word), _LARGEST_WORD_DIGESTED)
    sys.stdout.flush()


def _tell_digest(place: Path, largest: int) -> None:
    with contextlib.suppress(OSError, ValueError, NotMeasured):
        if place.is_file() and place.stat().st_size <= largest:
            print("+ sha256", directory.digest(place), place)
