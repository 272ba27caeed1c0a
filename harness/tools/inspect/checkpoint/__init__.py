"""Reads checkpoints without trusting them: safetensors, APR v2, PyTorch's zip, NumPy's npz and GGUF.

    from harness.tools.inspect.checkpoint import Refused, compare, inspect

    seen = inspect(Path("model.safetensors"))
    seen.tensors["lm_head.weight"].digest
    compare(Path("model.safetensors"), Path("model.gguf")).missing

Files may be hostile. No code in them runs and no offset is followed past their end. Memory is allocated only for bytes
that the file is known to have: a few chunks of 4 MiB, plus the headers. Only a tensor that PyTorch stored with unusual
strides is read whole. An unreadable file raises `Refused`, with the reason and the byte offset. This package reports
findings. A contract decides what they mean.

Needs the extra `checkpoint` (numpy, ml_dtypes, gguf).
"""

try:
    import gguf as _gguf  # noqa: F401
    import ml_dtypes as _ml_dtypes  # noqa: F401
    import numpy as _numpy  # noqa: F401
except ImportError as error:
    from harness.base.plugins import installation

    raise ImportError(
        f"harness.tools.inspect.checkpoint needs {error.name}: {installation('checkpoint')}", name=error.name
    ) from error

from harness.tools.inspect.checkpoint.bounded_file import Packed, Refused, Unrecognized
from harness.tools.inspect.checkpoint.comparison import Change, Comparison, compare
from harness.tools.inspect.checkpoint.tensors import Finding, Inspection, Kind, Tensor, inspect

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
