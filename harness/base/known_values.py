"""Finds known secrets in text, also encoded or split.

    known = KnownValues(["correct horse"])
    known.spans("Y29ycmVjdCBob3JzZQ==")     # [(0, 17)]: the base64 characters that encode only the secret

All forms of a secret are derived once. A text is searched as it is, without invisible characters, and with escapes
decoded; each of these views is a lens. Every run of _SHORTEST characters of a view is looked up among the prefixes of
all forms, so the time depends on the length of the text, not on the number of secrets.

These forms are found, in each normal form of Unicode: UTF-8, Latin-1 and UTF-16, each as text, base64 (also for
URLs), base32 or hex (also with separators); percent encoding, escapes of JSON, Python and C, and HTML entities, up to
two levels; and all forms split by line breaks, control characters or ANSI codes. Other encodings, compression and
encryption are not detected.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final
from unicodedata import normalize

__all__ = ["KnownValues"]

_SHORTEST: Final = 8
"""Minimum characters of a value and of each form. Shorter ones occur in texts without a secret."""

_NORMAL_FORMS: Final = ("NFC", "NFD", "NFKC", "NFKD")

_Stage = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]
"""A pattern that a lens replaces, and the replacement."""


def _unescaped(token: re.Match[str]) -> str:
    """Decode an escape."""
    text = token[0]
    if text[0] == "&":
        return html.unescape(text)
    if token["letter"]:
        return "\n"  # every control character is dropped later
    if token["octal"]:
        content = bytes(int(digits, 8) for digits in re.findall("[0-7]{3}", text))
    else:
        content = bytes.fromhex(re.sub(r"[%\\xuU]", "", text))  # empty for a backslash before anything else
    if token["wide"]:
        return content.decode("utf-16-be", "replace")
    if token["widest"]:
        return content.decode("utf-32-be", "replace")
    with suppress(UnicodeDecodeError):
        return content.decode("utf-8")
    return content.decode("latin-1")


_HIDDEN: Final[_Stage] = (
    re.compile("\x1b\\[[0-?]*+[ -/]*+[@-~]|[\x00-\x08\x0a-\x1f\x7f\xad\u200b-\u200d\u2060\u2400\ufeff]"),
    lambda token: "",
)
"""Invisible characters: ANSI codes, line breaks and other control characters. U+2400 is the
symbol in logs for NUL, which UTF-16 puts between ASCII characters."""
_ESCAPES: Final[_Stage] = (
    re.compile(
        r"""(?x) (?:%[0-9A-Fa-f]{2})+ | (?P<octal>(?:\\++[0-3][0-7]{2})+)
        | (?:\\++x[0-9A-Fa-f]{2})+ | (?P<wide>(?:\\++u[0-9A-Fa-f]{4})+)
        | (?P<widest>(?:\\++U[0-9A-Fa-f]{8})+) | (?P<letter>\\++[abfnrtv]) | \\++ | &\#?[0-9A-Za-z]{1,31};"""
    ),
    _unescaped,
)
_SEPARATORS: Final[_Stage] = (re.compile(r",?\s?0x|[\s:-]"), lambda token: "")
_UPPER_HEX: Final[_Stage] = (re.compile("[A-F]"), lambda token: token[0].lower())

_LENSES: Final[tuple[tuple[_Stage, ...], ...]] = (
    (),
    (_HIDDEN,),
    (_HIDDEN, _ESCAPES, _HIDDEN),
    (_HIDDEN, _ESCAPES, _HIDDEN, _ESCAPES, _HIDDEN),
)
_HEX_LENS: Final = (_HIDDEN, _SEPARATORS, _UPPER_HEX)
_ENCODINGS: Final = {
    "utf-8": "surrogateescape",  # a variable's bytes that are not UTF-8
    "latin-1": "strict",
    "utf-16-le": "surrogatepass",
    "utf-16-be": "surrogatepass",
}


