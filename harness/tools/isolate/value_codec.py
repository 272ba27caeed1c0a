"""Packs values of a Protocol's types for another process: as JSON, with blobs of bytes beside it.

    codec = codec_of(TensorRecord)
    blobs = Blobs()
    sent = codec.pack(record, blobs)         # there
    record = codec.unpack(sent, blobs)       # here: of exactly this type, or an exception

The type decides how to decode; the other process cannot choose a class. Codecs exist only for types of values, whose
copies are equivalent to the originals: numbers, texts, bytes, paths, enums, literals, None, JSON with tuples (for
`Any`), sequences and mappings of these, and frozen dataclasses. A tensor is a value only as a field of a frozen
dataclass. A bare tensor can be memory that the other process still uses, such as a model's weights.
"""

from __future__ import annotations

import collections.abc
import math
import operator
import sys
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from harness.authoring.faults import NotMeasured

__all__ = ["Blobs", "Codec", "NotCarried", "codec_of"]


class Blobs(list[Any]):
    """Objects with the buffer protocol; JSON refers to them by index."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: dict[int, Any] = {}
        """By place, the tensor whose elements the bytes are."""

    def changes(self, before: Sequence[bytes]) -> dict[int, Any]:
        """The blobs that a call has changed, by index."""
        pairs = enumerate(zip(before, self, strict=True))
        return {place: now for place, (then, now) in pairs if then != bytes(now)}

    def write_back(self, place: int, data: Any) -> None:
        """Copy the other process's elements into a tensor that was sent.

        Raises:
            KeyError, ValueError, RuntimeError: no such tensor was sent, or its size differs.
        """
        torch, tensor = sys.modules["torch"], self.tensors[place]
        with torch.no_grad():
            tensor.copy_(torch.frombuffer(data, dtype=tensor.dtype).reshape(tensor.shape))


_GAPS = 16
"""Maximum memory span of a strided tensor, as a multiple of its elements' bytes."""


class NotCarried(NotMeasured):
    """A type has no codec. The text names the type and the reason."""


@dataclass(frozen=True)
class Codec:
    """Packs and unpacks the values of one type."""

    pack: Callable[[Any, Blobs], Any]
    """Encodes a value as JSON, with its bytes in the blobs. Raises TypeError if it is not of the type."""
    unpack: Callable[[Any, Sequence[Any]], Any]
    """The inverse of `pack`. Raises TypeError, ValueError or LookupError if this is no packed value of the type."""


