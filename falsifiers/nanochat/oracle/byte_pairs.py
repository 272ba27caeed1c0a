"""Byte-pair encoding by its definition: apply the merge that was learnt first, until none applies.

Text is split by GPT-4's pattern with at most two digits per piece. Source: Sennrich, Haddow, Birch, "Neural Machine
Translation of Rare Words with Subword Units" (arXiv 1508.07909), section 3.2; the pattern is nanochat/tokenizer.py's.
Bytes are mapped to letters as in GPT-2 (encoder.py: bytes_to_unicode).
"""

import itertools
import json

import regex

_PIECES = regex.compile(
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)


def _letters() -> dict[int, str]:
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {**{byte: chr(byte) for byte in shown}, **{byte: chr(256 + place) for place, byte in enumerate(hidden)}}


class BytePairs:
    """The encoder of a tokenizer.json."""

    def __init__(self, document: str) -> None:
        model = json.loads(document)["model"]
        self.ids: dict[str, int] = model["vocab"]
        pairs = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in model["merges"]]
        self.rank = {pair: rank for rank, pair in enumerate(pairs)}
        self.letters = _letters()

    def encoded(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return [self.ids[token] for piece in _PIECES.findall(text) for token in self._merged(piece)]

    def _merged(self, piece: str) -> list[str]:
        parts = [self.letters[byte] for byte in piece.encode("utf-8")]
        while True:
            pairs = enumerate(itertools.pairwise(parts))
            ranked = [(self.rank[pair], at) for at, pair in pairs if pair in self.rank]
            if not ranked:
                return parts
            _, at = min(ranked)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
