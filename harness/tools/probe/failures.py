"""Calls that the probe refuses, such as CUDA graphs, and exceptions of a step, with the line of the user's code."""

from __future__ import annotations

import importlib.util
import os
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from harness.tools.probe.errors import READ, ProbeError, StepFailed, Unseeable
from harness.tools.probe.places import is_users

__all__ = ["named_failures"]

# What torch says if a kernel that is no operator of torch asks a fake tensor for its memory.
_WRAP = "wrap the kernel with torch.library.triton_op or custom_op, and register a fake implementation"
# Modules whose Triton kernels allocate nothing, and write only into numbers with a fraction. No code decides on these.
_SILENT = ("trl.kernels.",)
_ADDRESSES = ("data is not allocated yet", "Cannot access data pointer", "data_ptr")


@contextmanager
def named_failures() -> Iterator[None]:
    """Turn exceptions of the block into `StepFailed`, or into `Unseeable` if it asked for the memory of a fake tensor.

    Raises:
        StepFailed: the block raised.
        Unseeable: the block used what fake tensors cannot show.
    """
    try:
        with ExitStack() as stack:
            for owner, name, remedy in _refused():
                stack.enter_context(mock.patch.object(owner, name, _refusal(owner, name, remedy)))
            yield
    except ProbeError:
        raise
    except Exception as error:
        place, function = _places(error)
        if any(words in str(error) for words in _ADDRESSES):
            raise Unseeable(function, place, _WRAP) from error
        if ".numpy() is not supported" in str(error):
            raise Unseeable("Tensor.numpy", place, READ) from error
        first = str(error).partition("\n")[0]
        where = f"{place}: " if place else ""
        raise StepFailed(f"{where}{type(error).__name__} on fake tensors: {first}") from error


def _refused() -> Iterator[tuple[Any, str, str]]:
    """Functions whose allocations the probe cannot observe: their owner, name and remedy."""
    if torch.distributed.is_available():
        hook = "its buckets are made in C++; probe the model without the hook"
        for name in ("_register_comm_hook", "_register_builtin_comm_hook"):
            yield torch.distributed, name, hook
    yield torch, "compile", "the buffers of compiled code are not predicted; probe the code as it is"
    for name in ("graph", "make_graphed_callables", "CUDAGraph"):
        yield torch.cuda, name, "a graph has memory of its own; probe the step without capturing it"
    for name in ("nested_tensor", "as_nested_tensor", "nested_tensor_from_jagged", "narrow"):
        yield torch.nested, name, "the lengths of its rows are not known to fake tensors; probe padded rows"
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        yield torch._VF, name, "the buffers of cuDNN are not predicted; measure the step on a GPU"
    if importlib.util.find_spec("triton") is not None:
        from triton.runtime.jit import JITFunction

        yield JITFunction, "run", _WRAP


def _refusal(owner: Any, name: str, remedy: str) -> Any:
    """The replacement of the named function or class. That of a class is a class, so annotations can name it."""
    operator = owner.__name__ if isinstance(owner, type) else f"{owner.__name__}.{name}"

    def refuse(*arguments: Any, **_keywords: Any) -> None:
        if str(getattr(arguments[0], "__module__", "")).startswith(_SILENT):
            return
        kernel = getattr(arguments[0], "__name__", "") if name == "run" else ""
        lines = (f"{each.filename}:{each.lineno}" for each in reversed(traceback.extract_stack()) if _is_outside(each))
        raise Unseeable(f"the Triton kernel {kernel}" if kernel else operator, next(lines, ""), remedy)

    original = getattr(owner, name)
    return type(name, (original,), {"__new__": refuse}) if isinstance(original, type) else refuse


def _is_outside(frame: traceback.FrameSummary) -> bool:
    libraries = (str(torch.__path__[0]), str(Path(__file__).parent))
    return not frame.filename.startswith(libraries) and f"{os.sep}triton{os.sep}" not in frame.filename


def _places(error: BaseException) -> tuple[str, str]:
    """The innermost line of the user's code, and the function in which the exception was raised."""
    place, function = "", ""
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        function = code.co_qualname
        if is_users(code):
            place = f"{code.co_filename}:{step.tb_lineno}"
        step = step.tb_next
    return place, function
