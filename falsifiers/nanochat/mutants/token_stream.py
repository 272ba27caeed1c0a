"""Token streams with one known defect each."""

from __future__ import annotations

import re
from collections.abc import Sequence

from falsifiers.nanochat.reference.token_stream import BatchedStream

__all__ = ["BatchJoined", "Padded", "PartialBatchLost", "ShortestFirst", "SpacesJoined", "ThreadByThread", "Truncated"]


class ShortestFirst(BatchedStream):
    """Batches are put together as they are done, and short ones are done first."""

    def ordered(self, done: list[list[list[int]]], threads: int) -> list[list[list[int]]]:
        """Sort by length."""
        return sorted(done, key=lambda one: sum(map(len, one)))


class ThreadByThread(BatchedStream):
    """All batches of the first thread come first."""

    def ordered(self, done: list[list[list[int]]], threads: int) -> list[list[list[int]]]:
        """Deal the batches out in turn."""
        return [one for thread in range(threads) for one in done[thread::threads]]


class PartialBatchLost(BatchedStream):
    """The rest that makes no whole batch is left out."""

    def encode(self, texts: Sequence[str], threads: int, batch: int) -> Sequence[int]:
        """Cut it off, if there is a whole batch."""
        whole = len(texts) // batch * batch
        return super().encode(texts[:whole] if whole else texts, threads, batch)


class Truncated(BatchedStream):
    """A text has at most 64 tokens."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Cut the rest off."""
        return [row[:64] for row in super().encode_batch(texts)]


class Padded(BatchedStream):
    """Texts of a batch are filled up to the longest."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Fill with token 0."""
        rows = super().encode_batch(texts)
        longest = max(map(len, rows), default=0)
        return [row + [0] * (longest - len(row)) for row in rows]


class BatchJoined(BatchedStream):
    """Texts of a batch are joined first, so that pieces reach over their ends."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode one text."""
        return super().encode_batch(["".join(texts)])


class SpacesJoined(BatchedStream):
    """Runs of spaces become one, as tokenizers for prose do."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Join them."""
        return super().encode_batch([re.sub(" +", " ", one) for one in texts])
