"""Reads the pickle of a PyTorch checkpoint without running any of it.

`pickletools` yields the opcodes. They are applied to a stack of plain values. A pickle may name and call only what is
in `_CALLS` and `_VALUES`; everything else is refused. The standard library's Unpickler with a restricted `find_class`
is not safe enough: one opcode of five bytes makes its memo allocate gigabytes.
"""

from __future__ import annotations

import pickletools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.base import strictjson
from harness.tools.inspect.budget import Budget, Refused
from harness.tools.inspect.checkpoint.dtypes import BY_NAME, DType
from harness.tools.inspect.checkpoint.entries import MOST_DIMENSIONS

__all__ = ["Pickled", "Storage", "TensorView", "read"]


@dataclass(frozen=True)
class Storage:
    """Bytes that tensors view: the name of their member, their number, and their type if the pickle states one."""

    key: str
    nbytes: int
    dtype: DType | None


@dataclass(frozen=True)
class TensorView:
    """A tensor: a view of a storage from element `first` on. Shape and strides are in elements."""

    storage: Storage
    dtype: DType
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    name: str = ""


@dataclass(frozen=True)
class Pickled:
    """The tensors of a pickle, and its plain values by their paths in it."""

    tensors: list[TensorView]
    metadata: dict[str, Any]


class _Unsupported(Exception):
    """A pickle does something that no checkpoint needs. The text completes the sentence "the pickle …"."""


@dataclass(frozen=True)
class _Named:
    """A class or function that a pickle names. It is never imported."""

    name: str


_DTYPES = {
    "float64": "F64", "double": "F64", "float32": "F32", "float": "F32", "float16": "F16", "half": "F16",
    "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "uint16": "U16",
    "uint32": "U32", "uint64": "U64", "bool": "BOOL", "complex64": "C64", "complex128": "C128",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip
_STORAGES = {
    "Double": "F64", "Float": "F32", "Half": "F16", "BFloat16": "BF16", "Long": "I64", "Int": "I32", "Short": "I16",
    "Char": "I8", "Byte": "U8", "Bool": "BOOL", "ComplexFloat": "C64", "ComplexDouble": "C128",
}  # fmt: skip
_UNTYPED = "torch.storage.UntypedStorage"
_TYPED_STORAGES = {f"torch.{name}Storage": BY_NAME[dtype] for name, dtype in _STORAGES.items()}
_VALUES = {f"torch.{name}": BY_NAME[dtype] for name, dtype in _DTYPES.items()}


def _tensor(storage: Any, first: Any, shape: Any, strides: Any, dtype: Any) -> TensorView:
    if isinstance(shape, tuple) and len(shape) > MOST_DIMENSIONS:
        raise _Unsupported(f"rebuilds a tensor of {len(shape)} dimensions, more than {MOST_DIMENSIONS}")
    counts = [first, *shape, *strides] if isinstance(shape, tuple) and isinstance(strides, tuple) else [None]
    if not (isinstance(storage, Storage) and isinstance(dtype, DType) and all(_is_count(count) for count in counts)):
        raise _Unsupported("rebuilds a tensor from something other than a storage, counts and a dtype")
    if len(shape) != len(strides):
        raise _Unsupported("rebuilds a tensor whose numbers of strides and dimensions differ")
    return TensorView(storage, dtype, first, shape, strides)


def _rebuild_v2(storage: Any, first: Any, shape: Any, strides: Any, *_flags: Any) -> TensorView:
    return _tensor(storage, first, shape, strides, storage.dtype if isinstance(storage, Storage) else None)


def _rebuild_v3(
    storage: Any, first: Any, shape: Any, strides: Any, _grad: Any, _hooks: Any, dtype: Any, *_more: Any
) -> Any:
    return _tensor(storage, first, shape, strides, dtype)


def _parameter(data: Any, *_flags: Any) -> Any:
    return data


def _encoded(text: Any, codec: Any = "latin1") -> bytes:
    """Return bytes as the older protocols write them."""
    if not isinstance(text, str) or codec not in ("latin1", "latin-1"):
        raise _Unsupported("encodes something other than text as latin1")
    return text.encode("latin1")


def _items(pairs: Any = ()) -> dict[Any, Any]:
    """Return an OrderedDict as a dict, empty or from pairs."""
    if not isinstance(pairs, (list, tuple)) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs
    ):
        raise _Unsupported("makes an OrderedDict from something other than pairs")
    return {_key(name): value for name, value in pairs}


def _listed(values: Any = ()) -> Any:
    """Return a set, a frozenset or a torch.Size as a tuple, which is enough to show it."""
    return tuple(values) if isinstance(values, (list, tuple)) else ()


def _device(*described: Any) -> str:
    match described:
        case (str(name),):
            return name
        case (str(name), int(index)) if _is_count(index):
            return f"{name}:{index}"
    raise _Unsupported("describes a device by something other than a name and an index")


