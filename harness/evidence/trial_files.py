"""The files of a bundle's trials: the subject's series, and the measurements that each mutant's clauses read.

The subject's observation is complete, because its clauses are judged on it. A killed mutant's observation contains only
the measurements that its violated clauses read, so a second judgment kills it by the same clauses.

trials.log contains the log of each trial, its stdout and its stderr. Each is shortened, with the digest of the whole:

    ==> subject log: 3120 bytes, sha256 a1c2e4…; 3120 follow
         0.000  F-DEMO-SORT-001: demo.sorting:falsify examines demo.sorting:Sorter, profile reduced
    …
    ==> subject stdout: 70512 bytes, sha256 9f86d0…; 65821 follow, quoted
    | …
    ==> mutant forgets-one log: 120 bytes, sha256 60303a…; 120 follow
    …

The harness writes the log, and the trial writes the output. Every line of output is quoted, so it cannot imitate a line
of the log. A heading states the number of bytes that follow, so a trial cannot forge the output of another one by
printing a heading. An empty stream has no heading. Bundles of older versions have no log and unquoted output.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, final

from harness.base import strictjson
from harness.base.json_dataclass import JsonDataclass
from harness.base.redaction import MASK
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Fate
from harness.contract import Contract, Mutant
from harness.evidence.bundle_layout import METRICS, OBSERVATION, TELEMETRY
from harness.execution.executor import TrialResult
from harness.execution.logs import CUT, NUL
from harness.judging.counterexample import Counterexample
from harness.judging.judge import judge
from harness.judging.observation import Observation
from harness.judging.verdict import MutantOutcome, fate_of
from harness.machine.telemetry import COLUMNS

__all__ = [
    "MOST_SAMPLES",
    "SUBJECT",
    "MutantTrial",
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
"""Maximum rows of telemetry: 17 minutes at four samples per second. `Steps` limits the rows of steps."""


@final
@dataclass(frozen=True)
class MutantTrial(JsonDataclass):
    """One line of mutants.jsonl: measurements of a mutant's trial, and its telemetry."""

    SCHEMA: ClassVar = "mutant"

    id: str
    failed: tuple[str, ...]
    """The clauses that it failed. Those that the contract names come first."""
    observation: Observation
    left_out: tuple[str, ...]
    """Omitted measurements, which no clause that killed the mutant reads."""
    series: JsonObject
    """The number of rows recorded, the peaks of the telemetry, and why readings are missing."""
    counterexample: Counterexample | None
    """The case of a search that killed it."""


def series_of(result: TrialResult) -> dict[str, Any]:
    """Return the record's summary of the subject's series: rows, peaks, and why readings are missing."""
    rows, stride = thinned(result.telemetry.rows, MOST_SAMPLES)
    watched = _watched(result)
    return {
        "metrics": {**watched["metrics"], "kept": len(result.steps.rows), "stride": result.steps.stride},
        "telemetry": {**watched["telemetry"], "kept": len(rows), "stride": stride},
    }


def subject_files(result: TrialResult) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the subject's trial: its observation and its series, with their names."""
    columns = ["step", "seconds"]
    columns += [
        name for name in dict.fromkeys(key for step in result.steps.rows for key in step) if name not in columns
    ]
    samples, _ = thinned(result.telemetry.rows, MOST_SAMPLES)
    yield OBSERVATION, json_bytes(result.observation.to_json())
    yield METRICS, _csv(columns, ([step.get(name) for name in columns] for step in result.steps.rows))
    yield TELEMETRY, _csv(COLUMNS, samples)


def mutant_line(
    contract: Contract, mutant: Mutant, outcome: MutantOutcome, result: TrialResult, case: Counterexample | None
) -> bytes:
    """Return the line of mutants.jsonl for one trial.

    Args:
        contract: the contract that judges the trial.
        outcome: the outcome of the trial.
        case: the counterexample of a search; None if there is none.
    """
    observation = _needed(contract, mutant, result.observation, outcome)
    left_out = [name for name in result.observation.measurements if name not in observation.measurements]
    trial = MutantTrial(mutant.id, outcome.failed, observation, tuple(left_out), _watched(result), case)
    return _utf8(strictjson.dumps(trial.to_json()) + "\n")


def _needed(contract: Contract, mutant: Mutant, observation: Observation, outcome: MutantOutcome) -> Observation:
    """Reduce a killed mutant's observation to what its violated clauses read. Others are returned unchanged."""
    if outcome.fate is not Fate.KILLED:
        return observation
    reads = {clause.id: {clause.path[0]} for clause in contract.clauses if clause.path}
    reads |= {rule.id: set(rule.measurements) for rule in contract.rules}
    names = set[str]().union(*(reads.get(clause, ()) for clause in outcome.failed))
    needed = replace(
        observation,
        measurements={name: value for name, value in observation.measurements.items() if name in names},
        unseen={name: why for name, why in observation.unseen.items() if name in names},
    )
    # If a clause reads more than this code knows, the outcome changes; then everything is kept.
    return needed if fate_of(mutant, judge(contract, needed)) == outcome else observation


