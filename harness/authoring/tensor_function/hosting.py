"""Calls a function of tensors in this process as a `Call` specifies, and checks its side effects.

    caller = Host(silu_mul)     # before anything has called it

This module binds the torch functions that create, copy and compare tensors when it is imported, before the subject is.
"""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from traceback import walk_tb
from typing import Any, Final

import torch
from torch import Tensor

from harness.authoring.tensor_function.call import Answer, Call, filled
from harness.authoring.tensor_function.cuda_contexts import captured, on_other_device, on_other_stream, on_two_streams
from harness.authoring.tensor_function.fresh_process import FreshProcess
from harness.authoring.tensor_function.placed_memory import Arena, Placed, copied, digest, fits, shares_memory
from harness.authoring.tensor_function.surroundings import changes, other_settings, surroundings

__all__ = ["CONTEXTS", "Host", "NotPlainTensor", "tensors_of"]

_KEPT: Final = 12
"""Results of earlier calls that are checked for changes after each call."""
_LONGEST: Final = 500
_ROUNDINGS: Final = 16
_STEP: Final = 1 << 26
"""Numbers that are compared at once."""
_grad, _requires = torch.autograd.grad, torch.Tensor.requires_grad_
_no_grad, _inference, _autocast = torch.no_grad, torch.inference_mode, torch.autocast
_GPU_PATHS: Final = (os.path.join("torch", "cuda", ""), os.path.join("triton", "runtime", "driver.py"))
_OPERATORS: Final = os.path.join("torch", "_ops.py")
_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)

Function = Callable[..., Any]
Around = Callable[[Function, Sequence[Any], Mapping[str, Any]], Any]