_CALLS: Mapping[str, Callable[..., Any]] = {
    "collections.OrderedDict": _items,
    "collections.defaultdict": lambda *_factory: {},
    "torch._utils._rebuild_tensor_v2": _rebuild_v2,
    "torch._utils._rebuild_tensor_v3": _rebuild_v3,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch.Size": _listed,
    "torch.device": _device,
    "_codecs.encode": _encoded,
    "__builtin__.set": _listed,
    "builtins.set": _listed,
    "__builtin__.frozenset": _listed,
    "builtins.frozenset": _listed,
}
_DEEPEST = 100
_LONGEST_KEY = 4096
_PLAIN_PER_STEP = 4
"""Values of a list that are looked at in the time of one step."""
_SHOWN = 16
"""The longest list of numbers that is kept as metadata. A longer one is only counted."""
_MARK = object()
_PUSHES_ITS_ARGUMENT = {
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BINSTRING", "SHORT_BINSTRING",
}  # fmt: skip
_PUSHES: Mapping[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": list,
    "MARK": lambda: _MARK,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUTS = {"BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GETS = {"BINGET", "LONG_BINGET"}
_NOTHING_TO_DO = {"PROTO", "FRAME"}


class _Stack:
    """The stack and the memo of a pickle, with the opcodes that change them."""

    def __init__(self, budget: Budget) -> None:
        self._values: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._budget = budget

    def apply(self, opcode: str, argument: Any) -> None:
        """Apply one opcode. Raises IndexError or KeyError if it takes a value that is not there."""
        values = self._values
        self._budget.keep(0)
        if opcode in _PUSHES_ITS_ARGUMENT:
            self._budget.keep(len(argument) if isinstance(argument, (str, bytes)) else 0)
            if isinstance(argument, int) and not -strictjson.LARGEST <= argument <= strictjson.LARGEST:
                raise _Unsupported(f"has an integer of {argument.bit_length()} bits, more than fit a double")
            values.append(argument)
        elif opcode in _PUSHES:
            values.append(_PUSHES[opcode]())
        elif opcode in _PUTS:
            self._memo[len(self._memo) if argument is None else argument] = values[-1]
        elif opcode in _GETS:
            values.append(self._memo[argument])
        elif opcode in _TUPLES:
            count = _TUPLES[opcode]
            values.append(tuple(values.pop() for _ in range(count))[::-1])
        elif opcode == "TUPLE":
            values.append(tuple(self._to_mark()))
        elif opcode in ("APPEND", "APPENDS", "ADDITEMS"):
            self._append([values.pop()] if opcode == "APPEND" else self._to_mark())
        elif opcode in ("SETITEM", "SETITEMS"):
            self._set([values.pop(), values.pop()][::-1] if opcode == "SETITEM" else self._to_mark())
        elif opcode == "GLOBAL":
            values.append(_named(argument.replace(" ", ".", 1)))
        elif opcode == "STACK_GLOBAL":
            attribute, module = values.pop(), values.pop()
            if not isinstance(module, str) or not isinstance(attribute, str):
                raise _Unsupported("names a class by something other than texts")
            self._budget.keep(len(module) + len(attribute))
            values.append(_named(f"{module}.{attribute}"))
        elif opcode == "BINPERSID":
            values.append(_storage(values.pop()))
        elif opcode in ("REDUCE", "NEWOBJ"):
            arguments = values.pop()
            values.append(_called(values.pop(), arguments, self._budget))
        elif opcode == "BUILD":
            # The attributes of a state_dict (`_metadata`) are no weights.
            if not isinstance(values[-2], dict):
                raise _Unsupported("sets the attributes of an object")
            values.pop()
        elif opcode not in _NOTHING_TO_DO:
            raise _Unsupported(f"has the opcode {opcode}, which PyTorch does not write")

    def result(self) -> Any:
        """Return the value that is left when the pickle stops."""
        (value,) = self._values
        return value

    def _to_mark(self) -> list[Any]:
        taken = []
        while (value := self._values.pop()) is not _MARK:
            taken.append(value)
        return taken[::-1]

    def _append(self, items: list[Any]) -> None:
        if not isinstance(self._values[-1], list):
            raise _Unsupported("appends to something other than a list")
        self._values[-1].extend(items)

    def _set(self, items: list[Any]) -> None:
        if not isinstance(self._values[-1], dict) or len(items) % 2:
            raise _Unsupported("sets items of something other than a dict")
        for name, value in zip(items[::2], items[1::2], strict=True):
            self._values[-1][_key(name)] = value


def _named(name: str) -> Any:
    if name in _VALUES:
        return _VALUES[name]
    if name in _CALLS or name in _TYPED_STORAGES or name == _UNTYPED:
        return _Named(name)
    raise _Unsupported(f"names {name!r:.100}, which no weights need; nothing of it was run")


def _called(function: Any, arguments: Any, budget: Budget) -> Any:
    call = _CALLS.get(function.name) if isinstance(function, _Named) else None
    if call is None or not isinstance(arguments, tuple):
        raise _Unsupported("calls something that is not a function")
    budget.keep(0, len(arguments))
    for argument in arguments:  # what a call makes is no larger
        if isinstance(argument, (list, tuple)):
            budget.keep(0, len(argument))
        elif isinstance(argument, str):
            budget.keep(len(argument))
    try:
        return call(*arguments)
    except (TypeError, UnicodeEncodeError) as error:
        raise _Unsupported(f"calls {function.name} with arguments that PyTorch does not write") from error


def _storage(described: Any) -> Storage:
    match described:
        case ("storage", _Named(name), str(key), _, size) if _is_count(size) and len(key) <= _LONGEST_KEY:
            dtype = _TYPED_STORAGES.get(name)
            if dtype is not None:
                return Storage(key, size * dtype.block_bytes, dtype)
            if name == _UNTYPED:
                return Storage(key, size, None)
    raise _Unsupported("refers to something other than a storage")


def _key(value: Any) -> Any:
    """Return a dict key if it is flat. Python's hash of a deeply nested tuple overflows the stack."""
    parts = value if isinstance(value, tuple) else (value,)
    if len(parts) > _SHOWN or not all(part is None or isinstance(part, (str, int, float, bytes)) for part in parts):
        raise _Unsupported("has a dict whose keys are not only numbers and texts")
    for part in parts:
        if isinstance(part, (str, bytes)) and len(part) > _LONGEST_KEY:
            raise _Unsupported(f"has a key of {len(part)} characters, more than {_LONGEST_KEY}")
        # Python's hash of an integer is a remainder. Many large keys could have the same one.
        if isinstance(part, int) and not -sys.hash_info.modulus < part < sys.hash_info.modulus:
            raise _Unsupported(f"has an integer of {part.bit_length()} bits as a key")
    return value


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def read(pickled: bytes, at: int, budget: Budget) -> Pickled:
    """Return the tensors and the plain values in a pickle that begins at byte `at` of its file.

    Raises:
        Refused: the pickle does something that no checkpoint needs, is malformed, or exceeds the budget.
    """
    stack, position = _Stack(budget), 0
    try:
        for opcode, argument, where in pickletools.genops(pickled):
            position = where or 0
            if opcode.name == "STOP":
                break
            stack.apply(opcode.name, argument)
        return _collect(stack.result(), budget)
    except _Unsupported as odd:
        raise Refused(f"the pickle {odd}", at + position) from odd
    except (ValueError, LookupError, AttributeError) as error:
        raise Refused(f"the pickle is malformed: {error}", at + position) from error


def _collect(root: Any, budget: Budget) -> Pickled:
    """Return the tensors and plain values below `root`.

    The budget pays for each name and text that is found. A pickle of a few megabytes can refer to one long text, or one
    container, more often than fits in memory.
    """
    contents = Pickled([], {})
    names: set[str] = set()
    pending: list[tuple[str, Any, int]] = [("", root, 0)]
    while pending:
        path, value, depth = pending.pop()
        budget.work(1 + len(value) // _PLAIN_PER_STEP if isinstance(value, (list, tuple)) else 1)
        if isinstance(value, TensorView):
            name = path or "."
            if name in names:
                raise _Unsupported(f"has two tensors at {name!r:.80}")
            names.add(name)
            contents.tensors.append(replace(value, name=name))
        elif isinstance(value, dict) or (isinstance(value, (list, tuple)) and not _is_plain(value)):
            below = []
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                text = str(key)
                budget.keep(len(path) + len(text) + 1, 4)
                if depth == _DEEPEST:
                    raise _Unsupported(f"nests containers deeper than {_DEEPEST}")
                below.append((f"{path}.{text}" if path else text, item, depth + 1))
            pending.extend(reversed(below))
        else:
            shown = _shown(value)
            for text in shown if isinstance(shown, list) else [shown]:
                budget.keep(len(text) if isinstance(text, str) else 0)
            contents.metadata[path or "."] = shown
    return contents


def _is_plain(value: Any) -> bool:
    """Whether a list holds only plain values. An empty list does."""
    return all(item is None or isinstance(item, (str, int, float)) for item in value)


def _shown(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return list(value) if len(value) <= _SHOWN else f"array of {len(value)}"
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes"
    if isinstance(value, Storage):
        return f"storage of {value.nbytes} bytes"
    if isinstance(value, DType):
        return value.name
    return value if value is None or isinstance(value, (str, int, float)) else f"{value}"