def _watched(result: TrialResult) -> dict[str, Any]:
    telemetry = result.telemetry
    peaks = {column: telemetry.peak(column) for column in COLUMNS}
    return {
        "metrics": {"rows": result.steps.count},
        "telemetry": {
            "rows": len(telemetry.rows),
            "peaks": {column: peak for column, peak in peaks.items() if peak is not None},
            "reasons": dict(telemetry.reasons),
        },
    }


def thinned(rows: Sequence[Any], limit: int) -> tuple[list[Any], int]:
    """Return at most `limit` (2 or more) rows, evenly spaced and including the first and the last; and the stride."""
    if len(rows) <= limit:
        return list(rows), 1
    stride = math.ceil((len(rows) - 1) / (limit - 1))
    selected = list(rows[::stride])
    if (len(rows) - 1) % stride:
        selected.append(rows[-1])
    return selected, stride


def json_bytes(document: Any) -> bytes:
    """Return a JSON document as a file: strict, indented, UTF-8.

    Half of a surrogate pair, as in file names that are not UTF-8, cannot be encoded; it becomes a JSON escape.
    """
    return _utf8(strictjson.dumps(strictjson.tag_nonfinite(document), indent=1) + "\n")


def _csv(columns: Sequence[str], rows: Any) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return _utf8(text.getvalue())


def _cell(value: Any) -> str:
    """Return a cell as pandas and spreadsheets read it: empty for None; NaN and Infinity by name."""
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
    rb"==> (?P<trial>subject|mutant [a-z0-9-]{1,80}) (?P<stream>log|stdout|stderr): (?P<size>[0-9]{1,18}) bytes, "
    rb"sha256 (?P<sha256>[0-9a-f]{64}); (?P<kept>[0-9]{1,18}) follow"
    rb"(?P<quoted>, quoted)?\n"
)
_QUOTED = b"| "
_LINE_START = re.compile(rb"\A(?=.)|(?<=[\r\n])(?=.)", re.DOTALL)  # a carriage return can hide the line that it ends
_QUOTED_START = re.compile(rb"(?:\A|(?<=[\r\n]))\| ")


class TrialLogError(ValueError):
    """A file is not a log of trials. The text states the position in bytes."""


@dataclass(frozen=True)
class Stream:
    """One stream of one trial."""

    text: str
    """The output. If it was shortened: head and tail, with a line between them that states so."""
    size: int
    """Bytes that the trial wrote."""
    sha256: str
    """The digest of every byte that the trial wrote."""

    @property
    def is_whole(self) -> bool:
        """Whether the text shows no mask, no cut and no bytes outside UTF-8. Then it has the stated size and digest."""
        return not any(sign in self.text for sign in (MASK, CUT, NUL, "\N{REPLACEMENT CHARACTER}", "\\ud"))


def trial_of(mutant: str) -> str:
    """Return the name of a mutant's trial in the log."""
    return f"mutant {mutant}"


def sections(trial: str, result: TrialResult, limit: int) -> Iterator[bytes]:
    """Yield the sections of one trial.

    Args:
        trial: SUBJECT, or the result of `trial_of`.
        limit: bytes of each stream that are kept.

    Raises:
        ValueError: the log does not say what the trial did.
    """
    if not result.log.size:
        raise ValueError(f"the log of the {trial} is empty")
    for stream, log in (("log", result.log), ("stdout", result.stdout), ("stderr", result.stderr)):
        if log.size:
            content = _shortened(log.text.encode("utf-8", errors="backslashreplace"), limit)
            quoted = ""
            if stream != "log":
                content, quoted = _LINE_START.sub(_QUOTED, content), ", quoted"
            heading = f"==> {trial} {stream}: {log.size} bytes, sha256 {log.digest}; {len(content)} follow{quoted}\n"
            yield heading.encode("ascii") + content + b"\n"


def parse_log(content: bytes) -> Mapping[tuple[str, str], Stream]:
    """Return the streams, by trial and name of the stream.

    Raises:
        TrialLogError: `sections` would not have written this.
    """
    streams: dict[tuple[str, str], Stream] = {}
    position = 0
    while position < len(content):
        heading = _HEADING.match(content, position)
        if heading is None:
            raise TrialLogError(f"has no heading at byte {position}")
        start, size = heading.end(), int(heading["kept"])
        position = start + size + 1
        if content[position - 1 : position] != b"\n":
            raise TrialLogError(f"does not have the {size} bytes that its heading at byte {heading.start()} announces")
        key = (heading["trial"].decode("ascii"), heading["stream"].decode("ascii"))
        if key in streams:
            raise TrialLogError(f"has {' '.join(key)} twice")
        body = content[start : start + size]
        if heading["quoted"]:
            body = _QUOTED_START.sub(b"", body)
        text = body.decode("utf-8", errors="backslashreplace")
        streams[key] = Stream(text, int(heading["size"]), heading["sha256"].decode("ascii"))
    return streams


def _shortened(content: bytes, limit: int) -> bytes:
    """Shorten a log to its head and a tail of three times that length, with a line between them that states so."""
    if len(content) <= limit:
        return content
    head = content[: limit // 4].decode("utf-8", errors="ignore").encode("utf-8")
    tail = content[-(limit - limit // 4) :].decode("utf-8", errors="ignore").encode("utf-8")
    return head + f"\n[… {len(content) - len(head) - len(tail)} {CUT} here …]\n".encode() + tail
