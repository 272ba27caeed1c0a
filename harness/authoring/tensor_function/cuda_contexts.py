"""How a function is called on another stream, on another current device, and in a CUDA graph.

What these find beside the value is added to `function.seen`, pairs of a relation and a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

__all__ = ["captured", "on_other_device", "on_other_stream"]

_SLEEP: Final = 1_000_000_000
"""Cycles for which the stream sleeps before the tensors get their contents: about half a second."""
Function = Any
"""A function with the attribute `seen`."""


def on_other_stream(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call it on a side stream, on which the tensors get their contents only after a sleep.

    Work on any other stream sees NaN. A function that returns after the sleep has waited for the device.
    """
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    contents = [tensor.detach().clone() for tensor in tensors]
    torch.cuda.synchronize()  # the side stream does not wait for the contents, which may be sizes of what is launched
    with torch.cuda.stream(stream):
        function(*args, **kwargs)  # compiles, tunes and allocates what it needs, which takes time on the host
    torch.cuda.synchronize()
    for tensor in tensors:
        tensor.data.fill_(float("nan") if tensor.is_floating_point() else 0)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(_SLEEP)  # type: ignore[no-untyped-call]
        slept = torch.cuda.Event()  # type: ignore[no-untyped-call]
        slept.record(stream)
        for tensor, content in zip(tensors, contents, strict=True):
            tensor.data.copy_(content)
        result = function(*args, **kwargs)
        if slept.query():  # type: ignore[no-untyped-call]
            function.seen.append(("no_host_wait", "it returned only after the work before it on its stream had ended"))
    stream.synchronize()
    return result


def captured(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Capture it in a CUDA graph with other contents, and replay that with these."""
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    contents = [tensor.detach().clone() for tensor in tensors]
    for tensor in tensors:
        if tensor.is_floating_point():
            tensor.data.copy_(tensor.detach().flip(0) if tensor.dim() else tensor.detach() * 0.5)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad():
        with torch.cuda.stream(stream):
            function(*args, **kwargs)  # compiles and tunes what it needs
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = function(*args, **kwargs)
        for tensor, content in zip(tensors, contents, strict=True):
            tensor.data.copy_(content)
        graph.replay()
    torch.cuda.synchronize()
    return result


def on_other_device(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call it while another GPU than that of its tensors is the current one."""
    at = next(value.device.index or 0 for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
    with torch.cuda.device((at + 1) % torch.cuda.device_count()):
        return function(*args, **kwargs)
