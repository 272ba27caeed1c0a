"""Bounded logs: head, tail and digest of any stream in any chunks, and no secret cut in half. Step series likewise."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from harness.base.redaction import Redactor
from harness.execution.logs import BoundedLog, Log, Steps, StepSeries

REDACTOR = Redactor({})
SECRET = "hf_" + "Ab1" * 12


def log_of(*chunks: bytes, head: int = 200, tail: int = 600) -> Log:
    """The log of a stream that arrived in these chunks."""
    log = BoundedLog(head, tail)
    for chunk in chunks:
        log.feed(chunk)
    return log.close(REDACTOR)


@given(st.lists(st.binary(max_size=300), max_size=30))
def test_any_stream(chunks: list[bytes]) -> None:
    """Size and digest are those of the whole stream, and the text is bounded, whatever the chunks are."""
    log, whole = log_of(*chunks), b"".join(chunks)
    assert (log.size, log.digest) == (len(whole), sha256(whole).hexdigest())
    assert len(log.text) <= 900
    assert log == log_of(whole)
    log.text.encode()


@given(st.lists(st.text("ab", max_size=12), max_size=60))
def test_a_short_log_is_whole(lines: list[str]) -> None:
    """A log within the limit is kept whole."""
    text = "\n".join(lines)[:800]
    assert log_of(text.encode()).text == text


@given(st.integers(0, 300), st.integers(0, 900), st.integers(1, 100))
def test_a_secret_at_the_cut(before: int, after: int, chunk: int) -> None:
    """No unmasked part of a secret stays, wherever head and tail are cut."""
    whole = f"{'.' * before}\n{SECRET}\n{'.' * 40}\n{'-' * 500}\n{SECRET}\n{'.' * after}\n".encode()
    log = log_of(*(whole[start : start + chunk] for start in range(0, len(whole), chunk)))
    assert "Ab1" not in log.text


def test_a_key_across_the_cut() -> None:
    """The end of a private key is masked, even if its beginning was cut out."""
    key = "\n".join(["-----BEGIN PRIVATE KEY-----", *["QUJD" * 16] * 20, "-----END PRIVATE KEY-----"])
    log = log_of(b"x\n" * 500, f"{key}\nafterwards\n".encode())
    assert "QUJD" not in log.text
    assert "afterwards" in log.text


def test_a_progress_bar_is_not_lost() -> None:
    """A carriage return ends a line too, so the last states of a bar are kept."""
    log = log_of(*(f"\rstep {number}/999".encode() for number in range(1000)))
    assert "step 998/999" in log.text
    assert "bytes left out" in log.text


def test_one_endless_line_is_left_out() -> None:
    """A line without an end has no safe place for a cut, so it is left out."""
    assert log_of(SECRET.encode() * 1000).text.strip().startswith("[… ")


@given(st.integers(min_value=0, max_value=3000), st.integers(min_value=2, max_value=64))
def test_thinning(count: int, most: int) -> None:
    """The rows are the first, every stride-th after it, and the last: at most the limit, plus the last."""
    series = StepSeries(most)
    for step in range(count):
        series.add({"step": step})
    steps = series.close()
    assert steps.count == count
    kept = [row["step"] for row in steps.rows]
    expected = list(range(0, count, steps.stride))
    if count and expected[-1] != count - 1:
        expected.append(count - 1)
    assert kept == expected
    assert len(kept) <= most + 1
    assert steps.stride == 1 or len(kept) >= most // 2


def test_without_steps() -> None:
    assert StepSeries().close() == Steps()
