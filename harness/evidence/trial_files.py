"""What a bundle keeps of its trials: the subject's whole series, and of each mutant what its clauses read.

The subject's observation is kept to the last sample, because its clauses were judged on it. Of a killed mutant the
measurements remain that its violated clauses read; judged again, it dies of the same clauses.

trials.log has what every trial wrote to stdout and stderr, bounded, with the digest of the whole:

    ==> subject stdout: 70512 bytes, sha256 9f86d0…; 65607 follow
    …
    ==> mutant forgets-one stderr: 120 bytes, sha256 60303a…; 120 follow
    …

A heading says how many bytes belong to it, so a trial that prints such a line cannot pass for another one.
A stream to which nothing was written has no heading.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from harness.base import strictjson
from harness.base.vocabulary import Fate
from harness.contract import Contract, Mutant
from harness.evidence.bundle_layout import METRICS, OBSERVATION, TELEMETRY
from harness.execution.executor import TrialResult
from harness.judging.judge import judge
from harness.judging.observation import Observation
from harness.judging.verdict import MutantOutcome, fate_of
from harness.search.counterexample import Counterexample

__all__ = [
    "MOST_SAMPLES",
    "SUBJECT",
    "Stream",
    "TrialLogError",
    "json_bytes",
    "mutant_line",
    "parse_log",
    "sections",
    "series_of",
    "subject_files",
    "thinned",
    "trial_of",
]

MOST_SAMPLES: Final = 4096
"""Rows of telemetry that are kept: seventeen minutes of four samples a second. Steps have the limit of `Steps`."""


def series_of(result: TrialResult) -> dict[str, Any]:
    """How the subject's trial was watched: rows recorded and kept, peaks, and why readings are missing."""
    kept, stride = thinned(result.telemetry.rows, MOST_SAMPLES)
    watched = _watched(result)
    return {
        "metrics": {**watched["metrics"], "kept": len(result.steps.rows), "stride": result.steps.stride},
        "telemetry": {**watched["telemetry"], "kept": len(kept), "stride": stride},
    }


def subject_files(result: TrialResult) -> Iterator[tuple[str, bytes]]:
    """The observation and the series of the subject's trial, by file name."""
    columns = ["step", "seconds"]
    columns += [
        name for name in dict.fromkeys(key for step in result.steps.rows for key in step) if name not in columns
    ]
    samples, _ = thinned(result.telemetry.rows, MOST_SAMPLES)
    yield OBSERVATION, json_bytes(result.observation.to_json())
    yield METRICS, _csv(columns, ([step.get(name) for name in columns] for step in result.steps.rows))
    yield TELEMETRY, _csv(result.telemetry.columns, samples)


def mutant_line(contract: Contract, mutant: Mutant, result: TrialResult, case: Counterexample | None) -> bytes:
    """The line of mutants.jsonl of one trial.

    Args:
        contract: the one that the trial is judged by.
        case: the counterexample of a search.
    """
    outcome = fate_of(mutant, judge(contract, result.observation))
    observation = _needed(contract, mutant, result.observation, outcome)
    left_out = [name for name in result.observation.measurements if name not in observation.measurements]
    document = {
        "id": mutant.id,
        "failed": list(outcome.failed),
        "observation": observation.to_json(),
        "left_out": left_out,
        "series": _watched(result),
        "counterexample": None if case is None else case.to_json(),
    }
    return _utf8(strictjson.dumps(strictjson.tag_nonfinite(document)) + "\n")


def _needed(contract: Contract, mutant: Mutant, observation: Observation, outcome: MutantOutcome) -> Observation:
    """A killed mutant's observation with the measurements that its violated clauses read; any other as it is."""
    if outcome.fate is not Fate.KILLED:
        return observation
    reads = {clause.id: {clause.path[0]} for clause in contract.clauses if clause.path}
    reads |= {rule.id: {path[0] for path in rule.names["self"]} for rule in contract.rules}
    names = set[str]().union(*(reads.get(clause, ()) for clause in outcome.failed))
    needed = replace(
        observation,
        measurements={name: value for name, value in observation.measurements.items() if name in names},
        unseen={name: why for name, why in observation.unseen.items() if name in names},
    )
    # A clause that reads in a way not foreseen here would come out otherwise; then everything is kept.
    return needed if fate_of(mutant, judge(contract, needed)) == outcome else observation


