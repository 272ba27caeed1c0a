"""Follow the storages of a program that runs on fake tensors."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from harness.tools.probe.accumulation import accumulated
from harness.tools.probe.attention import attention_of
from harness.tools.probe.device_table import Device
from harness.tools.probe.errors import READ, Unseeable
from harness.tools.probe.host_integers import HostIntegers, known_as, taken_to_be_finite
from harness.tools.probe.host_values import is_on_host
from harness.tools.probe.kernel_memory import BIASED, BLAS, hidden_temporaries, is_unmeasured
from harness.tools.probe.places import Lines, Modules
from harness.tools.probe.present_device import present_device
from harness.tools.probe.pretended_cuda import pretended_cuda
from harness.tools.probe.replicas import reducing
from harness.tools.probe.trace import EMPTY_CACHE, Block, Owner, Place, Trace
from harness.tools.probe.unknown_value import reading_values

__all__ = ["Fakes", "Tracer"]

_LT_WORKSPACE = 1 << 20
"""Bytes that torch keeps for cuBLASLt, unless CUBLASLT_WORKSPACE_SIZE says more."""

_current_node: Callable[[], Any] = torch._C._current_autograd_node


# The operators of foreach and fused optimizers that write into their arguments.
_IN_PLACE = frozenset(
    name
    for name in torch._C._dispatch_get_all_op_names()
    if name.startswith(("aten::_foreach_", "aten::_fused_")) and name.partition(".")[0].endswith("_")
)


_FAKE = "it has no fake implementation; register one with torch.library.register_fake, or use another operator"
_SIZED = "its result has a size that depends on values; use a fixed size"

# Numbers on the device are taken to be finite, so that a loop that looks for others goes its usual way.
_FINITE = (torch.ops.aten.isnan, torch.ops.aten.isinf)
_PINNING = (torch.ops.aten._pin_memory, torch.ops.aten.pin_memory)


class _Watch(weakref.ref):  # type: ignore[type-arg]
    """A weak reference to a storage, with the key and the number of its block."""

    __slots__ = ("key", "number")
    key: int
    number: int


class Tracer:
    """Traces code as if it ran on a CUDA device.

    Attributes:
        trace: what was allocated and freed so far.
        live: bytes that are allocated now; `peak` is the most so far.
        stream: the number of the current stream.
    """

    def __init__(self, device: Device) -> None:
        self.trace = Trace()
        self.live = 0
        self.peak = 0
        self.stream = 0
        self._device = device
        self._lines = Lines()
        self._modules = Modules()
        self._watches: dict[int, _Watch] = {}
        self._phase = "build"
        self._in_optimizer = 0
        self._in_backward = False
        self._parameters: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._seen_modules: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._owning: dict[int, str] = {}
        self._operators: set[Any] = set()
        self._workspaces: set[bool | None] = set()

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Run the block on fake tensors and follow its storages.

        Raises:
            Unseeable: the code does something that fake tensors cannot show.
        """
        fake = Fakes()
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")  # torch copies modules so
            stack.enter_context(self.pretending())
            for handle in (
                register_module_forward_pre_hook(self._module_entered),
                register_module_forward_hook(self._modules.left, always_call=True),
                register_optimizer_step_pre_hook(self._optimizer_entered),
                register_optimizer_step_post_hook(self._optimizer_left),
            ):
                stack.callback(handle.remove)
            stack.enter_context(mock.patch.object(torch.UntypedStorage, "resize_", self._resizing()))
            stack.enter_context(reading_values())
            stack.enter_context(taken_to_be_finite())
            stack.enter_context(fake)
            stack.enter_context(_Dispatch(self))
            yield

    @contextmanager
    def pretending(self) -> Iterator[None]:
        """Pretend that this process has the device."""
        FakeTensorMode()  # imports parts of torch that must see the real torch.cuda
        with present_device(), pretended_cuda(self, self._device), attention_of(self._device), reducing():
            yield

    def begin(self, phase: str) -> None:
        """Begin a phase: `build`, or a step."""
        self._phase = phase
        self._in_backward = False
        self.trace.starts.append((phase, len(self.trace.events)))

    def end(self) -> None:
        """End the phase: name the owners of what lives now."""
        self._claim()

    def place(self, operator: str) -> Place:
        """Where the code is now."""
        node = _current_node()
        if self._in_optimizer:
            part = "optimizer"
        elif node is not None:
            part = "backward"
        else:
            part = "forward"
        module = self._modules.running()
        if node is not None and not module:
            module = self._modules.of_node(node)
        phase = self._phase if self._phase == "build" else f"{self._phase}, {part}"
        line, library = self._lines.now()
        return Place(phase, operator, line, library, module)

    def unseeable(self, operator: Any, remedy: str) -> Unseeable:
        """The refusal of an operator, with the line where the code is now."""
        place = self.place(str(operator))
        where = f"{place.line} (from {place.library})" if place.library else place.line
        return Unseeable(str(operator), where, remedy)

    def empty_cache(self) -> None:
        self.trace.events.append(EMPTY_CACHE)

    def ran(self, operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> None:
        """Note the storages that an operator made."""
        node = _current_node()
        if node is None:
            if self._in_backward:
                self._in_backward = False
        elif not self._in_backward:
            self._in_backward = True
            self._own_all(Owner.ACTIVATIONS)
        packet = operator.overloadpacket
        if operator not in self._operators:
            self._operators.add(operator)
            if is_unmeasured(operator.name()):
                self.trace.unmeasured.add(operator.name())
        if isinstance(result, torch.Tensor):
            self._note(operator, result, node)
        elif isinstance(result, (list, tuple)):
            for each in result:
                if isinstance(each, torch.Tensor):
                    self._note(operator, each, node)
        if packet in BLAS:
            self._workspace(str(operator), node is not None, self._device.blas_workspace)
        if packet in BIASED:
            self._workspace(str(operator), None, _LT_WORKSPACE)
        hidden = hidden_temporaries(packet, arguments, result, self._device)
        if hidden:
            place = self.place(str(operator))
            numbers = [self._allocate(Block(size, place, place.module, self.stream)) for size in hidden]
            for number in numbers:
                self._free(number)

    def _note(self, operator: Any, tensor: torch.Tensor, node: Any) -> None:
        if not isinstance(tensor, FakeTensor) or tensor.fake_device.type != "cuda":
            return
        if tensor.layout is not torch.strided:
            raise self.unseeable(operator, f"tensors of the layout {tensor.layout} are not followed; use dense ones")
        if tensor.fake_device.index:
            raise self.unseeable(operator, f"its result is on {tensor.fake_device}; only one GPU is followed, cuda:0")
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._watches:
            return
        size = storage.nbytes()
        if not size:
            return
        place = self.place(str(operator))
        block = Block(size, place, place.module, self.stream)
        if node is not None and torch.is_grad_enabled():
            block.owner = Owner.ACTIVATIONS
        watch = _Watch(storage, self._died)
        watch.key = key
        watch.number = self._allocate(block)
        self._watches[key] = watch

    def _resizing(self) -> Callable[[torch.UntypedStorage, int], torch.UntypedStorage]:
        """`UntypedStorage.resize_`, with which sharded modules free and allocate again what they gather."""
        resize = torch.UntypedStorage.resize_

        def resized(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
            resize(storage, size)
            watch = self._watches.get(storage._cdata)
            if watch is not None:
                block = self.trace.blocks[watch.number - 1]
                if block.bytes != size:
                    place = self.place("UntypedStorage.resize_")
                    self._free(watch.number)
                    watch.number = self._allocate(Block(size, place, block.module, block.stream, block.owner))
            return storage

        return resized

    def _died(self, watch: _Watch) -> None:
        if self._watches.get(watch.key) is watch:
            del self._watches[watch.key]
        self._free(watch.number)

    def _allocate(self, block: Block) -> int:
        self.live += block.bytes
        self.peak = max(self.peak, self.live)
        return self.trace.allocate(block)

    def _free(self, number: int) -> None:
        self.live -= self.trace.blocks[number - 1].bytes
        self.trace.free(number)

    def _workspace(self, operator: str, thread: bool | None, size: int) -> None:
        """cuBLAS keeps a workspace for each thread that calls it; torch runs backward in a thread of its own."""
        if thread not in self._workspaces:
            self._workspaces.add(thread)
            self._allocate(Block(size, self.place(operator), "", owner=Owner.WORKSPACES))

    def _module_entered(self, module: torch.nn.Module, inputs: Any) -> None:
        self._modules.entered(module, inputs)
        if module not in self._seen_modules:
            self._own_module(module)

    def _own_module(self, module: torch.nn.Module) -> None:
        for inner in module.modules():
            self._seen_modules.add(inner)
            name = self._modules.name(inner)
            for parameter in inner._parameters.values():
                if parameter is not None:
                    self._parameters[id(parameter)] = parameter
                    self._owning.setdefault(id(parameter), name)
                    self._own(parameter, Owner.PARAMETERS, name)
            for buffer in inner._buffers.values():
                if buffer is not None:
                    self._own(buffer, Owner.BUFFERS, name)

    def _optimizer_entered(self, optimizer: torch.optim.Optimizer, _arguments: Any, _keywords: Any) -> None:
        self._in_optimizer += 1
        self._optimizers.add(optimizer)
        self._claim()

    def _optimizer_left(self, _optimizer: torch.optim.Optimizer, _arguments: Any, _keywords: Any) -> None:
        self._in_optimizer -= 1
        self._claim()

    def _claim(self) -> None:
        """Name the owners of the storages that parameters, gradients and optimizers hold now."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    self._parameters[id(parameter)] = parameter
            for parameter, state in optimizer.state.items():
                for value in state.values() if isinstance(state, dict) else ():
                    if isinstance(value, torch.Tensor):
                        self._own(value, Owner.OPTIMIZER, self._owning.get(id(parameter), ""))
        for parameter in self._parameters.values():
            name = self._owning.get(id(parameter), "")
            self._own(parameter, Owner.PARAMETERS, name)
            if parameter.grad is not None:
                self._own(parameter.grad, Owner.GRADIENTS, name)

    def claim_build(self) -> None:
        """Name the build's storages `inputs` if no module or optimizer holds them."""
        self._own_all(Owner.INPUTS)

    def _own(self, tensor: Any, owner: Owner, module: str) -> None:
        if is_functorch_wrapped_tensor(tensor):
            return  # what it wraps belongs to something else
        if is_traceable_wrapper_subclass(tensor):
            for name in tensor.__tensor_flatten__()[0]:
                inner = getattr(tensor, name)
                if isinstance(inner, torch.Tensor):
                    self._own(inner, owner, module)
            return
        watch = self._watches.get(tensor.untyped_storage()._cdata)
        if watch is not None:
            block = self.trace.blocks[watch.number - 1]
            block.owner, block.module = owner, module

    def _own_all(self, owner: Owner) -> None:
        """Give an owner to everything that lives and has none yet."""
        for watch in self._watches.values():
            block = self.trace.blocks[watch.number - 1]
            if block.owner is Owner.TEMPORARIES:
                block.owner = owner


class Fakes(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Fake tensors only: `torch.tensor(…, device="cuda")` would make a real one on the device first."""

    avoid_device_init = True

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)


def _set_zero(tensor: torch.Tensor) -> None:
    """Let code read a zero from a fake tensor of one element."""
    if isinstance(tensor, FakeTensor) and tensor.numel() == 1:
        with unset_fake_temporarily():
            tensor.constant = torch.zeros(tuple(tensor.shape), dtype=tensor.dtype)
        tensor.fake_mode.fake_tensor_converter.add_constant_storage_mapping(tensor)


class _Dispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, tracer: Tracer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tracer = tracer
        self._known = HostIntegers()

    def __torch_dispatch__(
        self, operator: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None
    ) -> Any:
        keywords = keywords or {}
        if any(issubclass(each, torch.Tensor) and hasattr(each, "__tensor_flatten__") for each in types):
            return NotImplemented  # a tensor of other tensors, such as a shard: its own operators on these come here
        if operator.name() in _IN_PLACE and arguments[0] and arguments[0][0].device.type == "cuda":
            return None  # allocates nothing, and fake tensors would take long to find that out
        if operator.overloadpacket in _PINNING:
            return arguments[0]
        if keywords.get("pin_memory"):
            keywords = {**keywords, "pin_memory": False}
        if is_on_host(operator, arguments, keywords):
            with unset_fake_temporarily():
                return operator(*arguments, **keywords)
        operator, arguments = accumulated(operator, arguments)
        try:
            result = operator(*arguments, **keywords)
        except (UnsupportedOperatorException, NotImplementedError) as error:
            raise self._tracer.unseeable(operator, _FAKE) from error
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            result = self._known.computed_anew(operator, arguments, keywords)
            if result is None:
                sized = isinstance(error, DynamicOutputShapeException)
                raise self._tracer.unseeable(operator, _SIZED if sized else READ) from error
            if not isinstance(result, torch.Tensor):
                return result
        else:
            self._known.follow(operator, arguments, keywords, result)
        if operator.overloadpacket in _FINITE:
            known_as(result, False)
        elif operator.overloadpacket is torch.ops.aten._amp_foreach_non_finite_check_and_unscale_:
            _set_zero(arguments[1])
        self._tracer.ran(operator, arguments, keywords, result)
        return result