def _within(context: Callable[[], AbstractContextManager[Any]]) -> Around:
    def around(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with context():
            return function(*args, **kwargs)

    return around


def _compiled(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    is_on_gpu = any(isinstance(arg, Tensor) and arg.is_cuda for arg in args)
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, backend="inductor" if is_on_gpu else "aot_eager")
    return compiled(*args, **kwargs)


def _bfloat16(device: str) -> Around:
    return _within(lambda: _autocast(device, dtype=torch.bfloat16))


def _with_other_settings(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call the function under negated global flags, so that a flag that it resets to torch's default is detected."""
    with other_settings(function.seen):  # type: ignore[attr-defined]
        return function(*args, **kwargs)


CONTEXTS: Final[Mapping[str, Around]] = {
    "plain": _within(nullcontext),
    "no_grad": _within(_no_grad),
    "inference_mode": _within(_inference),
    "autocast": _bfloat16("cpu"),
    "autocast on CUDA": _bfloat16("cuda"),
    "compiled": _compiled,
    "other settings": _with_other_settings,
    "other stream": on_other_stream,
    "two streams": on_two_streams,
    "graph": captured,
    "other device": on_other_device,
}
"""Ways to call a function, by name."""


class NotPlainTensor(TypeError):
    """A result is not a plain tensor, but of a class that could override torch's functions."""

    def __init__(self, what: str, kind: type[Any]) -> None:
        super().__init__(f"{what} is a {kind.__qualname__}, not a torch.Tensor")


class Host:
    """Calls a function in this process. See `Caller` for its methods.

    It limits torch to one thread, so that a fresh process sums in the same order.
    """

    def __init__(self, function: Function) -> None:
        """Fork the server of fresh processes.

        Raises:
            RuntimeError: CUDA is already initialized.
        """
        torch.set_num_threads(1)
        self.function = function
        self._arena = Arena()
        self._earlier: deque[tuple[str, Tensor, str]] = deque(maxlen=_KEPT)
        self._calls = 0
        self._fresh = FreshProcess(self._fresh_result)

    def call(self, call: Call) -> Answer:
        """See `Caller`."""
        self._calls += 1
        placed = self._placed(call)
        upstream: list[Placed] = []
        leaves = [copy.tensor for copy in placed]
        if call.twice:
            leaves[call.twice[1]] = leaves[call.twice[0]]
        for index, leaf in enumerate(leaves):
            if call.twice and index == call.twice[1]:
                continue
            if leaf.is_floating_point() or leaf.is_complex():
                _requires(leaf.detach_() if leaf.grad_fn is not None else leaf, index in call.grad_inputs)
        before = surroundings()
        side_effects: list[tuple[str, str]] = []
        try:
            outputs, gradients, detached = self._run(call, leaves, upstream, side_effects)
            if any(leaf.is_cuda for leaf in leaves):
                torch.cuda.synchronize()  # raises a kernel's failed assertion
        except Exception as error:
            if isinstance(error, NotPlainTensor):
                side_effects.append(("plain_tensors", str(error)))
            try:
                side_effects += self._changed_inputs(placed, upstream, before)
            except RuntimeError:  # after a failed assertion or an illegal address, the CUDA context is unusable
                return Answer(raised=_error_text(error), crashed=_error_text(error), complaints=tuple(side_effects))
            return Answer(raised=_error_text(error), complaints=tuple(side_effects), needs_gpu=_needs_gpu(error))
        side_effects += self._changed_inputs(placed, upstream, before)
        side_effects += self._aliased(outputs, leaves)
        side_effects += self._overwritten()
        results = [(f"output {index}", output) for index, output in enumerate(outputs)]
        results += [
            (f"gradient of tensor {index}", gradient)
            for index, gradient in zip(call.grad_inputs, gradients, strict=False)
        ]
        # A gradient may alias the upstream gradient, whose memory the next call overwrites.
        inputs = [*leaves, *(copy.tensor for copy in upstream)]
        results = [
            (what, tensor) for what, tensor in results if not any(shares_memory(tensor, other) for other in inputs)
        ]
        self._earlier += [(what, tensor, digest([tensor])) for what, tensor in results]
        answer = Answer(
            outputs=tuple(map(copied, outputs)),
            gradients=tuple(map(copied, gradients)),
            detached=detached,
            complaints=tuple(dict.fromkeys(side_effects)),
            digest=digest([*outputs, *gradients]),
            has_nan=any(bool(output.isnan().any()) for output in outputs),
        )
        if call.memory == "objects":
            for leaf in leaves:
                leaf.requires_grad_(False)
        return answer

    def call_fresh(self, call: Call) -> Answer:
        """See `Caller`."""
        try:
            digest_, raised, has_nan, complaints = self._fresh(call)
        except ChildProcessError as error:
            return Answer(crashed=str(error))
        if raised and call.grad_inputs and not self._forks_differentiate():
            return Answer(untried="autograd's threads ran before the process was forked, so it has no backward pass")
        return Answer(digest=digest_, raised=raised, has_nan=has_nan, complaints=tuple(map(tuple, complaints)))

    def growth(self, call: Call, times: int) -> tuple[int, int]:
        """See `Caller`."""
        plain = replace(call, upstream=(), grad_inputs=(), second=())

        def once() -> None:
            placed = self._placed(plain)
            args, kwargs = filled(plain.arguments, [copy.tensor for copy in placed])
            self.function(*args, **kwargs)

        for _ in range(3):
            once()
        before = _live_tensors()
        for _ in range(times):
            once()
        tensors, memory = _live_tensors()
        return tensors - before[0], memory - before[1]

    def repeated(
        self, call: Call, places: tuple[int, ...], times: int, outputs: tuple[int, ...]
    ) -> tuple[str, list[str]]:
        """See `Caller`."""
        tensors = list(call.tensors)
        size = len(tensors[places[0]])
        for place in places:
            tensors[place] = tensors[place].repeat(times, *[1] * (tensors[place].dim() - 1))
        args, kwargs = filled(call.arguments, tensors)
        try:
            results = tensors_of(self.function(*args, **kwargs))
            wrong = [(place, _unlike(results[place], size)) for place in outputs]
        except Exception as error:
            return _error_text(error), []
        return "", [f"output {place} has another row {row} than row {row % size}" for place, row in wrong if row >= 0]

    def is_operator(self) -> bool:
        """See `Caller`."""
        from torch._library.custom_ops import CustomOpDef

        return isinstance(self.function, CustomOpDef | torch._ops.OpOverload | torch._ops.OpOverloadPacket)

    def operator_check(self, call: Call) -> str:
        """See `Caller`."""
        args, kwargs = filled(call.arguments, [copy.tensor for copy in self._placed(call)])
        operator: Any = self.function
        outcomes = torch.library.opcheck(operator, tuple(args), kwargs, raise_exception=False)
        return "; ".join(f"{name}: {why}" for name, why in outcomes.items() if why != "SUCCESS")[:_LONGEST]

    def close(self) -> None:
        """End the server of fresh processes."""
        self._fresh.close()

    def _forks_differentiate(self) -> bool:
        """Whether torch can run a backward pass in a fresh process."""
        try:
            return bool(self._fresh(None))
        except ChildProcessError:
            return False

    def _fresh_result(self, call: Call | None) -> Any:
        """Call the function in the fresh process; without a call, try a backward pass. The result is JSON."""
        if call is None:
            torch.ones(1, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]
            return True
        answer = self.call(call)
        return answer.digest, answer.raised, answer.has_nan, answer.complaints

    def _placed(self, call: Call) -> list[Placed]:
        layouts = call.layouts or ("contiguous",) * len(call.tensors)
        slots = enumerate(zip(call.tensors, layouts, strict=True))
        return [self._arena.place(tensor, layout, call.memory, slot) for slot, (tensor, layout) in slots]

    def _upstream(self, call: Call, slot: int, content: Tensor, output: Tensor) -> Placed:
        """Place an upstream gradient in the output's dtype, with the memory mode of the inputs."""
        layout = call.upstream_layout if fits(tuple(content.shape), call.upstream_layout) else "contiguous"
        return self._arena.place(content.to(output.dtype), layout, call.memory, -1 - slot)

    def _run(
        self, call: Call, leaves: list[Tensor], upstream: list[Placed], side_effects: list[tuple[str, str]]
    ) -> tuple[list[Tensor], list[Tensor], bool]:
        args, kwargs = filled(call.arguments, leaves)
        outputs = tensors_of(CONTEXTS[call.context](self._observed(side_effects), args, kwargs))
        if not (call.upstream and call.grad_inputs):
            return outputs, [], False
        sources = [leaves[index] for index in call.grad_inputs]
        numbered = enumerate(zip(outputs, call.upstream, strict=False))
        upstream += [self._upstream(call, slot, up, output) for slot, (output, up) in numbered]
        pairs = [(output, up.tensor) for output, up in zip(outputs, upstream, strict=False) if output.requires_grad]
        if not pairs:
            return outputs, [], True
        again = bool(call.second)
        grads = _grad(
            [output for output, _ in pairs], sources, [up for _, up in pairs], create_graph=again, allow_unused=True
        )
        if again:
            first = [grad for grad in grads if grad is not None]
            if not any(grad.requires_grad for grad in first):
                raise RuntimeError("the gradients cannot be differentiated again")
            products = zip(grads, call.second, strict=True)
            terms = [(grad * factor).sum() for grad, factor in products if grad is not None]
            total = torch.stack(terms).sum()
            grads = _grad([total], sources, allow_unused=True)
        zeros = (
            torch.zeros_like(source) if grad is None else grad for source, grad in zip(sources, grads, strict=True)
        )
        gradients = list(zeros)
        for index, gradient in zip(call.grad_inputs, gradients, strict=True):
            if type(gradient) not in _PLAIN:
                raise NotPlainTensor(f"the gradient of tensor {index}", type(gradient))
        return outputs, gradients, False

    def _observed(self, side_effects: list[tuple[str, str]]) -> Function:
        """Wrap the function, with the list of side effects as its attribute `seen` for the contexts."""
        subject = self.function

        def function(*args: Any, **kwargs: Any) -> Any:
            return subject(*args, **kwargs)

        function.seen = side_effects  # type: ignore[attr-defined]
        return function

    def _changed_inputs(
        self, placed: list[Placed], upstream: list[Placed], before: Mapping[str, Any]
    ) -> list[tuple[str, str]]:
        """Return changes to inputs, to memory around them and to global settings."""
        problems = [("settings_kept", f"{what} is changed") for what in changes(before)]
        for name, group in (("tensor", placed), ("upstream gradient", upstream)):
            for index, tensor in enumerate(group):
                if not tensor.is_unchanged():
                    problems.append(("inputs_kept", f"{name} {index}, or the memory around it, is changed"))
                if tensor.tensor.grad is not None:
                    problems.append(("inputs_kept", f"{name} {index} has got a .grad"))
        return problems

    def _aliased(self, outputs: list[Tensor], leaves: list[Tensor]) -> list[tuple[str, str]]:
        """Return outputs that share memory with an input, another output or an earlier result."""
        others = [(f"tensor {index}", leaf) for index, leaf in enumerate(leaves)]
        others += [(f"an earlier call's {what}", tensor) for what, tensor, _ in self._earlier]
        problems = []
        for index, output in enumerate(outputs):
            for name, other in others:
                if shares_memory(output, other):
                    problems.append(("no_shared_memory", f"output {index} shares memory with {name}"))
            others.append((f"output {index}", output))
        return problems

    def _overwritten(self) -> list[tuple[str, str]]:
        changed = [digest([tensor]) != before for _, tensor, before in self._earlier]
        changed_names = [what for (what, _, _), is_changed in zip(self._earlier, changed, strict=True) if is_changed]
        pairs = zip(self._earlier, changed, strict=True)
        self._earlier = deque((earlier for earlier, is_changed in pairs if not is_changed), maxlen=_KEPT)
        return [("outputs_kept", f"an earlier call's {what} is changed by a later call") for what in changed_names]


def tensors_of(value: Any) -> list[Tensor]:
    """Flatten a return value into tensors: a tensor or number, or tuples, lists, dicts and dataclasses of them.

    Raises:
        NotPlainTensor: it contains a value of another type, or an instance of a subclass of Tensor.
    """
    kind = type(value)
    if kind in _PLAIN:
        return [value]
    if value is None:
        return []
    if kind in (int, float, bool):
        return [torch.tensor(value, dtype=torch.float64 if kind is float else None)]
    if issubclass(kind, tuple):
        return [tensor for item in tuple.__iter__(value) for tensor in tensors_of(item)]
    if issubclass(kind, list):
        return [tensor for item in list.__iter__(value) for tensor in tensors_of(item)]
    if issubclass(kind, dict):
        return [tensor for item in dict.values(value) for tensor in tensors_of(item)]
    if hasattr(kind, "__dataclass_fields__"):
        return [tensor for name in kind.__dataclass_fields__ for tensor in tensors_of(getattr(value, name))]
    raise NotPlainTensor("the returned value", kind)


def _unlike(output: Tensor, size: int) -> int:
    """Return the first row that differs from the row of the first `size` ones that it repeats; -1 if there is none.

    A row may be summed in another order, so numbers may differ by a few roundings of the largest of them.
    """
    first = output[:size].detach()
    bound = _ROUNDINGS * torch.finfo(output.dtype).eps * first.abs().amax()
    step = max(size, _STEP // max(1, first[0].numel()) // size * size)
    for start in range(0, len(output), step):
        part = output[start : start + step].detach()
        near = (part.reshape(-1, *first.shape) - first).abs() <= bound
        if not bool(near.all()):
            return start + int((~near.reshape(len(part), -1).all(-1)).int().argmax())
    return -1


def _live_tensors() -> tuple[int, int]:
    gc.collect()
    tensors = sum(1 for item in gc.get_objects() if type(item) is Tensor)
    return tensors, torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0  # type: ignore[no-untyped-call]


def _error_text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = "its text cannot be read"
    return f"{type(error).__name__}: {text}".strip().partition("\n")[0][:_LONGEST]


def _needs_gpu(error: Exception) -> bool:
    """See `Answer.needs_gpu`. The place of the exception decides, and not its text, which the function can choose."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    file = frame.f_code.co_filename
    if file.endswith(_OPERATORS):
        return isinstance(error, NotImplementedError)
    return any(path in file for path in _GPU_PATHS)