def codec_of(hint: Any, *, is_field: bool = False) -> Codec:
    """The codec for a type.

    Args:
        is_field: whether the type is that of a frozen dataclass's field.

    Raises:
        NotCarried: the type, or a type within it, has no codec.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is None or hint in _SCALARS:
        return _SCALARS[types.NoneType if hint is None else hint]
    if origin in (typing.Union, types.UnionType):
        return _union([codec_of(argument, is_field=is_field) for argument in arguments])
    if origin is typing.Literal:
        return _choice(dict(enumerate(arguments)))
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _row([codec_of(argument, is_field=is_field) for argument in arguments], tuple, tuple)
    if origin in _LISTS:
        accepted, made = _LISTS[origin]
        return _list(codec_of(arguments[0], is_field=is_field), accepted, made)
    if origin in (dict, collections.abc.Mapping):
        key, item = (codec_of(argument, is_field=is_field) for argument in arguments)
        return _map(key, item)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice({member.name: member for member in hint})
    if isinstance(hint, type) and is_dataclass(hint):
        return _dataclass(hint)
    torch = sys.modules.get("torch")
    if torch is not None and hint is torch.Tensor:
        if is_field:
            return Codec(_pack_tensor, _unpack_tensor)
        raise NotCarried("a Tensor outside of a frozen dataclass can be memory that the other side still uses")
    raise NotCarried(f"{getattr(hint, '__qualname__', hint)} is not a value")


def _wrong(value: Any, expected: str) -> TypeError:
    return TypeError(f"{type(value).__name__} is not {expected}")


def _scalar(expected: type, accepted: tuple[type, ...], made: Callable[[Any], Any]) -> Codec:
    """Values of a type that JSON has."""

    def pack(value: Any, blobs: Blobs) -> Any:
        if not isinstance(value, accepted):
            raise _wrong(value, expected.__name__)
        return made(value)

    def unpack(sent: Any, blobs: Sequence[Any]) -> Any:
        if type(sent) is not expected:
            raise _wrong(sent, expected.__name__)
        return sent

    return Codec(pack, unpack)


def _pack_int(value: Any, blobs: Blobs) -> int:
    return int(operator.index(value))  # also numpy's integers


def _pack_float(value: Any, blobs: Blobs) -> float:
    if not isinstance(value, (int, float)) and not hasattr(type(value), "__float__"):
        raise _wrong(value, "float")
    return float(value)


def _pack_bytes(value: Any, blobs: Blobs) -> int:
    if not isinstance(value, bytes):
        raise _wrong(value, "bytes")
    blobs.append(value)
    return len(blobs) - 1


def _unpack_bytes(sent: Any, blobs: Sequence[Any]) -> bytes:
    return bytes(_blob(sent, blobs))


def _blob(sent: Any, blobs: Sequence[Any]) -> Any:
    if type(sent) is not int or sent < 0:
        raise _wrong(sent, "the place of a blob")
    return blobs[sent]


def _pack_json(value: Any, blobs: Blobs) -> Any:
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, list):
        return [_pack_json(item, blobs) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_pack_json(item, blobs) for item in value]}
    if isinstance(value, collections.abc.Mapping) and all(isinstance(key, str) for key in value):
        return {"map": {str(key): _pack_json(item, blobs) for key, item in value.items()}}
    if value is None:
        return None
    raise _wrong(value, "JSON")


def _unpack_json(sent: Any, blobs: Sequence[Any]) -> Any:
    if isinstance(sent, list):
        return [_unpack_json(item, blobs) for item in sent]
    if not isinstance(sent, dict):
        return sent  # already decoded from JSON
    ((kind, inner),) = sent.items()
    if kind == "tuple":
        return tuple(_unpack_json(item, blobs) for item in _items(inner))
    if kind != "map" or type(inner) is not dict:
        raise _wrong(sent, "a tuple or a mapping")
    return {key: _unpack_json(item, blobs) for key, item in inner.items()}


_SCALARS: dict[Any, Codec] = {
    types.NoneType: _scalar(types.NoneType, (types.NoneType,), lambda value: None),
    bool: _scalar(bool, (bool,), bool),
    int: Codec(_pack_int, _scalar(int, (), int).unpack),
    float: Codec(_pack_float, _scalar(float, (), float).unpack),
    str: _scalar(str, (str,), str),
    bytes: Codec(_pack_bytes, _unpack_bytes),
    Path: Codec(lambda value, blobs: str(Path(value)), lambda sent, blobs: Path(_SCALARS[str].unpack(sent, blobs))),
    Any: Codec(_pack_json, _unpack_json),
}
_LISTS: dict[Any, tuple[Any, Callable[[Any], Any]]] = {
    tuple: (tuple, tuple),
    list: (list, list),
    collections.abc.Sequence: (collections.abc.Sequence, tuple),
}
"""By origin: the types that can be packed, and the function that creates the unpacked value."""


def _union(codecs: list[Codec]) -> Codec:
    def pack(value: Any, blobs: Blobs) -> Any:
        for place, codec in enumerate(codecs):
            before = len(blobs)
            try:
                return [place, codec.pack(value, blobs)]
            except TypeError:
                del blobs[before:]
        raise _wrong(value, "one of the types")

    def unpack(sent: Any, blobs: Sequence[Any]) -> Any:
        place, inner = _items(sent)
        return codecs[_SCALARS[int].unpack(place, blobs)].unpack(inner, blobs)

    return Codec(pack, unpack)


def _choice(values: dict[Any, Any]) -> Codec:
    """A value of a fixed set, encoded as its key."""

    def pack(value: Any, blobs: Blobs) -> Any:
        for key, choice in values.items():
            if type(choice) is type(value) and choice == value:
                return key
        raise _wrong(value, f"one of {list(values.values())}")

    return Codec(pack, lambda sent, blobs: values[sent])


def _row(codecs: Sequence[Codec], accepted: Any, made: Callable[[Any], Any]) -> Codec:
    """A fixed number of items, each with its codec."""

    def pack(value: Any, blobs: Blobs) -> Any:
        if not isinstance(value, accepted) or len(value) != len(codecs):
            raise _wrong(value, f"a {accepted.__name__} of {len(codecs)}")
        return [codec.pack(item, blobs) for codec, item in zip(codecs, value, strict=True)]

    def unpack(sent: Any, blobs: Sequence[Any]) -> Any:
        return made(codec.unpack(item, blobs) for codec, item in zip(codecs, _items(sent), strict=True))

    return Codec(pack, unpack)


def _list(codec: Codec, accepted: Any, made: Callable[[Any], Any]) -> Codec:
    def pack(value: Any, blobs: Blobs) -> Any:
        if not isinstance(value, accepted) or isinstance(value, (str, bytes)):
            raise _wrong(value, f"a {accepted.__name__}")
        return [codec.pack(item, blobs) for item in value]

    return Codec(pack, lambda sent, blobs: made(codec.unpack(item, blobs) for item in _items(sent)))


def _map(key: Codec, item: Codec) -> Codec:
    def pack(value: Any, blobs: Blobs) -> Any:
        if not isinstance(value, collections.abc.Mapping):
            raise _wrong(value, "a Mapping")
        return [[key.pack(name, blobs), item.pack(entry, blobs)] for name, entry in value.items()]

    def unpack(sent: Any, blobs: Sequence[Any]) -> Any:
        pairs = [_items(pair) for pair in _items(sent)]
        return {key.unpack(name, blobs): item.unpack(packed, blobs) for name, packed in pairs}

    return Codec(pack, unpack)


def _dataclass(kind: type[Any]) -> Codec:
    """Values of a dataclass, and of its subclasses that are defined so far.

    The falsifier may pass a subclass of the Protocol's dataclass. Both processes know it, because the falsifier is
    imported before the subject. An instance of a class that is defined later is decoded as its nearest known base
    class.
    """
    known: dict[str, tuple[type[Any], dict[str, Codec]]] = {}
    for cls in (kind, *_below(kind)):
        try:
            known[f"{cls.__module__}.{cls.__qualname__}"] = cls, _codecs_of_fields(cls)
        except NotCarried:
            if cls is kind:
                raise
    names = {cls: name for name, (cls, _) in known.items()}

    def pack(value: Any, blobs: Blobs) -> Any:
        if not isinstance(value, kind):
            raise _wrong(value, kind.__qualname__)
        name = next(names[base] for base in type(value).__mro__ if base in names)
        return [name, *(codec.pack(getattr(value, field), blobs) for field, codec in known[name][1].items())]

    def unpack(sent: Any, blobs: Sequence[Any]) -> Any:
        name, *rest = _items(sent)
        made, codecs = known[_SCALARS[str].unpack(name, blobs)]
        return made(**{field: codecs[field].unpack(packed, blobs) for field, packed in zip(codecs, rest, strict=True)})

    return Codec(pack, unpack)


def _below(kind: type[Any]) -> list[type[Any]]:
    """The subclasses of a dataclass."""
    subclasses = [subclass for subclass in kind.__subclasses__() if "__dataclass_fields__" in vars(subclass)]
    return [*subclasses, *(further for subclass in subclasses for further in _below(subclass))]


def _codecs_of_fields(kind: type[Any]) -> dict[str, Codec]:
    if not kind.__dataclass_params__.frozen:
        raise NotCarried(f"{kind.__qualname__} is a dataclass that is not frozen, so it can be changed in place")
    hints = typing.get_type_hints(kind)
    try:
        return {field.name: codec_of(hints[field.name], is_field=True) for field in fields(kind)}
    except RecursionError as error:
        raise NotCarried(f"{kind.__qualname__} refers to itself") from error


def _items(sent: Any) -> list[Any]:
    if type(sent) is not list:
        raise _wrong(sent, "a list")
    return sent


def _pack_tensor(value: Any, blobs: Blobs) -> Any:
    torch = sys.modules["torch"]
    if not isinstance(value, torch.Tensor):
        raise _wrong(value, "a Tensor")
    plain = torch.Tensor.detach(value).as_subclass(torch.Tensor).resolve_conj().resolve_neg().to_dense()
    flat = plain.to("cpu").contiguous()
    flat = flat.as_strided((flat.numel(),), (1,))  # otherwise a dimension of one element keeps its stride
    blobs.append(flat.view(torch.uint8).numpy() if flat.numel() else b"")
    blobs.tensors[len(blobs) - 1] = plain
    strides = [] if plain.is_contiguous() or not _is_compact(plain.shape, plain.stride()) else list(plain.stride())
    return [str(plain.dtype).removeprefix("torch."), list(plain.shape), strides, str(plain.device), len(blobs) - 1]


def _unpack_tensor(sent: Any, blobs: Sequence[Any]) -> Any:
    torch = sys.modules["torch"]
    name, shape, steps, device, place = _items(sent)
    dtype = getattr(torch, _SCALARS[str].unpack(name, blobs))
    sizes = [_SCALARS[int].unpack(size, blobs) for size in _items(shape)]
    strides = [_SCALARS[int].unpack(stride, blobs) for stride in _items(steps)]
    if not isinstance(dtype, torch.dtype) or any(size < 0 for size in sizes):
        raise _wrong(sent, "a tensor's dtype and shape")
    if strides and (len(strides) != len(sizes) or not _is_compact(sizes, strides)):
        raise _wrong(sent, "a tensor's strides")
    blob = _blob(place, blobs)
    if memoryview(blob).nbytes != math.prod(sizes) * dtype.itemsize:
        raise _wrong(sent, "a tensor of as many bytes")
    if not math.prod(sizes):
        return torch.empty(sizes, dtype=dtype, device=device)
    flat = torch.frombuffer(blob if isinstance(blob, bytearray) else bytearray(blob), dtype=dtype).reshape(sizes)
    if not strides:
        return flat.to(device)
    return torch.empty_strided(sizes, strides, dtype=dtype, device=device).copy_(flat)


def _is_compact(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether no elements overlap and the gaps are small. A copy then keeps the strides."""
    extent = 1
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if stride < (extent if size > 1 else 0):
            return False
        extent += stride * (size - 1)
    return 0 < extent <= _GAPS * math.prod(sizes)
