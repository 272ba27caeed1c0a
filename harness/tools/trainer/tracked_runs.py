"""The local files of experiment trackers as logs: TensorBoard's events, MLflow's runs and offline runs of W&B.

    for line in lines(Path("runs/tuesday/events.out.tfevents.1.host.1.0")):
        ...  # b'{"step": 3, "train/loss": 2.1}'

Each step becomes one line of JSON, with its number as `step` and its values by the tracker's names. The libraries of
the trackers are not needed: TensorBoard's and W&B's need 80 MB, and this module reads only a few kinds of records.
"""

from __future__ import annotations

import errno
import json
import math
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import groupby
from pathlib import Path

from harness.base import regular_file, strictjson

__all__ = ["is_tracked", "lines", "parts"]

_TENSORBOARD = "events.out.tfevents."
_WANDB = ".wandb"
_WANDB_HEADER = b":W&B\xe1\xbe\x00"
_BLOCK = 1 << 15
"""Bytes of a block of W&B's file, which has the form of LevelDB's log."""
_SQLITE = ".db"
_MOST_ROWS = 10_000_000
_LARGEST = 1 << 30
"""Bytes of a file. Larger ones are refused."""

Scalar = tuple[int, str, float]
"""A step, the name of a value, and the value."""


def is_tracked(path: Path) -> bool:
    """Whether a file, or the folder `metrics` of an MLflow run, is a tracker's, by its name."""
    if path.is_dir():
        return path.name == "metrics" and (path.parent / "meta.yaml").is_file()
    if path.suffix == _SQLITE:
        return True
    return path.name.startswith(_TENSORBOARD) or path.suffix == _WANDB


def parts(path: Path) -> list[Path]:
    """The files that a log consists of: itself, or those of MLflow's folder."""
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def lines(path: Path) -> Iterator[bytes]:
    """Yield a line of JSON for each step, in the order in which they were logged; MLflow's in the order of the steps.

    A record that is cut off or damaged ends the file.

    Raises:
        OSError: the file cannot be read.
    """
    if path.is_dir():
        scalars = sorted(_of_mlflow(path), key=lambda scalar: scalar[0])
    elif path.suffix == _SQLITE:
        scalars = _of_sqlite(path)
    else:
        content = regular_file.read(path, _LARGEST)
        scalars = list(_of_wandb(content) if path.suffix == _WANDB else _of_tensorboard(content))
    for step, values in groupby(scalars, key=lambda scalar: scalar[0]):
        yield json.dumps({"step": step, **{name: value for _, name, value in values}}).encode() + b"\n"


def _of_mlflow(folder: Path) -> Iterator[Scalar]:
    """Each file of the folder has a metric's name, and lines of a time in milliseconds, a value and a step."""
    for path in parts(folder):
        for line in regular_file.read(path, _LARGEST).splitlines():
            with suppress(ValueError):
                _, value, step = line.split()[:3]
                yield int(step), path.relative_to(folder).as_posix(), float(value)


def _of_sqlite(path: Path) -> list[Scalar]:
    """The metrics in MLflow's database, run after run."""
    regular_file.opened(path).close()
    query = (
        "SELECT metrics.step, metrics.key, CASE is_nan WHEN 1 THEN NULL ELSE metrics.value END FROM metrics "
        "JOIN runs USING (run_uuid) ORDER BY runs.start_time, run_uuid, metrics.step LIMIT ?"
    )
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            rows = database.execute(query, (_MOST_ROWS,)).fetchall()
    except sqlite3.Error as error:
        raise OSError(errno.EINVAL, f"is no database of MLflow: {error}", str(path)) from error
    return [(int(step), str(name), math.nan if value is None else float(value)) for step, name, value in rows]