class KnownValues:
    """The forms of some secrets."""

    def __init__(self, values: Iterable[str]) -> None:
        """Args:
        values: the secrets. Those with fewer than _SHORTEST characters are ignored.
        """
        long = {
            form
            for value in values
            for form in (value, *(normalize(kind, value) for kind in _NORMAL_FORMS))
            if len(form) >= _SHORTEST
        }
        forms = {form for value in long for form in _forms(value)}
        self._forms = _by_prefix({_filtered(form, lens) for form in forms for lens in _LENSES})
        self._hex = _by_prefix({content.hex() for value in long for content in _encoded(value)})

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return start and end of each secret in the text, in order and without overlap."""
        if len(text) < _SHORTEST or not self._forms:
            return []
        spans: set[tuple[int, int]] = set()
        before = None
        for lens in _LENSES:
            filtered = _filtered(text, lens)
            if filtered != before:
                spans |= _original_spans(text, lens, set(_matches(filtered, self._forms)))
            before = filtered
        spans |= _original_spans(text, _HEX_LENS, set(_matches(_filtered(text, _HEX_LENS), self._hex)))
        return _merged(spans)


def _forms(value: str) -> Iterator[str]:
    """Yield the value itself, in URLs, in Python's `ascii`, decoded with wrong encodings, and in base64 and base32."""
    yield value
    yield value.replace(" ", "+")
    yield ascii(value)[1:-1]  # its Latin-1 can read like bytes of UTF-8
    for content in _encoded(value):
        yield content.decode("utf-8", "replace")  # as a log shows it
        yield content.decode("latin-1")
        for bits, encode in ((6, base64.b64encode), (6, base64.urlsafe_b64encode), (5, base64.b32encode)):
            for offset in range(5 if bits == 5 else 3):
                # Characters that also encode bits of neighbouring bytes are cut off.
                first, end = -(-8 * offset // bits), 8 * (offset + len(content)) // bits
                yield encode(bytes(offset) + content).decode()[first:end]


def _encoded(value: str) -> Iterator[bytes]:
    for code, errors in _ENCODINGS.items():
        with suppress(UnicodeEncodeError):
            yield value.encode(code, errors)


def _by_prefix(forms: set[str]) -> dict[str, list[str]]:
    forms_by_prefix: dict[str, list[str]] = {}
    for form in forms:
        if len(form) - form.count("\ufffd") >= _SHORTEST:
            forms_by_prefix.setdefault(form[:_SHORTEST], []).append(form)
    return forms_by_prefix


def _matches(text: str, forms: dict[str, list[str]]) -> Iterator[tuple[int, int]]:
    for start in range(len(text) - _SHORTEST + 1):
        for form in forms.get(text[start : start + _SHORTEST], ()):
            if text.startswith(form, start):
                yield start, start + len(form)


def _filtered(text: str, lens: tuple[_Stage, ...]) -> str:
    """Apply the replacements of a lens to a text."""
    for pattern, replacement in lens:
        text = pattern.sub(replacement, text)
    return text


def _original_spans(text: str, lens: tuple[_Stage, ...], spans: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Map spans of a lens's view back to spans of the text."""
    if not spans or not lens:
        return spans
    starts, ends = list(range(len(text))), list(range(1, len(text) + 1))
    for pattern, replacement in lens:
        next_starts: list[int] = []
        next_ends: list[int] = []
        done = 0
        for token in pattern.finditer(text):
            width = len(replacement(token))
            next_starts += [*starts[done : token.start()], *[starts[token.start()]] * width]
            next_ends += [*ends[done : token.start()], *[ends[token.end() - 1]] * width]
            done = token.end()
        starts, ends = next_starts + starts[done:], next_ends + ends[done:]
        text = pattern.sub(replacement, text)
    return {(starts[start], ends[end - 1]) for start, end in spans}


def _merged(spans: set[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged
