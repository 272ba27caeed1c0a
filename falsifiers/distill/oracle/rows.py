"""Searches rows of tokens in a text."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from falsifiers.distill.oracle.corpus import Tokens

Place = tuple[int, int]
"""The number of a block, and the position in the block at which a row begins."""

_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64


def places(rows: Tokens, blocks: Sequence[Tokens]) -> list[Place | None]:
    """The first place of each row [rows, tokens]; None for a row that is in no block.

    Hashes of all substrings of that length find the candidates (Karp and Rabin, 1987), whose tokens are then compared.
    """
    text = np.concatenate(blocks).astype(np.uint64)
    length = rows.shape[1]
    if not len(rows) or len(text) < length:
        return [None] * len(rows)
    hashes, row_hashes = _hashes(text, length), _hashes(rows.astype(np.uint64).ravel(), length)[::length]
    table = np.zeros(2**20, dtype=bool)  # a lookup by the leading bits is cheaper than a search in all hashes
    table[row_hashes >> np.uint64(44)] = True
    candidates = np.flatnonzero(table[hashes >> np.uint64(44)])
    candidates = candidates[np.isin(hashes[candidates], row_hashes)]
    candidates_by_hash: dict[bytes, Place] = {}
    begins = np.cumsum([0, *(len(block) for block in blocks)])
    for start in candidates:
        block = int(np.searchsorted(begins, start, side="right")) - 1
        if start + length <= begins[block + 1]:  # no sequence crosses from one block into the next
            candidates_by_hash.setdefault(text[start : start + length].tobytes(), (block, int(start - begins[block])))
    return [candidates_by_hash.get(row.astype(np.uint64).tobytes()) for row in rows]


def _hashes(tokens: npt.NDArray[np.uint64], length: int) -> npt.NDArray[np.uint64]:
    """The hash of each substring of this length: its polynomial in `_BASE`, modulo 2**64."""
    powers = np.cumprod(np.full(len(tokens), _BASE, dtype=np.uint64))
    sums = np.cumsum((tokens + np.uint64(1)) * powers, dtype=np.uint64)
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), sums])
    inverse = np.cumprod(np.full(len(tokens), pow(_BASE, -1, 2**64), dtype=np.uint64))
    return (sums[length:] - sums[:-length]) * inverse[: len(sums) - length]
