"""Caches what the oracle takes long to compute across trials, apart from the subjects' caches."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock
from safetensors.torch import load_file, save_file
from torch import Tensor

from harness import NotMeasured


def kept(
    cache: Path, kind: str, determined_by: Mapping[str, Any], make: Callable[[], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """The tensors that `make` computes, on the CPU. They are computed once, while other trials wait.

    Args:
        cache: the folder.
        kind: the prefix of the file name.
        determined_by: strict JSON with everything that determines the tensors.
        make: computes contiguous tensors.

    Raises:
        NotMeasured: the folder cannot be read or written.
    """
    key = hashlib.sha256(json.dumps(determined_by, sort_keys=True, allow_nan=False).encode()).hexdigest()[:32]
    path = cache / f"oracle-{kind}-{key}.safetensors"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if not path.exists():
                beside = path.with_suffix(f".{os.getpid()}")
                save_file({name: tensor.cpu() for name, tensor in make().items()}, beside)
                beside.replace(path)
        return load_file(path)
    except OSError as error:
        raise NotMeasured(f"the cache {cache} cannot be used: {error}; set HARNESS_CACHE_DIR") from error
