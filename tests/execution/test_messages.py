"""Messages between the processes of a run arrive unchanged, or are recognised as damaged."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, get_args

import pytest

from harness.authoring.reports import Entered, Logged, Measured, Resolved, Stepped, Unseen, Used, Working
from harness.authoring.setting import Setting
from harness.base.vocabulary import Phase
from harness.contract.patch import Patch
from harness.execution.messages import (
    Ended,
    Exited,
    Import,
    Imports,
    Lost,
    MessageError,
    Read,
    Received,
    Split,
    Splitting,
    Start,
    Started,
    decode,
    encode,
)
from harness.judging.observation import EndingKind

HERE = Path("/here")
START = Start(
    HERE, "toy:falsify", "toy:Toy", Setting({"steps": 3}, "cpu", 0, HERE, HERE), 1, HERE, 0.5, ("loss",), HERE,
    {"A": "b"}, ("/here",), {"tool:around": "/here"}, "tool:process", False, (Patch("toy", "Toy.step", "a", "b"),),
)  # fmt: skip
EVERY: list[Received] = [
    Logged("the steps to check: 1, 5", "steps"),
    Measured({"loss": [1.5, math.inf], "text": "a\nb"}),
    Stepped(3, {"loss": 0.5}),
    Resolved({"device": "cpu"}),
    Unseen({"loss": "no log"}),
    Working(2, "step 3"),
    Entered(Phase.SUBJECT),
    Used(("toy.py",)),
    Import(("toy", "toy.more"), HERE),
    Imports({"toy": "ImportError"}, {"toy.py": "0" * 64}),
    Split("a1b2", ("torch", "torch.nn"), HERE),
    Splitting(7),
    START,
    Started(7),
    Read({"toy.py": "0" * 64}),
    Ended(EndingKind.COMPLETED, "", None, None),
    Ended(EndingKind.SUBJECT_FAULT, "it raised", "a stack", 1 << 30),
    Lost("no process"),
    Exited(code=1),
    Exited(signal="SIGSEGV"),
]


def test_no_message_is_forgotten_here() -> None:
    """Each kind of message has an example here."""
    assert {type(message) for message in EVERY} == set(get_args(Received))


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Received) -> None:
    """A message takes one line, and no content can end that line."""
    assert decode(encode(message)) == message
    assert b"\n" not in encode(message)


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_a_message_cut_short_is_refused(message: Received) -> None:
    """A message is refused, wherever it is cut."""
    text = encode(message)
    for end in range(len(text)):
        with pytest.raises(MessageError):
            decode(text[:end])


DAMAGED: list[Any] = [
    ["Surprise", {}],
    ["Started", {}],
    ["Started", {"pid": "7"}],
    ["Started", {"pid": 7, "more": 1}],
    ["Started", {"pid": 0}],
    ["Exited", {"signal": "SIGNOTHING"}],
    ["Resolved", {"values": {"device": 1}}],
    ["Resolved", {"values": {"colour": "red"}}],
    ["Resolved", {"values": {"steps": 9007199254740993}}],
    ["Stepped", {"step": 9007199254740993, "values": {}}],
    ["Stepped", {"step": 1, "values": {"loss": "low"}}],
    ["Read", {"sources": {"toy.py": "0"}}],
    ["Ended", {"kind": "killed", "reason": "", "traceback": None, "allocator_peak_bytes": None}],
    ["Ended", {"kind": "completed", "reason": "", "traceback": None, "allocator_peak_bytes": -1}],
    ["Measured", {"values": [1]}],
    ["Measured", {"values": {"nonfinite": "NaN"}}],
    ["Stepped", {"step": 1, "values": {"nonfinite": "NaN"}}],
    ["Unseen", {"values": {"nonfinite": "Infinity"}}],
    ["Entered", {"phase": "lunch"}],
    ["Ended", {"kind": "well", "reason": "", "traceback": None, "allocator_peak_bytes": None}],
    ["Lost", {"reason": None}],
    ["Started", 7],
    {"Started": {"pid": 7}},
    7,
    None,
]


@pytest.mark.parametrize("document", DAMAGED, ids=str)
def test_what_is_no_message_is_refused(document: Any) -> None:
    """An unknown name is refused, and so is a missing, superfluous or wrong field."""
    with pytest.raises(MessageError):
        decode(json.dumps(document).encode())


def test_deep_nesting_is_refused() -> None:
    """Deep nesting is refused, because it would exceed the parser's stack."""
    with pytest.raises(MessageError):
        decode(b'["Measured", {"values": ' + b"[" * 100_000)


def test_what_is_no_json_cannot_be_sent() -> None:
    """A measurement must be JSON before it is reported."""
    with pytest.raises(TypeError):
        encode(Measured({"loss": object()}))
