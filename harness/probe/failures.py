"""Exceptions of a traced step, named with the line of the user's code."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch

from harness.probe.errors import ProbeError, StepFailed, Unseeable
from harness.probe.places import is_users

__all__ = ["named_failures"]

# What torch says if a kernel that is no operator of torch asks a fake tensor for its memory.
_ADDRESSES = ("data is not allocated yet", "Cannot access data pointer", "data_ptr")


@contextmanager
def named_failures() -> Iterator[None]:
    """Turn exceptions of the block into `StepFailed`, or into `Unseeable` if it asked for the memory of a fake tensor.

    Raises:
        StepFailed: the block raised.
        Unseeable: the block used what fake tensors cannot show.
    """
    try:
        with mock.patch.object(torch.nn.parallel.DistributedDataParallel, "__init__", _refuse_replicas):
            yield
    except ProbeError:
        raise
    except Exception as error:
        place, function = _places(error)
        if any(words in str(error) for words in _ADDRESSES):
            remedy = "wrap the kernel with torch.library.triton_op or custom_op, and register a fake implementation"
            raise Unseeable(function, place, remedy) from error
        first = str(error).partition("\n")[0]
        raise StepFailed(f"{place}: {type(error).__name__} on fake tensors: {first}") from error


def _refuse_replicas(*_arguments: object, **_keywords: object) -> None:
    place = next(
        (f"{each.filename}:{each.lineno}" for each in reversed(traceback.extract_stack()[:-1]) if _is_outside(each)), ""
    )
    remedy = "its buckets are made in C++; probe the model without it and add its gradients once more"
    raise Unseeable("DistributedDataParallel", place, remedy)


def _is_outside(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith((str(torch.__path__[0]), __file__.rpartition("/")[0]))


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
