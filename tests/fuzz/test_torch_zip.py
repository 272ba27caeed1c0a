"""PyTorch's zip: any archive, and a pickle of any opcodes in a sound archive."""

from __future__ import annotations

import io
import zipfile

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.checkpoints import ARRAYS, OTHERS, examine
from tests.fuzz.corpus import cases
from tests.fuzz.damage import damaged, noise
from tests.tools.inspect.checkpoint.files import torch_zip
from tests.tools.inspect.checkpoint.test_hostile import OPCODES, tensor, zipped

FILES = [torch_zip(ARRAYS), torch_zip(OTHERS)]
STORAGES = {"0": bytes(48), "1": bytes(10), "2": bytes(32)}


def pickle_of(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))


PICKLES = [*map(pickle_of, FILES), tensor(0, (2, 2), (2, 1)), tensor(1, (3,), (2,), 12)]
opcodes = st.lists(st.sampled_from(OPCODES) | st.binary(min_size=1, max_size=4), max_size=30).map(b"".join)
repickled = st.builds(zipped, damaged(PICKLES) | opcodes.map(lambda code: b"\x80\x02" + code + b"."), st.just(STORAGES))


@given(damaged(FILES) | repickled | noise(b"PK\3\4"))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    examine(data)


@cases("torch_zip")
def test_the_corpus(data: bytes) -> None:
    examine(data)
