"""The manifest: one spelling for one set of files, and `sha256sum -c` reads it in the same way."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from harness.evidence.manifest import ManifestError, check_name, parse, render

DIGEST = hashlib.sha256(b"").hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()


def test_lines_are_sorted_by_name() -> None:
    """A line has digest, two spaces and name, as sha256sum writes it."""
    assert render({"b": DIGEST, "a/c": OTHER}) == f"{OTHER}  a/c\n{DIGEST}  b\n".encode()


names = st.text(min_size=1, max_size=20)


@given(st.dictionaries(names, st.binary(max_size=4), min_size=1, max_size=5))
def test_what_is_written_is_read_back(contents: dict[str, bytes]) -> None:
    """Every manifest that can be written is read back equal."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    try:
        written = render(digests)
    except ManifestError:
        return
    assert parse(written) == digests


@given(st.binary(max_size=200))
def test_only_what_render_writes_is_read(content: bytes) -> None:
    """Every text that parses is the only manifest of its digests."""
    try:
        digests = parse(content)
    except ManifestError:
        return
    assert render(digests) == content


@given(st.dictionaries(st.sampled_from("abcdef"), st.just(DIGEST), min_size=1), st.data())
def test_a_changed_byte_is_another_manifest_or_none(digests: dict[str, str], data: st.DataObject) -> None:
    """A flipped bit changes the parsed manifest, or the text is refused."""
    written = bytearray(render(digests))
    place = data.draw(st.integers(0, len(written) - 1))
    written[place] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(ManifestError):
        assert parse(bytes(written)) != digests


@pytest.mark.parametrize(
    "name",
    [
        "", "/etc/passwd", "../up", "a/../b", "./a", "a//b", "a/", "a\\b", "a\nb", "a\rb", "a\0b", "\x1b[2J",
        "a\u2028b", "half\udcff", "MANIFEST.sha256",
        "attestation.intoto.jsonl",
    ],
)  # fmt: skip
def test_names_that_lead_elsewhere_or_need_escaping_are_refused(name: str) -> None:
    """Such a name is refused when it is written and when it is read."""
    with pytest.raises(ManifestError):
        check_name(name)
    with pytest.raises(ManifestError):
        render({name: DIGEST})
    with pytest.raises(ManifestError):
        parse(f"{DIGEST}  {name}\n".encode(errors="surrogateescape"))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(f"{DIGEST}  a", id="no newline"),
        pytest.param(f"{DIGEST} a\n", id="one space"),
        pytest.param(f"{DIGEST} *a\n", id="binary"),
        pytest.param(f"{DIGEST.upper()}  a\n", id="upper case"),
        pytest.param(f"{DIGEST[:-1]}  a\n", id="short digest"),
        pytest.param(f"\ufeff{DIGEST}  a\n", id="byte order mark"),
        pytest.param(f"{DIGEST}  a\r\n", id="carriage return"),
        pytest.param(f"{DIGEST}  a\n\n", id="empty line"),
        pytest.param(f"# comment\n{DIGEST}  a\n", id="comment"),
        pytest.param(f"{DIGEST}  b\n{DIGEST}  a\n", id="not sorted"),
        pytest.param(f"{DIGEST}  a\n{OTHER}  a\n", id="twice"),
    ],
)
def test_reading_tolerates_nothing(text: str, snapshot: SnapshotAssertion) -> None:
    """The refusal names the line."""
    with pytest.raises(ManifestError) as refused:
        parse(text.encode())
    assert str(refused.value) == snapshot


def test_bytes_that_are_no_utf8_are_refused() -> None:
    """The refusal names the byte."""
    with pytest.raises(ManifestError, match="byte 66"):
        parse(DIGEST.encode() + b"  \xff\n")


def test_sha256sum_accepts_names_with_spaces_and_letters_of_any_script(tmp_path: Path) -> None:
    """`sha256sum` itself reads our files."""
    contents = {" leading": b"1", "with  two": b"2", "größe/日本": b"3", "*star": b"4", "#hash": b"5"}
    for name, content in contents.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    (tmp_path / "MANIFEST.sha256").write_bytes(render(digests))
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "MANIFEST.sha256"], cwd=tmp_path, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.count(": OK") == len(contents)
