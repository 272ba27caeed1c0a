"""The output of trainers, in the formats of real ones and in any other."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from harness.tools.trainer.kernel_summary import KernelTelling
from harness.tools.trainer.linear_regex import PatternRefused, compiled
from harness.tools.trainer.output_events import LONGEST_LINE, Event, EventKind, LineRule, LogReader, number
from harness.tools.trainer.output_summary import Telling, TooManySteps
from tests.tools.trainer.trainers import APR

RULES = APR.lines


def events(*chunks: bytes, rules: Any = RULES) -> list[Event]:
    """All events of a complete output."""
    reader = LogReader(rules)
    found = [event for chunk in chunks for event in reader.feed(chunk)]
    return found + list(reader.end())


def values(*chunks: bytes) -> list[tuple[str, dict[str, str]]]:
    """The events as kind and values."""
    return [(str(event.kind), dict(event.values)) for event in events(*chunks)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"initial_loss = 7.6746", [("summary", {"initial_loss": "7.6746"})]),
        (b"  final_loss   = 7.2036", [("summary", {"final_loss": "7.2036"})]),
        (b"62 steps, 122.7s", [("summary", {"steps": "62", "seconds": "122.7"})]),
        (
            b"[CUDA] Pre-warmed 27 forward kernels (JIT compiled before block upload)",
            [("ran", {"device": "CUDA"}), ("warmed", {"kernels": "27"})],
        ),
        (b"[CUDA] Kernel cache initialized for target: sm_121", [("ran", {"target": "sm_121"})]),
        (
            "[CUDA] Failed to pre-warm AdamW kernels: no context — using CPU".encode(),
            [("ran", {"device": "CPU"})],
        ),
        (
            b'Block 3 upload failed: KernelError("MemoryAllocation(\\"CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY',
            [("out_of_memory", {}), ("failed_upload", {"block": "3"})],
        ),
        (b"PTX JIT compilation was disabled", [("refused_load", {})]),
        (b"Error: CUDA_ERROR_OUT_OF_MEMORY at Block 0 upload", [("out_of_memory", {})]),
        (b"\x1b[1;32mStep 50/50000\x1b[0m  loss=\x1b[33m9.1395\x1b[0m", [("step", {"step": "50", "loss": "9.1395"})]),
        (b"\x1b]0;training\x07step: 1,000 loss: nan", [("step", {"step": "1,000", "loss": "nan"})]),
        (b"step 7 loss -nan", [("step", {"step": "7", "loss": "-nan"})]),  # as C's printf prints it
        (b"step 7 loss = -1.5e-3, lr 2", [("step", {"step": "7", "loss": "-1.5e-3"})]),
        (b"final_loss = -NaN", [("summary", {"final_loss": "-NaN"})]),
        (b"initial_loss = inf", [("summary", {"initial_loss": "inf"})]),
        (b"step 7: loss explodes", []),
        (b"step 7: the loss nano-batch", []),
    ],
)
def test_lines_of_apr_distill(line: bytes, expected: list[tuple[str, dict[str, str]]]) -> None:
    """Each line gives the event and its values, with and without colours."""
    assert values(line + b"\n") == expected


def test_every_state_of_a_progress_bar_is_a_line() -> None:
    """Carriage returns separate the states."""
    bar = b"".join(b"\r%3d%% Step %d/3 loss=%d.5" % (33 * step, step, 9 - step) for step in (1, 2, 3))
    assert [event.values["loss"] for event in events(bar)] == ["8.5", "7.5", "6.5"]


def test_half_a_last_line_is_not_believed() -> None:
    """Until the output is complete, final_loss = 7.2 may be half of 7.2036."""
    reader = LogReader(RULES)
    assert [event.values for event in reader.feed(b"initial_loss = 7.6746\nfinal_loss   = 7.2")] == [
        {"initial_loss": "7.6746"}
    ]
    assert reader.unfinished == "final_loss   = 7.2"


def test_a_line_that_another_stream_breaks_is_lost_and_nothing_else() -> None:
    """Two streams in one file break each other's lines. A partial number is not taken for a whole one."""
    assert values(b"Step 1/3 loss=[CUDA] Pre-warmed 27 forward kernels\n9.1\nStep 2/3 loss=8.0\n") == [
        ("step", {"step": "2", "loss": "8.0"})
    ]


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=6))
def test_where_chunks_are_cut_does_not_matter(text: bytes, cuts: list[int]) -> None:
    """Any bytes, cut anywhere, give the same events and raise nothing."""
    places = [0, *sorted(cuts), len(text)]
    chunks = [text[start:end] for start, end in itertools.pairwise(places)]
    assert values(*chunks) == values(text)


LINES = st.sampled_from(
    [
        b"Step 1/9 loss=5.5",
        b"initial_loss = 7.6746",
        b"\x1b[32m",
        b"\r",
        b"\n",
        b"62 steps, 1s",
        b'{"a": 1}',
        b"\xff\x00",
    ]
)


