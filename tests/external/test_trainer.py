"""Files that describe trainers, and files that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.external.trainer import Exit, TrainerError, load, unknown
from tests.external.trainers import APR, BIGRAMS, BIGRAMS_FILE

GIVEN = {"output": "/out", "seed": 3, "device": "cpu", "here": "/here", "python": "python3"}
CLAIM = {"steps": 50, "batch": 8, "learning_rate": 0.01, "temperature": 4.0, "alpha": 0.3}


def test_a_command_line() -> None:
    """Null and absent parameters take their words with them."""
    values = {**GIVEN, **CLAIM, "teacher": "t.pt", "student": "s.pt", "checkpoint_every": None}
    words = BIGRAMS.words(values)
    assert words[:4] == ["python3", "/here/train_bigrams.py", "distill", "--teacher"]
    assert "--every" not in words
    assert "--fail" not in words
    assert BIGRAMS.words({**values, "checkpoint_every": 5})[-2:] == ["--every", "5"]


def test_a_placeholder_that_nobody_fills() -> None:
    """Is refused with what to do; a typing mistake with what was meant."""
    said = unknown(BIGRAMS, {"steps", "batch", "learning_rate"})
    assert (
        "the claim has no parameter 'checkpoint_every'; give it a default under [parameters] (checkpoint_every = "
        in said
    )
    assert said.endswith("or name one of the claim's: batch, learning_rate, steps")
    assert unknown(BIGRAMS, {"step", "batch", "learning_rate"}).endswith("'steps'; did you mean {step}?")


def test_apr_distill() -> None:
    """The flags and variables that SPEC-DISTILL-001's dispatch uses."""
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
    """Braces in what a user set are braces."""
    assert BIGRAMS.filled("{output}/x", {"output": "/a{b}c"}) == "/a{b}c/x"


def test_a_word_without_a_value_is_refused() -> None:
    """With the option that sets it."""
    with pytest.raises(TrainerError, match=r"\{teacher\} has no value; set it with -P teacher="):
        BIGRAMS.words({**GIVEN, **CLAIM, "student": "s.pt"})


REFUSED: list[tuple[str, str, str]] = [
    ("[files]", "[file]", "unknown key 'file' (did you mean 'files'?)"),
    ('name = "train_bigrams.py"', "", "the key 'name' is missing"),
    ('event = "summary"', 'event = "sumary"', "/log/line/1"),
    (r"(?P<step>\d+)/\d+ kd", r"(?P<stp>\d+)/\d+ kd", "a step needs 'step'"),
    (r"(?P<device>\w+)", r"(?P<gpu>\w+)", "a ran has no 'gpu'; it has backend, device, dtype"),
    (r"kd=(?P<loss>\S+)", r"kd=(?P<loss>(\S+)", "/log/line/0/pattern"),
    (r"'CUDA_ERROR_OUT_OF_MEMORY'", r"'(CUDA)\1'", "no linear-time regular expression"),
    ("'(?P<step>\\d+)\\.pt$'", "'(\\d+)\\.pt$'", "has no group 'step'"),
    ('"{steps}"', '"{steps"', "a brace too many"),
    ("usage = [2]", "usage = [2]\nmachine = [2]", "means"),
    ("usage = [2]", "usage = [0]", "/command/exit/usage/0"),
    ("padded = ", "dir = ", "has a meaning of its own"),
    ("[command.exit]", '[command.environment]\nHF_TOKEN = "x"\n[command.exit]', "looks like a secret"),
    ('"--batch"', '"ghp_abcdefghijklmnopqrstuvwxyz0123"', "looks like a secret"),
    ("[parameters]", "[parameters", "no TOML"),
]


@pytest.mark.parametrize(("there", "here", "said"), REFUSED, ids=[row[2] for row in REFUSED])
def test_a_file_that_describes_no_trainer_is_refused(tmp_path: Path, there: str, here: str, said: str) -> None:
    """With the place and what to do."""
    text = BIGRAMS_FILE.read_text()
    assert there in text
    path = tmp_path / "x.toml"
    path.write_text(text.replace(there, here, 1))
    with pytest.raises(TrainerError) as caught:
        load(path)
    assert said in str(caught.value)


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_bytes(b"\xff")])
def test_what_is_no_file_is_refused(tmp_path: Path, make: Any) -> None:
    """Nothing, a folder, and what is no text."""
    make(tmp_path / "x.toml")
    with pytest.raises(TrainerError):
        load(tmp_path / "x.toml")
