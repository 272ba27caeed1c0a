"""Intercepts all operators of a step, below autograd, and runs them on tensors without memory.

Interception uses the dispatch key `Fake`, which torch reserves for tensors without memory but does not use. A Python
dispatch mode is unsuitable: torch would detect it, and would run formulas and accumulate gradients out of place, where
a real step works in place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from harness.tools.probe.errors import READ, Unseeable
from harness.tools.probe.host_integers import HostIntegers, taken_to_be_finite
from harness.tools.probe.host_values import is_on_host
from harness.tools.probe.results import Results
from harness.tools.probe.storages import KEY, KEYS, Storages
from harness.tools.probe.unknown_value import reading_values

__all__ = ["intercepted"]

_aten = torch.ops.aten
_BELOW = torch._C._dispatch_keyset_full_after(KEY)
_PYTHON, _META = torch._C.DispatchKey.Python, torch._C.DispatchKey.Meta

# Operators of foreach and fused optimizers that write into their arguments and allocate nothing.
_IN_PLACE = frozenset(
    name
    for name in torch._C._dispatch_get_all_op_names()
    if name.startswith(("aten::_foreach_", "aten::_fused_")) and name.partition(".")[0].endswith("_")
)
# Operators whose C++ code calls other operators, which are intercepted in turn.
_MADE_OF_OTHERS = (
    _aten._safe_softmax, _aten.index_put, _aten.index_put_, _aten.logsumexp, _aten._euclidean_dist,
    _aten.binary_cross_entropy_with_logits,
)  # fmt: skip
# Views that C++ code makes on any device. A parameter needs one that no object of Python holds.
_VIEWS = ("detach", "alias")
# Operators that torch takes apart where the device has no kernel for them. A CPU build of torch has none.
_OF_THE_DEVICE = ("_fused_rms_norm", "mish_backward")
# Losses whose mean or sum keeps the storage of the losses of all elements (`Loss.cpp`).
_WHOLE_LOSSES = (_aten.mse_loss, _aten.smooth_l1_loss)
# Numbers on the device count as finite, so that a loop that checks for NaN takes its usual path.
_FINITE = (_aten.isnan, _aten.isinf)
_PINNING = (_aten._pin_memory, _aten.pin_memory)
_FAKE = "it has no fake implementation; register one with torch.library.register_fake, or use another operator"
_SIZED = "its result has a size that depends on values; use a fixed size"


class Tracer(Protocol):
    """The interface that records the effects of operators."""

    storages: Storages

    def begun(self) -> None:
        """An operator begins."""

    def made(self, operator: Any, fake: Tensor) -> Tensor:
        """Make a new tensor that an operator returns, with the shape of a fake one."""

    def resized(self, tensor: Tensor, size: int, operator: str) -> None:
        """Give the storage of a tensor another size."""

    def ran(self, operator: Any, arguments: tuple[Any, ...], result: Any) -> None:
        """An operator ran."""

    def unseeable(self, operator: Any, remedy: str) -> Unseeable:
        """Return the error for an unsupported operator."""


@contextmanager
def intercepted(tracer: Tracer) -> Iterator[None]:
    """Run the operators of the block on tensors without memory.

    Raises:
        Unseeable: the code needs values or memory that such tensors lack.
    """
    interception = _Interception(tracer)
    fallbacks: Any = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
    kernels: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with ExitStack() as stack:
        stack.callback(fallbacks._destroy)
        stack.callback(kernels._destroy)
        for name in _VIEWS:
            kernels.impl(name, torch.library.fallthrough_kernel, "Fake")
        for name in _OF_THE_DEVICE:
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CUDA"):
                kernels.impl(name, _unreachable, "CUDA")
        fallbacks.fallback(interception.run, "Fake", with_keyset=True)
        stack.enter_context(interception.patched())
        stack.enter_context(torch._C._IncludeDispatchKeyGuard(KEY))
        yield


class _Interception:
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._storages = tracer.storages
        self._results = Results(tracer.storages, tracer.made, tracer.resized)
        self._known = HostIntegers(tracer.storages, self._on_device)
        self._whole: Any = None
        """The operator whose C++ code calls others."""

    def run(self, keys: Any, operator: Any, *arguments: Any, **keywords: Any) -> Any:
        """Run an operator. Operators that the user's mode or subclass handles are intercepted again."""
        if keys.has(_PYTHON) or keys.has(_META):
            return operator.redispatch(keys & _BELOW, *arguments, **keywords)
        packet = operator.overloadpacket
        if packet in _MADE_OF_OTHERS:
            outer, self._whole = self._whole, self._whole or operator
            try:
                return operator.redispatch(keys & _BELOW, *arguments, **keywords)
            finally:
                self._whole = outer
        if packet is _aten.roll and len(arguments[1]) > 1:  # one dimension after the other (`roll_common`)
            tensor, shifts, dims = arguments
            return operator(operator(tensor, shifts[:1], dims[:1]), shifts[1:], dims[1:])
        with torch._C._ExcludeDispatchKeyGuard(KEYS):
            return self._ran(operator, packet, arguments, keywords)

    def _ran(self, operator: Any, packet: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if operator.name() in _IN_PLACE and arguments[0] and arguments[0][0].device.type == "cuda":
            return None
        if packet in _PINNING:
            return arguments[0]
        if packet is _aten.record_stream:
            return None
        if keywords.get("pin_memory"):
            keywords = {**keywords, "pin_memory": False}
        if is_on_host(operator, arguments, keywords, self._storages.has):
            return operator(*arguments, **keywords)
        if packet is _aten._efficientzerotensor:
            device = torch.device(keywords.get("device") or "cpu")
            return self._storages.zeros(arguments[0], keywords.get("dtype") or torch.get_default_dtype(), device)
        if packet is _aten.set_:
            return self._set(*arguments)
        self._tracer.begun()
        name = self._whole or operator
        try:
            result = self._results.of(operator, arguments, keywords)
        except (UnsupportedOperatorException, NotImplementedError) as error:
            raise self._tracer.unseeable(name, _FAKE) from error
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            result = self._known.computed_anew(operator, arguments, keywords)
            if result is None and sys._getframe(1).f_back is None:
                result = self._without_zeros(packet, arguments)
            if result is None:
                sized = isinstance(error, DynamicOutputShapeException)
                raise self._tracer.unseeable(name, _SIZED if sized else READ) from error
            if not isinstance(result, Tensor):
                return result
        else:
            self._known.follow(operator, arguments, keywords, result)
        if packet in _FINITE:
            self._known.know(result, False)
        elif packet is _aten._amp_foreach_non_finite_check_and_unscale_:
            self._known.know(arguments[1], 0.0)
        elif packet in _WHOLE_LOSSES and not result.dim():
            count = max(each.numel() for each in arguments[:2])
            self._tracer.resized(result, count * result.element_size(), str(operator))
        elif packet is _aten.col2im:  # allocated as large as the argument, then reshaped (`col2im_cuda`)
            size = arguments[0].numel() * result.element_size()
            self._tracer.resized(result, max(size, self._storages.size(result)), str(operator))
        self._tracer.ran(operator, arguments, result)
        return result

    def _without_zeros(self, packet: Any, arguments: tuple[Any, ...]) -> Any:
        """Handle the read of a value by an autograd formula, which asks whether there are zeros: answer that there are
        none."""
        if packet is _aten._local_scalar_dense:
            return 0
        if packet is _aten.nonzero:
            return self._on_device(torch.empty(0, arguments[0].dim(), dtype=torch.int64, device="cpu"))
        return None

    def _set(
        self, tensor: Tensor, source: Any = None, offset: int = 0, shape: Any = None, stride: Any = None
    ) -> Tensor:
        """`Tensor.set_`, which gives a tensor another storage."""
        if isinstance(source, Tensor) and shape is None:
            shape, stride, offset = source.shape, source.stride(), int(source.storage_offset())
        storage = source.untyped_storage() if isinstance(source, Tensor) else source
        if storage is None:
            return self._set(tensor, self._on_device(torch.empty(0, dtype=tensor.dtype, device="cpu")))
        shape = (storage.nbytes() // tensor.element_size(),) if shape is None else shape
        stride = stride if stride else torch.empty(shape, device="meta").stride()
        self._storages.become(tensor, storage, shape, stride, offset)
        return tensor

    def _on_device(self, host: Tensor) -> Tensor:
        """A tensor on the device with the shape of one on the host."""
        with self._results.fakes():
            fake = torch.empty_like(host, device="cuda")
        return self._tracer.made(_aten.empty_like.default, fake)

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Replace the functions of tensors that read memory without an operator."""
        storage: Any = torch.UntypedStorage
        shown: Any
        resize, copy, numpy, listed, shown = (
            storage.resize_, storage.__deepcopy__, Tensor.numpy, Tensor.tolist, Tensor.__repr__
        )  # fmt: skip

        def resized(own: Any, size: int) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(KEYS):
                if not self._storages.holds(own):
                    return resize(own, size)
                whole = self._storages.whole(own)
                if own.nbytes() != size:
                    self._tracer.resized(whole, size, "UntypedStorage.resize_")
            return own

        def copied(own: torch.UntypedStorage, memory: dict[int, Any]) -> Any:
            if not self._storages.holds(own):
                return copy(own, memory)
            if own._cdata not in memory:
                memory[own._cdata] = torch.empty(own.nbytes(), dtype=torch.uint8, device=own.device).untyped_storage()
            return memory[own._cdata]

        def read(function: Callable[..., Any], name: str) -> Callable[..., Any]:
            def found(tensor: Tensor, *arguments: Any, **keywords: Any) -> Any:
                with torch._C._ExcludeDispatchKeyGuard(KEYS):
                    known = tensor if not self._storages.follows(tensor) else self._known.of(tensor)
                    if known is None:
                        raise self._tracer.unseeable(f"Tensor.{name}", READ)
                    return function(known, *arguments, **keywords)

            return found

        def printed(tensor: Tensor, **keywords: Any) -> str:
            is_followed = self._storages.follows(tensor)
            return f"tensor(..., size={tuple(tensor.shape)})" if is_followed else shown(tensor, **keywords)

        with ExitStack() as stack:
            for owner, name, replaced in (
                (storage, "resize_", resized),
                (storage, "__deepcopy__", copied),
                (Tensor, "numpy", read(numpy, "numpy")),
                (Tensor, "tolist", read(listed, "tolist")),
                (Tensor, "__repr__", printed),
                (torch, "tensor", _placed(torch.tensor)),
                (torch, "as_tensor", _placed(torch.as_tensor)),
                (Tensor, "new_tensor", _new_tensor),
            ):
                stack.enter_context(mock.patch.object(owner, name, replaced))
            stack.enter_context(reading_values())
            stack.enter_context(taken_to_be_finite(self._known))
            yield


def _unreachable(*_arguments: Any, **_keywords: Any) -> None:
    raise AssertionError("operators come by the dispatch key Fake first")


def _placed(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make a tensor of data on the host, and copy it then: both at once does not come by the dispatch key."""

    def placed(data: Any, *, device: Any = None, requires_grad: bool = False, **keywords: Any) -> Tensor:
        device = torch.empty(0).device if device is None else torch.device(device)
        if isinstance(data, Tensor) or device.type != "cuda":
            given = {"requires_grad": True} if requires_grad else {}
            return make(data, device=device, **keywords, **given)
        found = make(data, device="cpu", **keywords).to(device)
        return found.requires_grad_() if requires_grad else found

    return placed


def _new_tensor(
    tensor: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """`Tensor.new_tensor`."""
    found = torch.tensor(data, dtype=dtype or tensor.dtype, device=tensor.device if device is None else device)
    return found.requires_grad_() if requires_grad else found