@given(st.lists(LINES | st.binary(max_size=20), max_size=30), st.lists(st.integers(0, 400), max_size=6))
def test_where_chunks_of_logs_are_cut_does_not_matter(pieces: list[bytes], cuts: list[int]) -> None:
    """The same holds for texts that look more like logs."""
    test_where_chunks_are_cut_does_not_matter.hypothesis.inner_test(b"".join(pieces), cuts)  # type: ignore[attr-defined]


def test_a_line_without_end_takes_no_memory() -> None:
    """Only the beginning of such a line is read; the lines after it are whole."""
    reader = LogReader(RULES)
    for _ in range(100):
        assert list(reader.feed(b"x" * LONGEST_LINE)) == []
    assert len(reader.unfinished) == LONGEST_LINE
    assert [event.kind for event in reader.feed(b"\nStep 1/2 loss=1.0\n")] == [EventKind.STEP]


def test_json_lines() -> None:
    """Values have dotted paths. A line that lacks one, or is not JSON, is no event."""
    rule = LineRule(EventKind.STEP, keys={"step": "global_step", "loss": "train.loss"})
    lines = [
        b'{"global_step": 3, "train": {"loss": 2.5}}',
        b'{"global_step": 4}',
        b"{",
        b'{"global_step": 5, "train": 1}',
    ]
    found = events(b"\n".join(lines), rules=[rule])
    assert [(event.whole("step"), event.number("loss")) for event in found] == [(3, 2.5)]


def test_a_loss_of_null_is_told() -> None:
    """Some writers write NaN as null, so a loss of null is NaN. A step of null is no step."""
    keys = {"step": "step", "loss": "loss"}
    rules = [LineRule(EventKind.STEP, keys=keys), LineRule(EventKind.SUMMARY, keys={"final_loss": "end"})]
    for line in (b'{"step": 2, "loss": null}', b'{"step": 2, "loss": 8, "end": null}'):
        telling = Telling(lambda step, numbers: None)
        for event in events(b'{"step": 1, "loss": 9}\n{"step": null, "loss": 3}\n' + line, rules=rules):
            telling.hear(event)
        telling.end()
        assert telling.steps == 2
        assert "'null'" in telling.unseen


@pytest.mark.parametrize("expression", [r"(a)\1", r"(?=a)b", r"(?<!a)b", "(", "(((a{1000}){1000}){1000})"])
def test_expressions_that_could_run_away_are_refused(expression: str) -> None:
    """Backreferences, look-around, and expressions that are too large are refused."""
    with pytest.raises(PatternRefused):
        compiled(expression)


def test_an_expression_that_runs_away_elsewhere_does_not() -> None:
    """Python's own engine would not end in any useful time."""
    rule = LineRule(EventKind.OUT_OF_MEMORY, compiled(r"^(a+)+$"))
    assert events(b"a" * (LONGEST_LINE - 1) + b"b\n", rules=[rule]) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [("7.6746", 7.6746), ("1e-3", 1e-3), ("50,000", 50000.0), ("1_000", 1000.0), ("-inf", -math.inf), (".5", 0.5)]
    + [(text, None) for text in ("", "7.2.3", "1,00", "0x10", "1e", "--1", "9" * 1000)],
)
def test_numbers(text: str, value: float | None) -> None:
    """The printed numbers are read. Other texts are no numbers."""
    assert number(text) == value


@given(st.floats(allow_nan=False))
def test_a_printed_number_is_read_back(value: float) -> None:
    """Every bit of the number is kept."""
    assert number(repr(value)) == value


def told(*lines: bytes, first: int = 1) -> tuple[Telling, list[tuple[int, dict[str, float]]]]:
    """The summary of an output, and the reported steps."""
    steps: list[tuple[int, dict[str, float]]] = []
    telling = Telling(lambda step, numbers: steps.append((step, dict(numbers))), first=first)
    for event in events(b"".join(line + b"\n" for line in lines)):
        telling.hear(event)
    telling.end()
    return telling, steps


def test_a_run_that_tells_every_step() -> None:
    """A repeated step is the same step, and its last values count."""
    telling, steps = told(b"step 1 loss=9", b"step 2 loss=8", b"step 2 loss=7.5", b"step 3 loss=7", b"3 steps, 1.0s")
    assert steps == [(1, {"loss": 9.0}), (2, {"loss": 7.5}), (3, {"loss": 7.0})]
    assert (telling.made, telling.losses, telling.unseen) == (3, [9.0, 7.5, 7.0], "")


def test_steps_that_begin_at_zero() -> None:
    """Steps from 0 are counted from 1."""
    telling, steps = told(b"step 0 loss=9", b"step 1 loss=8", first=0)
    assert ([step for step, _ in steps], telling.made, telling.unseen) == ([1, 2], 2, "")


