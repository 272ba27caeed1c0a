"""The files of one trial: its observation, its series as CSV, and its logs, within what a reviewer can be given.

An observation is kept to the last sample: clauses were judged on it. Series and logs are for people to look at, and
those of mutants only show how each died; where rows or lines are left out, trial.json says how many there were.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from harness.base import strictjson
from harness.evidence.layout import METRICS, OBSERVATION, STDERR, STDOUT, TELEMETRY, TRIAL
from harness.execution.executor import TrialResult
from harness.execution.logs import Log

__all__ = ["MUTANT", "SUBJECT", "Allowance", "csv_problem", "json_bytes", "thinned", "trial_files"]


@dataclass(frozen=True)
class Allowance:
    """How much of a trial a bundle keeps."""

    metrics_rows: int
    telemetry_rows: int
    log_bytes: int
    """Of each log."""


# With these a bundle of twenty mutants, fifty steps each, stays below 500 KB with report.html in it.
SUBJECT: Final = Allowance(metrics_rows=500, telemetry_rows=160, log_bytes=64 << 10)
MUTANT: Final = Allowance(metrics_rows=60, telemetry_rows=20, log_bytes=4 << 10)


def trial_files(result: TrialResult, allowance: Allowance) -> Iterator[tuple[str, bytes]]:
    """Every file of a trial by its name (those of layout.TRIAL_FILES)."""
    steps, step_stride = thinned(result.steps.rows, allowance.metrics_rows)
    telemetry = result.telemetry
    rows, row_stride = thinned(telemetry.rows, allowance.telemetry_rows)
    columns = ["step", "seconds"]
    columns += [
        name for name in dict.fromkeys(key for step in result.steps.rows for key in step) if name not in columns
    ]
    about = {
        "seconds": result.seconds,
        "logs": {name: {"size": log.size, "sha256": log.digest} for name, log in _logs(result)},
        "metrics": {"rows": result.steps.count, "kept": len(steps), "stride": step_stride * result.steps.stride},
        "telemetry": {
            "rows": len(telemetry.rows),
            "kept": len(rows),
            "stride": row_stride,
            "peaks": {column: telemetry.peak(column) for column in telemetry.columns},
            "reasons": dict(telemetry.reasons),
            "residency": asdict(telemetry.residency),
        },
    }
    yield OBSERVATION, json_bytes(result.observation.to_json())
    yield TRIAL, json_bytes(about)
    yield METRICS, _csv(columns, ([step.get(name) for name in columns] for step in steps))
    yield TELEMETRY, _csv(telemetry.columns, rows)
    for name, log in zip((STDOUT, STDERR), (result.stdout, result.stderr), strict=True):
        yield name, _shortened(_utf8(log.text), allowance.log_bytes)


def _logs(result: TrialResult) -> tuple[tuple[str, Log], ...]:
    return ("stdout", result.stdout), ("stderr", result.stderr)


def thinned(rows: Sequence[Any], limit: int) -> tuple[list[Any], int]:
    """At most `limit` (2 or more) of the rows, evenly spaced, the first and the last among them; and the stride."""
    if len(rows) <= limit:
        return list(rows), 1
    stride = math.ceil((len(rows) - 1) / (limit - 1))
    kept = list(rows[::stride])
    if (len(rows) - 1) % stride:
        kept.append(rows[-1])
    return kept, stride


def json_bytes(document: Any) -> bytes:
    """A JSON document as a file: strict, indented, UTF-8.

    Half of a surrogate pair, as in file names that are no UTF-8, has no UTF-8 either; it becomes JSON's own escape.
    """
    return _utf8(strictjson.dumps(strictjson.tag_nonfinite(document), indent=1) + "\n")


def csv_problem(content: bytes, columns: Sequence[str]) -> str | None:
    """What keeps a file from being a series whose first columns are these, with numbers in them.

    What follows is not looked at: a falsifier records what it likes, and a later version of the harness samples more.
    """
    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True)
        header = next(reader, [])
        if header[: len(columns)] != list(columns):
            return f"the first columns are {', '.join(header[: len(columns)])[:200]}, not {', '.join(columns)}"
        if len(set(header)) != len(header):
            return "a column occurs twice"
        for row in reader:
            if len(row) != len(header):
                return f"line {reader.line_num} has {len(row)} cells, the header {len(header)}"
            for name, cell in zip(columns, row, strict=False):
                if cell not in ("", "NaN", "Infinity", "-Infinity") and not _is_number(cell):
                    return f"line {reader.line_num}: {name} is {cell[:40]!r}, not a number"
    except (UnicodeDecodeError, csv.Error) as error:
        return str(error)
    return None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _csv(columns: Sequence[str], rows: Any) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return _utf8(text.getvalue())


def _cell(value: Any) -> str:
    """A cell as pandas and spreadsheets read it: empty where there is nothing, NaN and Infinity by name."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    tagged = strictjson.tag_nonfinite(value)
    if isinstance(tagged, Mapping) and set(tagged) == {"nonfinite"}:
        return str(tagged["nonfinite"])
    return strictjson.dumps(tagged)


def _shortened(content: bytes, limit: int) -> bytes:
    """A log cut to its head and, three times as long, its tail, with a line between them that says so."""
    if len(content) <= limit:
        return content
    head = content[: limit // 4].decode("utf-8", errors="ignore").encode("utf-8")
    tail = content[-(limit - limit // 4) :].decode("utf-8", errors="ignore").encode("utf-8")
    return head + f"\n[… {len(content) - len(head) - len(tail)} bytes left out here …]\n".encode() + tail


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", errors="backslashreplace")
