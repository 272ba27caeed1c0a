"""TOML files that describe trainers, and invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.tools.trainer.trainer_file import Exit, TrainerError, load, unknown
from tests.tools.trainer.trainers import APR, BIGRAMS, BIGRAMS_FILE

GIVEN = {"output": "/out", "seed": 3, "device": "cpu", "here": "/here", "python": "python3"}
CLAIM = {"steps": 50, "batch": 8, "learning_rate": 0.01, "temperature": 4.0, "alpha": 0.3}


def test_a_command_line() -> None:
    """A parameter that is null or missing removes its words."""
    values = {**GIVEN, **CLAIM, "teacher": "t.pt", "student": "s.pt", "checkpoint_every": None}
    words = BIGRAMS.words(values)
    assert words[:4] == ["python3", "/here/train_bigrams.py", "distill", "--teacher"]
    assert "--every" not in words
    assert "--fail" not in words
    assert BIGRAMS.words({**values, "checkpoint_every": 5})[-2:] == ["--every", "5"]


def test_a_placeholder_that_nobody_fills() -> None:
    """A placeholder without a value is refused with the remedy. A misspelt one is refused with a suggestion."""
    said = unknown(BIGRAMS, {"steps", "batch", "learning_rate"})
    assert (
        "the claim has no parameter 'checkpoint_every'; give it a default under [parameters] (checkpoint_every = "
        in said
    )
    assert said.endswith("or name one of the claim's: batch, learning_rate, steps")
    assert unknown(BIGRAMS, {"step", "batch", "learning_rate"}).endswith("'steps'; did you mean {step}?")


def test_apr_distill() -> None:
    """The command has the flags and variables of SPEC-DISTILL-001's dispatch."""
    values = {**GIVEN, **CLAIM, "device": "cuda", "teacher": "t.apr", "student": "s.apr", "checkpoint_every": 5000}
    assert APR.words(values) == [
        *["apr", "distill", "t.apr", "--student", "s.apr", "--epochs", "2"],
        *["--temperature", "4.0", "--alpha", "0.3", "--backend", "cuda", "--output", "/out/model.apr"],
    ]
    assert APR.variables(values) == {"APR_DISTILL_LOG_EVERY": "1", "APR_DISTILL_CHECKPOINT_EVERY": "5000"}
    assert APR.variables({**values, "max_steps": "{steps}"})["APR_DISTILL_MAX_STEPS"] == "50"
    assert APR.meaning(2) is Exit.USAGE
    assert APR.meaning(1) is Exit.FAILED


def test_a_value_is_not_read_as_a_placeholder() -> None:
    """Braces in a user's value stay braces."""
    assert BIGRAMS.filled("{output}/x", {"output": "/a{b}c"}) == "/a{b}c/x"


def test_a_word_without_a_value_is_refused() -> None:
    """The message names the option that sets it."""
    with pytest.raises(TrainerError, match=r"-P teacher="):
        BIGRAMS.words({**GIVEN, **CLAIM, "student": "s.pt"})


REFUSED: list[tuple[str, str, str]] = [
    ("[files]", "[file]", "/file"),
    ('name = "train_bigrams.py"', "", "/"),
    ('event = "summary"', 'event = "sumary"', "/log/line/1"),
    (r"(?P<step>\d+)/\d+ kd", r"(?P<stp>\d+)/\d+ kd", "/log/line/0"),
    (r"(?P<device>\w+)", r"(?P<gpu>\w+)", "/log/line/2"),
    (r"kd=(?P<loss>\S+)", r"kd=(?P<loss>(\S+)", "/log/line/0/pattern"),
    (r"'CUDA_ERROR_OUT_OF_MEMORY'", r"'(CUDA)\1'", "/log/line/4/pattern"),
    ("'(?P<step>\\d+)\\.pt$'", "'(\\d+)\\.pt$'", "/files/step"),
    ('"{steps}"', '"{steps"', "/command/line"),
    ("usage = [2]", "usage = [2]\nmachine = [2]", "/command/exit/machine"),
    ("usage = [2]", "usage = [0]", "/command/exit/usage/0"),
    ("padded = ", "dir = ", "/parameters/dir"),
    ("[command.exit]", '[command.environment]\nHF_TOKEN = "x"\n[command.exit]', "/command"),
    ('"--batch"', '"ghp_abcdefghijklmnopqrstuvwxyz0123"', "/command/line"),
]


@pytest.mark.parametrize(("there", "here", "place"), REFUSED)
def test_a_file_that_describes_no_trainer_is_refused(
    tmp_path: Path, there: str, here: str, place: str, snapshot: Any
) -> None:
    """The refusal has the place. A snapshot has the message."""
    text = BIGRAMS_FILE.read_text()
    assert there in text
    path = tmp_path / "x.toml"
    path.write_text(text.replace(there, here, 1))
    with pytest.raises(TrainerError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: {place}")
    assert str(caught.value).removeprefix(f"{path}: ") == snapshot


@pytest.mark.parametrize(
    "make",
    [
        lambda path: None,
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.write_bytes(b"[parameters"),
    ],
)
def test_what_is_no_file_is_refused(tmp_path: Path, make: Any) -> None:
    """A missing file, a folder, a file that is not text, and one that is not TOML are refused."""
    make(tmp_path / "x.toml")
    with pytest.raises(TrainerError):
        load(tmp_path / "x.toml")