@pytest.mark.parametrize(
    ("lines", "made", "named"),
    [
        ([b"step 50 loss=9", b"step 100 loss=8"], 100, ["50"]),
        ([b"step 1 loss=9", b"step 1 loss=9", b"step 3 loss=8"], 3, ["1", "3"]),
        ([b"step 1 loss=9", b"62 steps, 122.7s"], 62, ["1", "62"]),
        ([b"62 steps, 122.7s"], 62, []),
        ([b"nothing"], None, []),
    ],
)
def test_steps_that_were_not_all_told(
    lines: list[bytes], made: int | None, named: list[str], snapshot: SnapshotAssertion
) -> None:
    """The number of steps is the run's own, and the summary says why the steps could not be counted."""
    telling, _ = told(*lines)
    assert telling.made == made
    assert re.findall(r"\d+", telling.unseen) == named
    assert telling.unseen == snapshot


@pytest.mark.parametrize(
    ("line", "losses"),
    [
        (b"final_loss = NaN", [9.0, math.nan]),
        (b"initial_loss = -inf", [-math.inf, 8.0]),
        (b"final_loss = 7", [9.0, 8.0]),
    ],
)
def test_a_loss_that_only_the_summary_calls_not_finite(line: bytes, losses: list[float]) -> None:
    """The summary's NaN counts, wherever it is, although the lines of the steps are finite."""
    steps = [b"step 1 loss 9", b"step 2 loss 8"]
    for lines in ([line, *steps], [*steps, line]):
        telling, _ = told(*lines)
        assert [repr(loss) for loss in telling.losses] == [repr(loss) for loss in losses]


@pytest.mark.parametrize(
    ("rule", "line", "why"),
    [
        (LineRule(EventKind.STEP, compiled(r"at (?P<step>\S+) (?P<loss>\S+)")), b"at 1 -", "has loss '-', which"),
        (LineRule(EventKind.STEP, compiled(r"at (?P<step>\S+) (?P<loss>\S+)")), b"at 1.5 3", "has step '1.5'"),
        (
            LineRule(EventKind.SUMMARY, compiled(r"end (?P<final_loss>\S+)")),
            b"end 7.2.",
            "final_loss '7.2.', which is",
        ),
        (LineRule(EventKind.SUMMARY, compiled(r"made (?P<steps>\S+)")), b"made " + b"9" * 90, "steps '9999"),
    ],
)
def test_a_value_that_is_no_number_is_told(rule: LineRule, line: bytes, why: str) -> None:
    """A loss that the trainer's pattern cuts must not disappear silently."""
    telling = Telling(lambda step, numbers: None)
    for event in events(b"step 1 loss 9\n" + line, rules=[*RULES, rule]):
        telling.hear(event)
    telling.end()
    assert why in telling.unseen
    assert len(telling.unseen) < 200


def test_a_flood_of_steps_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """More steps than the limit are a fault of the subject."""
    monkeypatch.setattr("harness.tools.trainer.output_summary.MOST_STEPS", 3)
    with pytest.raises(TooManySteps):
        told(*(b"step %d loss=1" % step for step in range(1, 6)))


def apr(*lines: bytes) -> KernelTelling:
    """The kernels in a log of apr."""
    telling = Telling(lambda step, values: None)
    for event in LogReader(APR.lines).feed(b"\n".join([*lines, b""])):
        telling.hear(event)
    return telling.kernels


def test_kernels_that_are_compiled_before_and_after_the_last_part_of_a_warm_up() -> None:
    """Forward and backward kernels are warmed up one after the other. Kernels after that are compiled in a step."""
    kernels = apr(
        b"[FWD-CACHE] Compiling 'silu_forward' (ptx_len=2311)", b"[FWD-CACHE] OK 'silu_forward'",
        b"[CUDA] Pre-warmed 27 forward kernels (JIT compiled before block upload)",
        b"[BWD-CACHE] Compiling 'gemm_backward_a' (ptx_len=1)",
        "✓ Backward kernels pre-warmed (silu_backward, rms_norm_backward, etc.)".encode(),
        b"\x1b[33m[FWD-CACHE] Compiling 'batched_rope_fwd_14_64_256' (ptx_len=4096)\x1b[0m",
    )  # fmt: skip
    assert (kernels.before, kernels.after) == (["silu_forward", "gemm_backward_a"], ["batched_rope_fwd_14_64_256"])
    assert (kernels.warmed, kernels.compilations) == (27, 3)


def test_a_log_that_says_nothing_of_compilations_says_not_that_there_were_none() -> None:
    assert apr(b"[CUDA] Pre-warmed 27 forward kernels").compilations is None


def test_a_flood_of_compilations_is_counted_and_not_kept() -> None:
    kernels = apr(*(b"[FWD-CACHE] Compiling '%d' (ptx_len=1)" % number for number in range(10_500)))
    assert (kernels.compilations, len(kernels.before) + len(kernels.after)) == (10_500, 10_000)
