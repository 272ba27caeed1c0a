"""The tensor sets that both claims try: strategies for JSON cases, and known cases."""

import random
from collections.abc import Mapping
from math import prod
from typing import Any

from hypothesis import strategies as st

from falsifiers.apr.subject import AprFile, TensorRecord

_BYTES = {0: 4, 1: 2, 3: 8, 4: 4, 5: 8, 6: 1, 7: 1, 30: 2}
_BLOCKS = {12: (256, 144), 14: (256, 210), 128: (32, 18)}
_APR_Q8 = 129
_DTYPES = (*_BYTES, *_BLOCKS, _APR_Q8)


def nbytes(dtype: int, elements: int) -> int | None:
    """Bytes of so many elements: plain, in blocks, or a 4-byte scale and one byte each; None for an unknown dtype."""
    if dtype in _BYTES:
        return _BYTES[dtype] * elements
    if dtype == _APR_Q8:
        return 4 + elements
    if dtype not in _BLOCKS:
        return None
    block, size = _BLOCKS[dtype]
    return -(-elements // block) * size


def file_of(case: Mapping[str, Any]) -> AprFile:
    """The file that a case describes. A tensor's bytes are drawn from its seed."""
    return AprFile([_tensor(tensor) for tensor in case["tensors"]], case["metadata"])


def _tensor(case: Mapping[str, Any]) -> TensorRecord:
    dtype, shape = int(case["dtype"]), tuple(int(size) for size in case["shape"])
    size, seed = nbytes(dtype, prod(shape)) or 0, int(case["seed"])
    # Bytes are not zero, so that lost or moved data cannot look like padding. With seed 0 all bytes are zero.
    noise = random.Random(seed).choices(range(1, 256), k=size) if seed else bytes(size)  # noqa: S311
    return TensorRecord(case["name"], dtype, shape, bytes(noise))


def json_objects(text: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    """JSON objects with a few levels."""
    plain = st.one_of(
        st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), text
    )
    nested = st.recursive(
        plain, lambda item: st.one_of(st.lists(item, max_size=3), st.dictionaries(text, item, max_size=3)), max_leaves=6
    )
    return st.dictionaries(text, nested, max_size=4)


_NAMES = st.one_of(
    st.from_regex(r"(model\.layers\.[0-9]{1,2}\.)?[a-z_]{1,12}(\.weight|\.bias)?", fullmatch=True),
    st.text(min_size=1, max_size=60),
    st.sampled_from("aAbBzZ_é漢\uffff😀").flatmap(lambda letter: st.integers(1, 64).map(lambda count: letter * count)),
)
_SHAPES = st.lists(st.one_of(st.integers(0, 9), st.sampled_from([16, 17, 32, 33, 64])), max_size=3).filter(
    lambda shape: prod(shape) <= 20_000
) | st.lists(st.integers(1, 2), min_size=4, max_size=8)
_TENSORS = st.fixed_dictionaries(
    {"name": _NAMES, "dtype": st.sampled_from(_DTYPES), "shape": _SHAPES, "seed": st.integers(0, 1000)}
)
FILES = {
    "tensors": st.lists(_TENSORS, max_size=6, unique_by=lambda tensor: tensor["name"]),
    "metadata": json_objects(st.text(max_size=8)),
}
"""The entries of a case that describe a file."""


def _known(name: str, dtype: int = 0, shape: tuple[int, ...] = (3,)) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape), "seed": 1}


KNOWN: dict[str, dict[str, Any]] = {
    "no tensor": {"tensors": [], "metadata": {}},
    "all zeros": {"tensors": [{**_known("zeros"), "seed": 0}, _known("after")], "metadata": {}},
    "300 tensors": {"tensors": [_known(f"t{number}", 6) for number in range(300)], "metadata": {}},
    "one byte": {"tensors": [_known("b", 7, (1,))], "metadata": {"model_type": "test"}},
    "sections of 64 bytes": {
        "tensors": [_known("x" * (64 - 2 - 2 - 8 - 16), 7, (64,))],
        "metadata": {"k" * 27: "v" * 30},
    },
    "unsorted input": {
        "tensors": [_known("b", 0, (2, 3)), _known("a", 1, (5,)), _known("B", 6, (7,)), _known("_", 3, ())],
        "metadata": {"name": "ünïcode", "hidden_size": 2**53, "rms_norm_eps": 0.1 + 0.2, "rope": None},
    },
    # The emoji sorts before U+FFFF in UTF-16, and after it in UTF-8.
    "names beyond ASCII": {
        "tensors": [
            _known("\uffff"),
            _known("😀"),
            _known("é" * 128),
            _known("漢.weight", 30, (4, 4)),
            _known("e\u0301"),
        ],
        "metadata": {},
    },
    "names with spaces": {
        "tensors": [_known(name) for name in (" a", "a", "a ", "a\n", "\t")],
        "metadata": {" k ": " v "},
    },
    "every dtype": {"tensors": [_known(f"t{dtype}", dtype, (2, 3, 5)) for dtype in _DTYPES], "metadata": {}},
    "eight dimensions": {
        "tensors": [_known("deep", 7, (1, 2, 1, 2, 1, 2, 1, 3)), _known("empty", 0, (4, 0)), _known("last", 0, (2, 5))],
        "metadata": {"nested": {"list": [1, 2.5, "three", None, True]}},
    },
    "large metadata": {
        "tensors": [_known("embed", 7, (300, 300)), _known("head", 0, (100, 333))],
        "metadata": {"chat_template": "x" * 70_000},
    },
    "over 1 MiB": {"tensors": [_known("embed", 7, (1100, 1000))], "metadata": {}},
    # A tensor with a dimension beyond 16 or 32 bits fits into memory only if it has no elements.
    "dimensions beyond 32 bits": {
        "tensors": [_known("vast", 0, (2**16 + 2, 0, 2**32 + 3)), _known("vaster", 6, (2**63, 0))],
        "metadata": {},
    },
}
"""Cases that are tried before drawn ones. Some mutants fail on only one of them."""
