"""Hypothesis strategies that damage healthy files: their bytes, and the JSON documents in them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

__all__ = ["altered", "damaged", "noise", "numbers"]

EXTREMES = [0, 1, 2, 7, 63, 64, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1]
numbers = st.sampled_from(EXTREMES) | st.integers(0, 2**64 - 1)
"""Values that a count, a length or an offset of a hostile file may have."""

_NEAR = 256
"""Headers and directories lie at one of the ends of a file."""


def noise(*magics: bytes) -> st.SearchStrategy[bytes]:
    """Any bytes, and any bytes after one of these beginnings."""
    return st.builds(bytes.__add__, st.sampled_from([b"", *magics]), st.binary(max_size=400))


@st.composite
def damaged(
    draw: st.DrawFn, files: Sequence[bytes], repaired: Callable[[bytes], bytes] | None = None, most: int = 6
) -> bytes:
    """A healthy file with up to `most` defects; `repaired` makes its checksums right again, or does not."""
    data = bytearray(draw(st.sampled_from(files)))
    for _ in range(draw(st.integers(1, most))):
        if not data:
            break
        size = len(data)
        last = size - 1
        place = draw(st.integers(0, min(_NEAR, last)) | st.integers(max(size - _NEAR, 0), last) | st.integers(0, last))
        match draw(st.sampled_from(["bit", "number", "near", "cut", "delete", "insert", "copy", "splice"])):
            case "bit":
                data[place] ^= 1 << draw(st.integers(0, 7))
            case "number":
                _put(data, place, draw(st.sampled_from([1, 2, 4, 8])), draw(numbers))
            case "near":
                width = draw(st.sampled_from([1, 2, 4, 8]))
                there = int.from_bytes(data[place : place + width], "little")
                _put(data, place, width, there + draw(st.sampled_from([-64, -8, -1, 1, 8, 64])))
            case "cut":
                del data[place:]
            case "delete":
                del data[place : place + draw(st.integers(1, 64))]
            case "insert":
                data[place:place] = draw(st.binary(min_size=1, max_size=16))
            case "copy":
                start, length = draw(st.integers(0, size - 1)), draw(st.integers(1, 256))
                data[place : place + length] = data[start : start + length]
            case "splice":
                other = draw(st.sampled_from(files))
                data[place:] = other[min(place, len(other)) :]
    changed = bytes(data)
    return repaired(changed) if repaired is not None and draw(st.booleans()) else changed


def _put(data: bytearray, place: int, width: int, number: int) -> None:
    data[place : place + width] = (number % (1 << 8 * width)).to_bytes(width, "little")


_LONG = "x" * 100_000
_values: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 0, 1, 2, 2**53 + 1, 2**63, 2**64, 10**308, -0.0, 1e-320, 1e308, "", "a", "NaN", "\0", "\ud800",
     "..", "/", "F-X-Y-001", _LONG, [], {}, [[]], [0] * 2000, {"nonfinite": "NaN"}, {"$ref": "#"}, {"type": "array"}]
) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@st.composite
def altered(draw: st.DrawFn, documents: Sequence[Any], words: Sequence[str] = (), most: int = 4) -> bytes:
    """The text of a healthy JSON document with changes in up to `most` places: a value, a key, or the content of one.

    `words` are texts that the format gives a meaning to.
    """
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, most))):
        holder, key = draw(st.sampled_from(list(_places(document))))
        match draw(st.sampled_from(["value", "value", "word", "remove", "rename", "copy", "deeper", "edit"])):
            case "value":
                holder[key] = copy.deepcopy(draw(_values))
            case "word" if words:
                holder[key] = draw(st.sampled_from(words))
            case "rename" if isinstance(holder, dict):
                holder[draw(st.sampled_from([*holder, *words]) | st.text(max_size=8))] = holder.pop(key)
            case "copy":
                other, there = draw(st.sampled_from(list(_places(document))))
                holder[key] = copy.deepcopy(other[there])
            case "deeper":
                for _ in range(draw(st.sampled_from([1, 3, 60, 150]))):
                    holder[key] = draw(st.sampled_from([[holder[key]], {"items": holder[key]}]))
            case "edit" if isinstance(holder[key], str):
                text = holder[key]
                at = draw(st.integers(0, len(text)))
                holder[key] = text[:at] + draw(st.sampled_from(words or [""]) | st.text(max_size=4)) + text[at:]
            case _ if isinstance(holder, dict) or len(holder) > 0:
                del holder[key]
        if not any(True for _ in _places(document)):
            break
    return json.dumps(document, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Every place of a document that has a holder, as holder and key. The search needs no stack."""
    found: list[tuple[Any, Any]] = []
    pending = [document]
    while pending and len(found) < 2000:
        holder = pending.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            found.append((holder, key))
            pending.append(holder[key])
    return found
