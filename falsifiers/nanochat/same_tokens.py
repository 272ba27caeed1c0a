"""F-GB10-TOKENIZER-001: threads and batches change the speed of tokenisation, and not the tokens."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from falsifiers.nanochat.device_subjects import TokenStream
from falsifiers.nanochat.oracle.byte_pairs import BytePairs
from falsifiers.nanochat.reference.tokens import torch_text
from harness import Trial

_LETTERS = st.characters(max_codepoint=0x52F)
"""Characters that every version of Unicode classifies equally. For newer ones, regex and tokenizers may differ."""


_NO_TEXT = "\ud800"
"""Half of a pair, which no encoding of Unicode has."""


def falsify(trial: Trial[TokenStream]) -> None:
    """Train on PyTorch's own sources, and encode random texts and that text with every setting."""
    parameters = trial.parameters
    corpus = torch_text(parameters["folders"])
    with trial.subject_fault():
        document = trial.subject.train(corpus, parameters["vocabulary"])
    oracle = BytePairs(document)
    ways = [tuple(map(int, way.split("/"))) for way in parameters["ways"]]

    def compared(texts: list[str], ways: list[tuple[int, ...]]) -> dict[str, Any]:
        right = [token for text in texts for token in oracle.encoded(text)]
        with trial.subject_fault():
            streams = [list(trial.subject.encode(texts, threads, batch)) for threads, batch in ways]
            back = trial.subject.decode(streams[0])
        return {"different": sum(stream != right for stream in streams), "lost": float(back != "".join(texts))}

    def check(case: Mapping[str, Any]) -> dict[str, Any]:
        return compared(case["texts"], [(case["threads"], case["batch"]), *ways])

    text = st.one_of(
        st.text(max_size=40), st.sampled_from([" " * 9, "a\n\n  b", "don't 12345", "\r\n", "नमस्ते", "🙂🙂"])
    )
    drawn = st.fixed_dictionaries({
        "texts": st.lists(text, min_size=1, max_size=12), "threads": st.integers(1, 8), "batch": st.integers(1, 6),
    })  # fmt: skip
    first = [{"texts": [*"abcdefghi", "def f(x):\n    return x"], "threads": 3, "batch": 2}]
    trial.measure(cases=trial.search(drawn, check, examples=parameters["cases"], first=first))
    lines = [corpus[0], *(line for text in corpus for line in text.splitlines(keepends=True))]  # the first one is long
    lines = lines[: parameters["lines"]]
    whole = compared(lines, ways)
    with trial.subject_fault():
        lost = [way for way in ways if not _refuses(trial.subject, [*lines[:7], _NO_TEXT, *lines[:7]], *way)]
    trial.measure(
        vocabulary=len(oracle.ids),
        lines=len(lines),
        tokens=sum(len(oracle.encoded(line)) for line in lines),
        characters=sum(map(len, lines)),
        corpus_lost=whole["lost"],
    )
    with trial.subject_fault():  # another training of the same subject gives other tokens
        oracle = BytePairs(trial.subject.train(lines, parameters["vocabulary"] // 2))
    trial.measure(corpus_different=whole["different"] + len(lost) + compared(lines, ways[:1])["different"])
    trial.resolve(device="cpu")


def _refuses(subject: TokenStream, texts: list[str], threads: int, batch: int) -> bool:
    """Whether a text that cannot be encoded raises. A stream must not skip it."""
    try:
        subject.encode(texts, threads, batch)
    except Exception:  # of whatever class
        return True
    return False
