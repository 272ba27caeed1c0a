"""Known values of secrets: their forms in a log, the ways to split them, and texts that stay readable."""

from __future__ import annotations

import base64
import html
import json
import random
import re
import time
import unicodedata
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from harness.base.redaction import MASK, Redactor
from harness.execution.logs import BoundedLog

NORMAL_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
FORMS: dict[str, Callable[[str], bytes]] = {
    "as it is": str.encode,
    "base64": lambda value: base64.b64encode(value.encode()),
    "base64 after one": lambda value: base64.b64encode(b"\0" + value.encode() + b"ab"),
    "base64 after two": lambda value: base64.b64encode(b"\xff\0" + value.encode() + b"a"),
    "base64 of a header": lambda value: base64.urlsafe_b64encode(f"user:{value}".encode()),
    "base64 of UTF-16": lambda value: base64.b64encode(value.encode("utf-16")),
    "base64 in lines": lambda value: base64.encodebytes(b"0123456789" * 9 + value.encode()),
    "base64 in a URL": lambda value: urllib.parse.quote(base64.b64encode(value.encode()), safe="").encode(),
    "base32": lambda value: base64.b32encode(value.encode()),
    "base32 after some": lambda value: base64.b32encode(b"abc" + value.encode() + b"ab"),
    "octal": lambda value: "".join(f"\\{byte:03o}" for byte in value.encode()).encode(),
    "hex, listed": lambda value: ", ".join(f"0x{byte:02x}" for byte in value.encode()).encode(),
    "hex": lambda value: value.encode().hex().encode(),
    "HEX": lambda value: value.encode().hex().upper().encode(),
    "hex of UTF-16": lambda value: value.encode("utf-16-be").hex().encode(),
    "hex, spaced": lambda value: value.encode().hex(" ", 2).encode(),
    "hex, colons": lambda value: value.encode().hex(":").encode(),
    "URL": lambda value: urllib.parse.quote(value).encode(),
    "URL form": lambda value: urllib.parse.quote_plus(value).encode(),
    "URL, each byte": lambda value: "".join(f"%{byte:02x}" for byte in value.encode()).encode(),
    "URL in a URL": lambda value: urllib.parse.quote(urllib.parse.quote(value, safe="")).encode(),
    "UTF-16": lambda value: value.encode("utf-16"),
    "UTF-16, big endian": lambda value: value.encode("utf-16-be"),
    "JSON": lambda value: json.dumps(value).encode(),
    "JSON, each character": lambda value: "".join(
        f"\\u{unit:04x}" for unit in memoryview(value.encode("utf-16-le")).cast("H")
    ).encode(),
    "JSON in JSON": lambda value: json.dumps(json.dumps(value)).encode(),
    "repr": lambda value: repr(value).encode(),
    "repr of bytes": lambda value: repr(value.encode()).encode(),
    "ascii": lambda value: ascii(value).encode(),
    "HTML": lambda value: html.escape(value).encode(),
}
SPLITS = (b"\n", b"\r\n", b"\x1b[31m", b"\x1b[0;1m\x1b[K", b"\x08", b"\n\x1b[2K")

secrets = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=12, max_size=40)


def seal(redactor: Redactor, chunks: list[bytes]) -> str:
    """The text that a bundle has of a stream that arrived in these chunks."""
    log = BoundedLog(400, 800)
    for chunk in chunks:
        log.feed(chunk)
    return log.close(redactor).text


def visible(text: str) -> str:
    """The text without the characters that split it."""
    return re.sub("\x1b\\[[0-9;]*[A-Za-z]|[\r\n\x08]", "", text)