def _watched(result: TrialResult) -> dict[str, Any]:
    telemetry = result.telemetry
    peaks = {column: telemetry.peak(column) for column in telemetry.columns}
    return {
        "metrics": {"rows": result.steps.count},
        "telemetry": {
            "rows": len(telemetry.rows),
            "peaks": {column: peak for column, peak in peaks.items() if peak is not None},
            "reasons": dict(telemetry.reasons),
        },
    }


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

    Half of a surrogate pair, as in file names that are not UTF-8, has no UTF-8 either; it becomes JSON's own escape.
    """
    return _utf8(strictjson.dumps(strictjson.tag_nonfinite(document), indent=1) + "\n")


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


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", errors="backslashreplace")


SUBJECT = "subject"
_HEADING = re.compile(
    rb"==> (?P<trial>subject|mutant [a-z0-9-]{1,80}) (?P<stream>stdout|stderr): (?P<size>[0-9]{1,18}) bytes, "
    rb"sha256 (?P<sha256>[0-9a-f]{64}); (?P<kept>[0-9]{1,18}) follow\n"
)


class TrialLogError(ValueError):
    """A file is not a log of trials; the text says at which byte."""


@dataclass(frozen=True)
class Stream:
    """One stream of one trial."""

    text: str
    """Head and tail, with a line between them that says what is left out."""
    size: int
    """Bytes that the trial wrote."""
    sha256: str
    """Of every byte that the trial wrote."""


def trial_of(mutant: str) -> str:
    """The name of a mutant's trial in the log."""
    return f"mutant {mutant}"


def sections(trial: str, result: TrialResult, limit: int) -> Iterator[bytes]:
    """The sections of one trial.

    Args:
        trial: SUBJECT, or `trial_of` a mutant.
        limit: bytes of each stream that are kept.
    """
    for stream, log in (("stdout", result.stdout), ("stderr", result.stderr)):
        if log.size:
            kept = _shortened(log.text.encode("utf-8", errors="backslashreplace"), limit)
            heading = f"==> {trial} {stream}: {log.size} bytes, sha256 {log.digest}; {len(kept)} follow\n"
            yield heading.encode("ascii") + kept + b"\n"


def parse_log(content: bytes) -> Mapping[tuple[str, str], Stream]:
    """The streams by trial and name.

    Raises:
        TrialLogError: anything that `sections` would not have written.
    """
    streams: dict[tuple[str, str], Stream] = {}
    position = 0
    while position < len(content):
        heading = _HEADING.match(content, position)
        if heading is None:
            raise TrialLogError(f"has no heading at byte {position}")
        start, kept = heading.end(), int(heading["kept"])
        position = start + kept + 1
        if content[position - 1 : position] != b"\n":
            raise TrialLogError(f"does not have the {kept} bytes that its heading at byte {heading.start()} announces")
        key = (heading["trial"].decode("ascii"), heading["stream"].decode("ascii"))
        if key in streams:
            raise TrialLogError(f"has {' '.join(key)} twice")
        text = content[start : start + kept].decode("utf-8", errors="backslashreplace")
        streams[key] = Stream(text, int(heading["size"]), heading["sha256"].decode("ascii"))
    return streams


def _shortened(content: bytes, limit: int) -> bytes:
    """A log cut to its head and, three times as long, its tail, with a line between them that says so."""
    if len(content) <= limit:
        return content
    head = content[: limit // 4].decode("utf-8", errors="ignore").encode("utf-8")
    tail = content[-(limit - limit // 4) :].decode("utf-8", errors="ignore").encode("utf-8")
    return head + f"\n[… {len(content) - len(head) - len(tail)} bytes left out here …]\n".encode() + tail
