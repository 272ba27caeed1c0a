"""Converts texts to tokens with threads that each take a batch."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from falsifiers.nanochat.reference.tokens import train_tokenizer
from harness import Setting


class BatchedStream:
    """Batches are encoded in parallel, and concatenated in order. See `TokenStream`."""

    def __init__(self, setting: Setting) -> None: ...

    def train(self, texts: Sequence[str], vocabulary: int) -> str:
        self.tokenizer = train_tokenizer(texts, vocabulary)
        return str(self.tokenizer.to_str())

    def encode(self, texts: Sequence[str], threads: int, batch: int) -> Sequence[int]:
        batches = [list(texts[start : start + batch]) for start in range(0, len(texts), batch)]
        with ThreadPoolExecutor(threads) as pool:
            done = list(pool.map(self.tokenizer.encode_batch, batches))
        return [token for rows in done for row in rows for token in row.ids]

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens)))