@given(st.data(), secrets)
def test_no_form_of_a_secret_is_sealed(data: st.DataObject, secret: str) -> None:
    """A secret is masked even if text splits it, at any place of a long stream and over any writes."""
    name = data.draw(st.sampled_from(sorted(FORMS)))
    # A log in which UTF-16 is read as UTF-8 has signs of replacement for all but ASCII.
    assume(not name.startswith("UTF-16") or sum(map(str.isascii, secret)) >= 8)
    form = FORMS[name](secret)
    places = (
        {}
        if "UTF-16" in name
        else data.draw(st.dictionaries(st.integers(1, len(form) - 1), st.sampled_from(SPLITS), max_size=4))
    )
    split = b"".join(
        # not within a character of UTF-8, which would no longer be one
        (b"" if byte & 0xC0 == 0x80 else places.get(place, b"")) + bytes([byte])
        for place, byte in enumerate(form)
    )
    before, after = (data.draw(st.integers(0, 90)) * b"step 1 loss 4.1\n" for _ in range(2))
    stream = before + b"value: " + split + b" end\n" + after
    writes = data.draw(st.integers(1, len(stream)))
    text = seal(
        Redactor({"A_TOKEN": secret, "B_TOKEN": "another secret"}),
        [stream[at : at + writes] for at in range(0, len(stream), writes)],
    )
    whole = form.decode(errors="replace").replace("\0", "\N{SYMBOL FOR NULL}").strip()
    assert visible(whole) not in visible(text)
    assert secret not in visible(text)
    assert MASK in text or "left out" in text


SECRET = "".join(random.Random(0).choices("ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789", k=24))
REDACTOR = Redactor({"DEPLOY_TOKEN": SECRET})


@pytest.mark.parametrize("name", FORMS)
def test_only_the_secret_is_masked(name: str) -> None:
    """The words around the secret stay."""
    text = FORMS[name](SECRET).decode(errors="replace")
    masked = REDACTOR.mask(f"the value {text} was read")
    assert masked.startswith("the value ")
    assert masked.endswith(" was read")
    assert masked.count(MASK) == 1


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_secret_across_the_cut_of_a_log(cut: int) -> None:
    """If a log is cut where a line break splits a secret, neither half of the secret stays."""
    half = f"{SECRET[:12]}\n{SECRET[12:]}\n".encode()
    stream = b"." * (350 + cut) + b"\n" + half + b"-\n" * 2000 + half + b"." * (750 + cut) + b"\n"
    text = seal(REDACTOR, [stream])
    assert SECRET[:12] not in text
    assert SECRET[12:] not in text
    assert "left out" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("seven()", "seven() and c2V2ZW4oKQ== and 736576656e2829"),  # too short to be a secret
        ("12345678", "1234 5678, 1234567, 87654321, [31, 32, 33, 34, 35, 36, 37, 38]"),
        ("\N{CJK UNIFIED IDEOGRAPH-5BC6}" * 8, "????????? \N{REPLACEMENT CHARACTER}" * 9),
        ("\n" * 9, "a\n\nb"),
        (SECRET, "loss 4.1\nstep 2 \\n %20 \\u0041 &amp; 0x41 \x1b[31mred\x1b[0m C:\\new"),
    ],
)
def test_what_is_no_secret_stays(value: str, text: str) -> None:
    assert Redactor({"A_TOKEN": value}).mask(text) == text


@given(st.text(), st.text(min_size=8, max_size=20))
@example("\\n" * 9, "\\n\\n\\n\\n")
@example("\ud800" * 9, "\ud800" * 9)
def test_any_text_and_any_value(text: str, value: str) -> None:
    """Masking accepts any text and any value."""
    assert value not in Redactor({"A_TOKEN": value}).mask(text + value).replace(MASK, "\0")


@pytest.mark.parametrize("piece", ["\\", "%4", "%41", "\\u00", "&#", "\x1b[", "\x1b[0", "a\n", "0x", "a" * 4000])
def test_the_time_is_linear(piece: str) -> None:
    """A long secret of one letter and a text full of escapes both take little time."""
    redactor = Redactor({"A_TOKEN": "a" * 4000 + "b"})
    text = piece * ((64 << 10) // len(piece))
    before = time.process_time()
    redactor.mask(text)
    assert time.process_time() - before < 2


@pytest.mark.parametrize("read", NORMAL_FORMS)
@pytest.mark.parametrize("kept", NORMAL_FORMS)
def test_normal_forms_of_unicode(kept: str, read: str) -> None:
    """A name of a file or a log may compose the letters of a secret in another way than its variable does."""
    value = "p\u00e4ssw\u00f6rd-\u00e9\u00e0\u212b-\uac00"
    redactor = Redactor({"DEPLOY_TOKEN": unicodedata.normalize(kept, value)})
    text = unicodedata.normalize(read, value)
    assert redactor.mask(f"a {text} b") == f"a {MASK} b"
    assert redactor.mask(base64.b64encode(text.encode()).decode()).startswith(MASK)
