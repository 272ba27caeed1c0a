"""Computes an operator's results for tensors without memory, on torch's fake tensors, once for each kind of call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from harness.tools.probe.storages import Storages

__all__ = ["Fakes", "Results"]

_MADE, _SAME, _VIEW, _VALUE = range(4)
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, complex)


class Fakes(FakeTensorMode):  # type: ignore[no-untyped-call]
    """A mode with fake tensors only.

    Otherwise `torch.tensor(…, device="cuda")` would first create a real tensor on the device, and torch would run
    operators without a formula for fake tensors on real zeros.
    """

    avoid_device_init = True

    def __init__(self) -> None:
        super().__init__(allow_fallback_kernels=False, allow_non_fake_inputs=True)


class _Plan:
    """A recipe for the results of a call from its arguments.

    Attributes:
        leaves: for each result, its kind, its fake tensor, and the index of the argument that it uses.
        changed: the arguments whose shape changes, with a fake tensor of the new shape.
        is_single: whether the result is a single value without a structure around it.
    """

    __slots__ = ("changed", "is_single", "leaves", "structure")

    def __init__(self, leaves: list[tuple[int, Any, int]], structure: Any, changed: list[tuple[int, Any]]) -> None:
        self.leaves = leaves
        self.structure = structure
        self.changed = changed
        self.is_single = len(leaves) == 1 and structure.is_leaf()


class Results:
    """Runs operators on fake tensors with the shapes of given tensors, and makes tensors with the shapes found."""

    def __init__(
        self,
        storages: Storages,
        made: Callable[[Any, Tensor], Tensor],
        resized: Callable[[Tensor, int, str], None],
    ) -> None:
        """`made` creates an operator's new tensor with the shape of a fake one; `resized` resizes a storage."""
        self._storages = storages
        self._made = made
        self._resized = resized
        self._mode = Fakes()
        self._plans: dict[Any, _Plan] = {}

    def fakes(self) -> Fakes:
        """The mode of fake tensors."""
        return self._mode

    def of(self, operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The results of an operator.

        Raises:
            UnsupportedOperatorException, DataDependentOutputException, DynamicOutputShapeException: as fake tensors.
        """
        inputs: list[Tensor] = []
        try:
            key: Any = (operator, self._key(arguments, inputs), self._key(tuple(keywords.items()), inputs))
            plan = self._plans.get(key)
        except TypeError:  # an argument that is neither a tensor nor a plain value
            key, plan = None, None
            inputs = [each for each in tree_flatten((arguments, keywords))[0] if isinstance(each, Tensor)]
        if plan is None:
            plan = self._planned(operator, arguments, keywords, inputs)
            if key is not None and all(kind != _VALUE or isinstance(each, _PLAIN) for kind, each, _ in plan.leaves):
                self._plans[key] = plan
        for place, fake in plan.changed:
            self._change(inputs[place], fake, str(operator))
        if operator is torch.ops.aten.native_dropout.default:  # the mask is allocated first
            mask = self._leaf(operator, plan.leaves[1], inputs)
            return self._leaf(operator, plan.leaves[0], inputs), mask
        if plan.is_single:
            return self._leaf(operator, plan.leaves[0], inputs)
        return tree_unflatten([self._leaf(operator, leaf, inputs) for leaf in plan.leaves], plan.structure)

    def _key(self, values: Any, inputs: list[Tensor]) -> Any:
        found: list[Any] = []
        for each in values:
            if isinstance(each, Tensor):
                inputs.append(each)
                size = self._storages.size(each) if self._storages.has(each) else 0
                found.append((
                    each.shape, each.stride(), each.dtype, each.device, each.storage_offset(), size,
                    each.is_conj(), each.is_neg(),
                ))  # fmt: skip
            elif isinstance(each, (list, tuple)):
                found.append((self._key(each, inputs),))
            elif isinstance(each, _PLAIN):
                found.append((type(each), each))
            else:
                raise TypeError
        return tuple(found)

    def _planned(
        self, operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], inputs: list[Tensor]
    ) -> _Plan:
        storages: dict[int, torch.UntypedStorage] = {}
        fakes: dict[int, Any] = {}
        for each in inputs:
            if id(each) not in fakes and self._storages.has(each):
                fakes[id(each)] = self._fake(each, storages)
        leaves, structure = tree_flatten((arguments, keywords))
        given, words = tree_unflatten([fakes.get(id(each), each) for each in leaves], structure)
        before = {place: _shape(fakes[id(each)]) for place, each in enumerate(inputs) if id(each) in fakes}
        with self._mode:
            result = operator(*given, **words)
        places = {id(fakes.get(id(each), each)): place for place, each in enumerate(inputs)}
        shared = {
            fakes[id(each)].untyped_storage()._cdata: place for place, each in enumerate(inputs) if id(each) in fakes
        }
        changed = [
            (place, fakes[id(inputs[place])])
            for place, shape in before.items()
            if _shape(fakes[id(inputs[place])]) != shape
        ]
        leaves, structure = tree_flatten(result)
        found: list[tuple[int, Any, int]] = []
        for each in leaves:
            if not isinstance(each, Tensor):
                found.append((_VALUE, each, 0))
            elif id(each) in places:
                found.append((_SAME, None, places[id(each)]))
            elif each.layout is torch.strided and each.untyped_storage()._cdata in shared:
                found.append((_VIEW, each, shared[each.untyped_storage()._cdata]))
            else:
                found.append((_MADE, each, 0))
        return _Plan(found, structure, changed)

    def _fake(self, tensor: Tensor, storages: dict[int, torch.UntypedStorage]) -> Any:
        key = self._storages.key(tensor)
        if key not in storages:
            storages[key] = torch.UntypedStorage(self._storages.size(tensor), device="meta")  # type: ignore[no-untyped-call]
        plain = torch.empty(0, dtype=tensor.dtype, device="meta")
        plain.set_(storages[key], tensor.storage_offset(), tensor.shape, tensor.stride())
        plain = torch._conj(plain) if tensor.is_conj() else plain
        plain = torch._neg_view(plain) if tensor.is_neg() else plain
        return FakeTensor(self._mode, plain, tensor.device)

    def _change(self, tensor: Tensor, fake: Tensor, operator: str) -> None:
        size = fake.untyped_storage().nbytes()
        if size != self._storages.size(tensor):
            self._resized(tensor, size, operator)
        storage = tensor.untyped_storage()
        self._storages.become(tensor, storage, fake.shape, fake.stride(), int(fake.storage_offset()))

    def _leaf(self, operator: Any, leaf: tuple[int, Any, int], inputs: list[Tensor]) -> Any:
        kind, found, place = leaf
        if kind == _MADE:
            return self._made(operator, found)
        if kind == _SAME:
            return inputs[place]
        if kind == _VIEW:
            return self._storages.view(inputs[place], found)
        return found


def _shape(fake: Tensor) -> tuple[Any, ...]:
    return (fake.shape, fake.stride(), fake.storage_offset(), fake.untyped_storage().nbytes())
