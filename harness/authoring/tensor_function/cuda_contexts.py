"""Calls of a function on a side stream, with another current device, and in a CUDA graph.

Each appends its side effects to `function.seen`, as pairs of the violated relation and a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

__all__ = ["captured", "on_other_device", "on_other_stream", "on_two_streams"]

_SLEEP: Final = 1_000_000_000
"""GPU cycles that the stream sleeps before the inputs are written: about half a second."""
_PAIRS: Final = 4
"""Times that two streams are tried."""
Function = Any
"""A function with the attribute `seen`."""


def on_other_stream(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call the function on a side stream that sleeps, then writes the inputs.

    Kernels on any other stream read NaN. If the sleep is over when the function returns, the function has waited.
    """
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    contents = [tensor.detach().clone() for tensor in tensors]
    torch.cuda.synchronize()  # the side stream does not wait for the inputs, which can be sizes of later launches
    with torch.cuda.stream(stream):
        function(*args, **kwargs)  # warm-up: compilation, tuning and allocation take time on the host
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


def on_two_streams(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call the function with these inputs on one stream and with others on a second one, at the same time.

    Both streams wait for a sleeping kernel until all work is launched. Memory that both calls use then has numbers of
    either. The result is one that differs from that of a call alone, if there is one.
    """
    streams = [torch.cuda.Stream() for _ in range(2)]  # type: ignore[no-untyped-call]
    others = [_reversed(value) for value in args], {name: _reversed(value) for name, value in kwargs.items()}
    alone = function(*args, **kwargs)
    for stream in streams:
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            function(*args, **kwargs)  # warm-up: compilation, tuning and allocation take time on the host
    result = alone
    for number in range(_PAIRS):
        torch.cuda.synchronize()
        own, other = streams[number % 2], streams[1 - number % 2]
        with torch.cuda.stream(own):
            torch.cuda._sleep(_SLEEP // 4)  # type: ignore[no-untyped-call]
        other.wait_stream(own)
        for stream, (given, named) in ((own, (args, kwargs)), (other, others)):
            with torch.cuda.stream(stream):
                made = function(*given, **named)
            result = made if stream is own else result
        torch.cuda.synchronize()
        if _differ(result, alone):
            break
    return result


def _reversed(value: Any) -> Any:
    """Return a floating tensor with its rows in reverse order, in new memory; other values unchanged."""
    if not isinstance(value, Tensor) or not value.is_floating_point() or not value.dim():
        return value
    return value.detach().flip(0).requires_grad_(value.requires_grad)


def _differ(result: Any, other: Any) -> bool:
    """Whether two results differ in a tensor, if they are tensors or sequences of them."""
    pairs = zip(result, other, strict=True) if isinstance(result, tuple | list) else [(result, other)]
    return not all(torch.equal(left.detach(), right.detach()) for left, right in pairs if isinstance(left, Tensor))


def captured(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Capture a CUDA graph with other inputs, then replay it with the inputs of this call."""
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    contents = [tensor.detach().clone() for tensor in tensors]
    for tensor in tensors:
        if tensor.is_floating_point():
            tensor.data.copy_(tensor.detach().flip(0) if tensor.dim() else tensor.detach() * 0.5)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad():
        with torch.cuda.stream(stream):
            function(*args, **kwargs)  # warm-up: compilation and tuning
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
    """Call the function while the current device is not the device of its tensors."""
    at = next(value.device.index or 0 for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
    with torch.cuda.device((at + 1) % torch.cuda.device_count()):
        return function(*args, **kwargs)