def _of_tensorboard(content: bytes) -> Iterator[Scalar]:
    """Records of a length (u64), its checksum (u32), a message `Event` and its checksum."""
    place = 0
    while len(content) - place >= 16:
        (size,) = struct.unpack_from("<Q", content, place)
        if size > len(content) - place - 16:
            return
        with suppress(ValueError):
            event = _fields(content[place + 12 : place + 12 + size])
            step = next((value for number, value in event if number == 2 and isinstance(value, int)), 0)
            for summary in _messages(event, 5):
                for value in _messages(_fields(summary), 1):
                    yield from _scalar(step, _fields(value))
        place += size + 16


def _scalar(step: int, fields: list[tuple[int, int | bytes]]) -> Iterator[Scalar]:
    """A value of a summary: `tag` is field 1, `simple_value` field 2, and `tensor` field 8."""
    tag = next(_messages(fields, 1), b"").decode(errors="replace")
    for number, value in fields:
        if number == 2 and isinstance(value, bytes) and len(value) == 4:
            yield step, tag, struct.unpack("<f", value)[0]
    for tensor in _messages(fields, 8):
        within = _fields(tensor)
        is_float = (1, 1) in within
        for held in (*_messages(within, 4), *_messages(within, 5)):  # tensor_content, float_val
            if is_float and len(held) == 4:
                yield step, tag, struct.unpack("<f", held)[0]


def _of_wandb(content: bytes) -> Iterator[Scalar]:
    """Messages `Record`: `history` is field 2. Of its items (field 1), the key is field 1 or 2, the value field 16."""
    for record in _leveldb_records(content):
        with suppress(ValueError):
            for history in _messages(_fields(record), 2):
                values = {}
                for item in _messages(_fields(history), 1):
                    fields = _fields(item)
                    key = ".".join(part.decode() for number in (1, 2) for part in _messages(fields, number) if part)
                    with suppress(strictjson.JsonError):
                        values[key] = _number(next(_messages(fields, 16), b""))
                step = values.get("_step")
                if step is None or not math.isfinite(step):
                    continue
                for name, value in values.items():
                    if value is not None and not name.startswith("_"):
                        yield int(step), name, value


def _number(text: bytes) -> float | None:
    """A number in JSON; None for other values. W&B writes NaN and Infinity, bare or as texts."""
    with suppress(ValueError):
        return float(text.strip(b'"'))
    return None


def _leveldb_records(content: bytes) -> Iterator[bytes]:
    """The records of a log of LevelDB: in each block, fragments of a checksum (u32), a size (u16) and a kind (u8)."""
    if not content.startswith(_WANDB_HEADER):
        return
    place, record = len(_WANDB_HEADER), b""
    while place + 7 <= len(content):
        if _BLOCK - place % _BLOCK < 7:
            place += _BLOCK - place % _BLOCK
            continue
        _, size, kind = struct.unpack_from("<IHB", content, place)
        fragment = content[place + 7 : place + 7 + size]
        if len(fragment) < size or kind not in (1, 2, 3, 4):
            return
        place += 7 + size
        record = fragment if kind in (1, 2) else record + fragment
        if kind in (1, 4):
            yield record


def _messages(fields: list[tuple[int, int | bytes]], number: int) -> Iterator[bytes]:
    """The fields of a number that hold bytes: texts and messages."""
    return (value for at, value in fields if at == number and isinstance(value, bytes))


def _fields(message: bytes) -> list[tuple[int, int | bytes]]:
    """The fields of a message of Protocol Buffers, by number: an integer, or bytes, little-endian if of fixed size.

    Raises:
        ValueError: it is no such message.
    """
    fields: list[tuple[int, int | bytes]] = []
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind, size = key & 7, 0
        if kind == 0:
            value, place = _varint(message, place)
            fields.append((key >> 3, value))
            continue
        if kind == 2:
            size, place = _varint(message, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if size > len(message) - place:
            raise ValueError("a field is cut off")
        fields.append((key >> 3, message[place : place + size]))
        place += size
    return fields


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """An integer of a variable size, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        byte = message[place]
        value, place = value | (byte & 127) << shift, place + 1
        if byte < 128:
            return value, place
    raise ValueError("an integer is cut off")
