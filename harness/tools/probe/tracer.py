"""Follow the storages of a program that runs on tensors without memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from harness.tools.probe.attention import attention_of
from harness.tools.probe.device_table import Device
from harness.tools.probe.errors import Unseeable
from harness.tools.probe.interception import intercepted
from harness.tools.probe.kernel_memory import BIASED, BLAS, hidden_temporaries, is_unmeasured
from harness.tools.probe.places import Lines, Modules
from harness.tools.probe.present_device import present_device
from harness.tools.probe.pretended_cuda import pretended_cuda
from harness.tools.probe.replicas import reducing
from harness.tools.probe.storages import Storages
from harness.tools.probe.trace import Block, Owner, Place, Trace

__all__ = ["Tracer"]

_LT_WORKSPACE = 1 << 20
"""Bytes that torch keeps for cuBLASLt, unless CUBLASLT_WORKSPACE_SIZE says more."""

_current_node: Callable[[], Any] = torch._C._current_autograd_node


class Tracer:
    """Traces code as if it ran on a CUDA device.

    Attributes:
        trace: the allocations and frees so far.
        live: bytes that are allocated now; `peak` is the most so far.
        stream: the number of the current stream.
    """

    def __init__(self, device: Device) -> None:
        self.trace = Trace()
        self.storages = Storages()
        self.stream = 0
        self._device = device
        self._lines = Lines()
        self._modules = Modules()
        self._phase = "build"
        self._in_optimizer = 0
        self._in_backward = False
        self._parameters: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._seen_modules: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._owning: dict[int, str] = {}
        self._operators: set[Any] = set()
        self._workspaces: set[bool | None] = set()

    @property
    def live(self) -> int:
        """Bytes that are allocated now."""
        return self.storages.live

    @property
    def peak(self) -> int:
        """The most bytes that were allocated so far."""
        return self.storages.peak

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Run the block on fake tensors and follow its storages.

        Raises:
            Unseeable: the code does something that fake tensors cannot show.
        """
        with ExitStack() as stack:
            # What runs on the host is small, and threads that wait for each other cost more than they save.
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
            stack.enter_context(self.pretending())
            for handle in (
                register_module_forward_pre_hook(self._module_entered),
                register_module_forward_hook(self._modules.left, always_call=True),
                register_optimizer_step_pre_hook(self._optimizer_entered),
                register_optimizer_step_post_hook(self._optimizer_left),
            ):
                stack.callback(handle.remove)
            stack.callback(self._close)
            self._gradient = self.storages.zeros((), torch.float32, torch.device("cuda", 0))
            self._leaf = self._gradient.detach().requires_grad_()
            stack.enter_context(self._lines.backward(self._settle))
            stack.enter_context(intercepted(self))
            yield

    @contextmanager
    def pretending(self) -> Iterator[None]:
        """Pretend that this process has the device."""
        FakeTensorMode()  # imports parts of torch that need the real torch.cuda
        with present_device(), pretended_cuda(self, self._device), attention_of(self._device), reducing():
            yield

    def _settle(self, engine: Callable[..., Any]) -> None:
        """Wait until the engine's thread has freed what it held for the last backward.

        The thread does so after the caller goes on, at a moment that depends on the load. It is done when it begins the
        next backward: this one, of a leaf without memory, which runs no operator.
        """
        if _current_node() is None:
            engine((self._leaf,), (self._gradient,), False, False, (self._leaf,), False, accumulate_grad=False)

    def begin(self, phase: str) -> None:
        """Begin a phase: `build`, or a step."""
        self._phase = phase
        self._in_backward = False
        self.trace.starts.append((phase, len(self.storages)))

    def end(self) -> None:
        """End the phase, and assign the owners of the live storages."""
        self._claim()

    def place(self, operator: str) -> Place:
        """The current place in the code."""
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
        """Return the error for an unsupported operator, with the current line."""
        place = self.place(str(operator))
        where = f"{place.line} (from {place.library})" if place.library else place.line
        return Unseeable(str(operator), where, remedy)

    def empty_cache(self) -> None:
        self.storages.empty_cache()

    def _close(self) -> None:
        self.trace.events[:] = self.storages.events()
        self.storages.close()

    def ran(self, operator: Any, arguments: tuple[Any, ...], result: Any) -> None:
        """Record the temporary memory of an operator."""
        packet = operator.overloadpacket
        if operator not in self._operators:
            self._operators.add(operator)
            if is_unmeasured(operator.name()):
                self.trace.unmeasured.add(operator.name())
        if not (arguments and isinstance(arguments[0], torch.Tensor) and arguments[0].is_cuda):
            return
        if packet in BLAS:
            self._workspace(str(operator), _current_node() is not None, self._device.blas_workspace)
        if packet in BIASED:
            self._workspace(str(operator), None, _LT_WORKSPACE)
        hidden = hidden_temporaries(packet, arguments, result, self._device)
        if hidden:
            place = self.place(str(operator))
            numbers = [self._allocate(Block(size, place, place.module, self.stream)) for size in hidden]
            for number in numbers:
                self.storages.free(number)

    def begun(self) -> None:
        """Record that an operator begins. Storages that are alive when backward begins are activations."""
        if _current_node() is None:
            self._in_backward = False
        elif not self._in_backward:
            self._in_backward = True
            self._own_all(Owner.ACTIVATIONS)

    def made(self, operator: Any, fake: torch.Tensor) -> torch.Tensor:
        """A new tensor that an operator returns, with the shape of a fake one.

        Raises:
            Unseeable: it is sparse, or on a second GPU.
        """
        device = fake.device
        if fake.layout is not torch.strided:
            raise self.unseeable(operator, f"tensors of the layout {fake.layout} are not followed; use dense ones")
        if device.type == "cuda" and device.index:
            raise self.unseeable(operator, f"its result is on {device}; only one GPU is followed, cuda:0")
        size = fake.untyped_storage().nbytes()
        tensor = self.storages.empty(fake.shape, fake.stride(), fake.dtype, device, size)
        if self.storages.number(tensor):
            self._placed(str(operator), size, None)
        return tensor

    def resized(self, tensor: torch.Tensor, size: int, operator: str) -> None:
        """Resize the storage of a tensor, as sharded modules do to free gathered parameters."""
        before = self.storages.number(tensor)
        if self.storages.resize(tensor, size):
            self._placed(operator, size, self.trace.blocks[before - 1] if before else None)

    def _placed(self, operator: str, size: int, before: Block | None) -> None:
        """Describe the newest block: like the block that it replaces, or by the current place in the code."""
        place = self.place(operator)
        block = Block(size, place, place.module, self.stream)
        if before is not None:
            block.module, block.stream, block.owner = before.module, before.stream, before.owner
        elif _current_node() is not None and torch.is_grad_enabled():
            block.owner = Owner.ACTIVATIONS
        self.trace.blocks.append(block)

    def _allocate(self, block: Block) -> int:
        self.trace.blocks.append(block)
        return self.storages.allocate(block.bytes)

    def _workspace(self, operator: str, thread: bool | None, size: int) -> None:
        """Allocate the workspace that cuBLAS keeps for each calling thread. torch runs backward in a separate
        thread."""
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
        """Assign the owners of the storages that parameters, gradients and optimizers hold now."""
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
        """Assign the owner `inputs` to storages of the build that no module or optimizer holds."""
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
        number = self.storages.number(tensor)
        if number:
            block = self.trace.blocks[number - 1]
            block.owner, block.module = owner, module

    def _own_all(self, owner: Owner) -> None:
        """Assign this owner to all live storages without one."""
        for number in self.storages.lives(len(self.trace.blocks)):
            block = self.trace.blocks[number - 1]
            if block.owner is Owner.TEMPORARIES:
                block.owner = owner
