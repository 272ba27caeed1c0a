"""Finds the checkpoints of a job, and reads each in a thread once its files no longer change."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from harness.tools.trainer import directory
from harness.tools.trainer.model_folder import weight_paths
from harness.tools.trainer.trainer_file import Trainer
from harness.tools.watch.facts import Fact
from harness.tools.watch.given import Given
from harness.tools.watch.job_state import INITIAL, JobState

__all__ = ["CheckpointReader", "checkpoint_fact", "sizes_of", "weights_fact"]

_PATIENCE: Final = 3.0
"""An unreadable file may be incomplete. It is refuted only after `late_seconds`, and after this multiple of the settle
time without a change.
"""


@dataclass
class _Found:
    """A checkpoint on the disk."""

    path: Path
    look: tuple[tuple[int, int], ...] = ()
    """Size and modification time of each file."""
    since: float = 0.0
    """When this state was first observed."""
    again: float = 0.0
    """How long the state must persist before another read, after a failed one."""
    reading: Future[dict[str, Any]] | None = None
    read_at: tuple[tuple[int, int], ...] = field(default=())


@final
class CheckpointReader:
    """Reads each checkpoint once."""

    def __init__(self, trainer: Trainer, values: dict[str, Any], given: Given) -> None:
        self._trainer, self._values, self._given = trainer, values, given
        self._found: dict[int, _Found] = {}
        self._unread: set[int] = set()
        """Steps whose checkpoint the watcher failed to read."""
        self._pool = ThreadPoolExecutor(1, "harness-watch-checkpoints")
        self._last: tuple[int, Path] | None = None
        """The newest checkpoint that was read."""
        self._initial = weights_path(trainer, values, trainer.files.initial)

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is being read or queued."""
        return bool(self._found)

    def close(self) -> None:
        """End the thread after the current read."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def read(self, job: JobState, at: float, *, is_over: bool) -> Iterator[Fact]:
        """Yield the checkpoints that were read since the last call."""
        for step, path in directory.checkpoints(self._trainer, self._values).items():
            if step not in job.checkpoints and step not in self._unread:
                self._found.setdefault(step, _Found(path))
        for step in sorted(self._found):
            found = self._found[step]
            if step not in job.seen:
                yield {"fact": "seen", "at": at, "step": step}
            if not found.path.exists():  # deleted before the read
                del self._found[step]
                continue
            try:
                fact = self._look(step, found, at, is_over)
            except Exception:  # a fault of the watcher, not of the checkpoint
                self._unread.add(step)
                del self._found[step]
                raise
            if fact is not None or (is_over and not found.look):
                del self._found[step]
            if fact is not None:
                if fact.get("tensors"):
                    self._last = (step, found.path)
                yield fact

    def _look(self, step: int, found: _Found, at: float, is_over: bool) -> Fact | None:
        """Return the fact of a checkpoint after it was read; None before."""
        look = _sizes(found.path)
        if look != found.look:
            found.look, found.since, found.again = look, at, 0.0
        given, settled = self._given, at - found.since
        patience = 0.0 if is_over else max(_PATIENCE * given.settle_seconds, given.late_seconds)
        if look:
            if found.reading is None:
                if is_over or settled >= max(given.settle_seconds, found.again):
                    found.read_at = look
                    found.reading = self._pool.submit(self._read, step, found.path)
                return None
            if not found.reading.done():
                return None
            reading, found.reading = found.reading, None
            result = reading.result()
        elif any(path.is_file() and path.stat().st_size for path in found.path.rglob("*")):
            return None  # in an unknown format
        else:
            result = {"refused": "the folder is empty"}
        if look != found.read_at or (result.get("refused") and settled < patience):
            found.again = patience
            return None
        size = sum(size for size, _ in look)
        output = str(self._values.get("output") or "")
        is_inside = output != "" and found.path.is_relative_to(output)
        name = str(found.path.relative_to(output) if is_inside else found.path)
        return {"fact": "checkpoint", "at": at, "step": step, "name": name, "bytes": size, **result}

    def _read(self, step: int, path: Path) -> dict[str, Any]:
        before = self._last or ((INITIAL, self._initial) if self._initial is not None else None)
        is_single = path.is_file() and before is not None and before[1].is_file()
        if self._given.optimizer == "adamw" and is_single and before is not None and before[0] < step:
            return _moved(path, before[0], before[1], self._trainer.files.prefix)
        return _tensors(path, self._trainer.files.prefix)


def weights_path(trainer: Trainer, values: dict[str, Any], text: str) -> Path | None:
    """Return the path of weights that the trainer's file names; None if it names none, or the path does not exist."""
    if not text or not trainer.has_values(text, values):
        return None
    path = Path(trainer.filled(text, values))
    return path if path.exists() else None


def checkpoint_fact(step: int, path: Path, at: float) -> Fact:
    """Return the fact of a checkpoint that is complete."""
    size = sum(size for size, _ in sizes_of(path))
    return {"fact": "checkpoint", "at": at, "step": step, "name": path.name, "bytes": size, **_tensors(path, "")}


def weights_fact(role: str, path: Path, prefix: str, at: float) -> Fact:
    """Return the fact of weights beside the checkpoints: the first ones, or the teacher's."""
    size = sum(size for size, _ in sizes_of(path))
    return {"fact": "weights", "at": at, "role": role, "name": str(path), "bytes": size, **_tensors(path, prefix)}


def _sizes(path: Path) -> tuple[tuple[int, int], ...]:
    """Like `sizes_of`, but return an empty result if no file with weights exists."""
    try:
        return sizes_of(path)
    except OSError:
        return ()


def sizes_of(path: Path) -> tuple[tuple[int, int], ...]:
    """Return size and modification time of the files with the weights. Raises OSError if there are none."""
    found = [part.stat() for part in weight_paths(path)]
    if not found:
        raise FileNotFoundError(path)
    return tuple((stat.st_size, stat.st_mtime_ns) for stat in found)


def _tensors(path: Path, prefix: str) -> dict[str, Any]:
    """Return the tensors of a checkpoint, or why it is refused, as keys of a fact."""
    from harness.tools.inspect.checkpoint import Refused, inspect

    found: dict[str, Any] = {}
    try:
        for part in weight_paths(path):
            found |= _plain(inspect(part).tensors, prefix)
    except Refused as error:
        return {"refused": f"{error.reason} (byte {error.offset})" if error.offset is not None else error.reason}
    except OSError as error:
        return {"refused": error.strerror or str(error)}
    return {"tensors": found}


def _moved(path: Path, since: int, before: Path, prefix: str) -> dict[str, Any]:
    """Like `_tensors`, with the movement of each tensor since the checkpoint `before`, if both can be read."""
    from harness.tools.inspect.checkpoint import Refused, compare

    try:
        found = compare(path, before)
    except (Refused, OSError):
        return _tensors(path, prefix)
    moved = dict.fromkeys(found.equal, 0.0)
    moved |= {tensor.name: tensor.largest for tensor in found.changed if tensor.largest is not None}
    moved = {name.removeprefix(prefix): one for name, one in moved.items() if name.startswith(prefix)}
    return {"tensors": _plain(found.this.tensors, prefix), "moved": moved, "since": since}


def _plain(tensors: Any, prefix: str) -> dict[str, list[Any]]:
    """Return the tensors whose names start with a prefix, by name without the prefix."""
    return {
        name.removeprefix(prefix): [
            tensor.dtype,
            list(tensor.shape),
            tensor.digest[:16],
            0 if tensor.statistics is None else tensor.statistics.nan + tensor.statistics.infinite,
        ]
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
