"""What a checkpoint really holds: safetensors, APR v2, PyTorch's zip and GGUF, read without trusting any of them.

    from harness.inspect.checkpoint import Refused, compare, inspect

    seen = inspect(Path("model.safetensors"))
    seen.tensors["lm_head.weight"].digest
    compare(Path("model.safetensors"), Path("model.gguf")).missing

A file may come from a stranger: no code in it runs, no offset in it is followed past its end, and what it claims to be
is never allocated before the file is known to be that long. Memory is a few chunks of 4 MiB plus what the headers take;
only a tensor that PyTorch stored with strides of its own is read whole. What cannot be read is `Refused`, with the
reason and the byte offset. Nothing here judges: what is found is reported, and a contract says what it means.

Needs the extra `checkpoint` (numpy, ml_dtypes, gguf).
"""

try:
    import gguf as _gguf  # noqa: F401
    import ml_dtypes as _ml_dtypes  # noqa: F401
    import numpy as _numpy  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"harness.inspect.checkpoint needs {error.name}: pip install 'falsifier-harness[checkpoint]'", name=error.name
    ) from error

from harness.inspect.checkpoint.comparison import Change, Comparison, compare
from harness.inspect.checkpoint.inspection import Finding, Inspection, Kind, Tensor, inspect
from harness.inspect.checkpoint.source import Packed, Refused, Unrecognized

__all__ = [
    "Change",
    "Comparison",
    "Finding",
    "Inspection",
    "Kind",
    "Packed",
    "Refused",
    "Tensor",
    "Unrecognized",
    "compare",
    "inspect",
]
