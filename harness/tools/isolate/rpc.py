"""Remote procedure calls: the methods of a falsifier's Protocol, and the channel to the other process.

    protocol = rpc_protocol(falsify)           # of `def falsify(trial: Trial[Format])`
    protocol.methods["read"].arguments.pack(…)

As a program, it reports which falsifiers have a Protocol that can be serialized, without importing a subject:

    python -m harness.tools.isolate.rpc '[["module:falsify", ["subject.module"]]]' FOLDER…
"""

from __future__ import annotations

import builtins
import inspect
import json
import select
import socket
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.authoring.faults import NotMeasured
from harness.authoring.trial import Trial
from harness.base import strictjson
from harness.base.shortening import described
from harness.contract.entry_point import resolve_own
from harness.contract.project_importer import install
from harness.tools.isolate.value_codec import Blobs, Codec, NotCarried, codec_of

__all__ = ["ChannelClosed", "RpcChannel", "RpcMethod", "RpcProtocol", "obstacle", "rpc_protocol"]


@dataclass(frozen=True)
class RpcMethod:
    """One method, with the codecs of its arguments and its result."""

    signature: inspect.Signature
    arguments: Mapping[str, Codec]
    result: Codec

    def pack(self, blobs: Blobs, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The arguments of a call. Raises TypeError if they do not match the method's signature."""
        given = self.signature.bind(*args, **kwargs).arguments
        return {name: codec.pack(given[name], blobs) for name, codec in self.arguments.items() if name in given}

    def unpack(self, sent: Mapping[str, Any], blobs: Sequence[Any]) -> inspect.BoundArguments:
        """The arguments of a call that `pack` packed."""
        given = self.signature.bind_partial()
        for name, codec in self.arguments.items():
            if name in sent:
                given.arguments[name] = codec.unpack(sent[name], blobs)
        return given


@dataclass(frozen=True)
class RpcProtocol:
    """Every method of a Protocol, and the exceptions that it declares."""

    name: str
    methods: Mapping[str, RpcMethod]
    raises: Mapping[str, type[Exception]]
    """The classes of exceptions in the Protocol's module, by name."""

    def exception(self, names: Sequence[str], text: str) -> Exception:
        """An exception of the subject, as a new subclass of the first class that both processes know.

        Args:
            names: the exception's class and its base classes.
        """
        known = {**vars(builtins), **self.raises, "NotMeasured": NotMeasured}
        candidates = (known.get(name) for name in names)
        base = next(
            (candidate for candidate in candidates if isinstance(candidate, type) and issubclass(candidate, Exception)),
            Exception,
        )
        if issubclass(base, ExceptionGroup):  # is made of others
            base = Exception
        name = names[0] if names and names[0].isidentifier() else base.__name__
        kind = type(name, (base,), {"__str__": lambda self: text})
        return typing.cast("Exception", kind.__new__(kind, text))


def rpc_protocol(falsify: Callable[..., Any]) -> RpcProtocol:
    """The Protocol of the subjects of a falsifier.

    Raises:
        NotCarried: the falsifier is not annotated, or a type of the Protocol has no codec.
    """
    hints = typing.get_type_hints(falsify)
    trial = next(iter(hints.values()), None)
    if typing.get_origin(trial) is not Trial:
        raise NotCarried(f"{falsify.__qualname__}() does not say which Protocol it takes: annotate Trial[…]")
    (protocol,) = typing.get_args(trial)
    if not getattr(protocol, "_is_protocol", False):
        raise NotCarried(f"{getattr(protocol, '__qualname__', protocol)} is no Protocol")
    members = {
        name: member
        for base in reversed(protocol.__mro__)
        if getattr(base, "_is_protocol", False) and base is not typing.Protocol
        for name, member in {**dict.fromkeys(inspect.get_annotations(base)), **vars(base)}.items()
        if not name.startswith("_") or name == "__call__"
    }
    methods = {name: _method(f"{protocol.__qualname__}.{name}", member) for name, member in members.items()}
    module = sys.modules[protocol.__module__]
    raises = {
        name: value for name, value in vars(module).items() if isinstance(value, type) and issubclass(value, Exception)
    }
    return RpcProtocol(protocol.__qualname__, methods, raises)


def _method(name: str, member: Any) -> RpcMethod:
    if not inspect.isfunction(member):
        raise NotCarried(f"{name} is not a method")
    signature = inspect.signature(member)
    try:
        hints = typing.get_type_hints(member)
    except NameError as error:
        raise NotCarried(f"{name}: {error}") from error
    arguments = {}
    for parameter in list(signature.parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise NotCarried(f"{name}: {parameter} takes any number of arguments")
        arguments[parameter.name] = _codec(f"{name}, {parameter.name}", parameter.name, hints)
    bare = signature.replace(parameters=list(signature.parameters.values())[1:])
    return RpcMethod(bare, arguments, _codec(f"{name}, result", "return", hints))


def _codec(place: str, name: str, hints: Mapping[str, Any]) -> Codec:
    if name not in hints:
        raise NotCarried(f"{place}: it has no annotation")
    try:
        return codec_of(hints[name])
    except NotCarried as why:
        raise NotCarried(f"{place}: {why}") from why


def obstacle(falsifier: str, subjects: Sequence[str]) -> str:
    """Why a falsifier's subjects cannot run in a separate process; empty if they can.

    Args:
        falsifier: its entry point, which is imported.
        subjects: the modules of the subjects, which must not be imported with it.
    """
    try:
        protocol = rpc_protocol(resolve_own(falsifier))
    except NotCarried as why:
        return str(why)
    shared = [module for module in subjects if sys.modules.get(module) is not None]
    if shared:
        return f"{falsifier} imports {shared[0]}, the module of a subject"
    return "" if protocol.methods else f"{protocol.name} has no method"


def _obstacle_of(falsifier: str, subjects: Sequence[str]) -> str:
    try:
        return obstacle(falsifier, subjects)
    except BaseException as error:
        return f"{falsifier} cannot be imported: {described(error)}"


_LARGEST_HEAD = 1 << 30
_LARGEST_BLOBS = 16 << 30
"""Maximum bytes of one document."""


class ChannelClosed(Exception):
    """The other process has ended."""


class RpcChannel:
    """One end of a connection that transfers JSON documents, each followed by blobs of bytes."""

    def __init__(self, connection: socket.socket, other: int | None = None) -> None:
        """Args:
        other: a process descriptor (pidfd) of the other process. Its orphaned children can hold the connection open.
        """
        self._connection = connection
        self._watched = select.poll()
        for descriptor in (connection.fileno(), *([] if other is None else [other])):
            self._watched.register(descriptor, select.POLLIN)
        self.seconds: float | None = None
        """The longest wait for bytes."""

    def send(self, document: Any, blobs: Blobs) -> None:
        """Send a document with its blobs.

        Raises:
            TypeError, ValueError: the document is not JSON.
            OSError: the other process has ended, or there is no memory.
        """
        head = json.dumps([document, [memoryview(blob).nbytes for blob in blobs]]).encode()
        self._connection.sendall(len(head).to_bytes(8, "big") + head)
        for blob in blobs:
            self._connection.sendall(blob)

    def receive(self) -> tuple[Any, list[bytearray]]:
        """A document and its blobs.

        Raises:
            ChannelClosed: the other process has ended.
            OSError, TypeError, ValueError, RecursionError, MemoryError: the data are malformed.
        """
        size = int.from_bytes(self._read(8), "big")
        if size > _LARGEST_HEAD:
            raise ValueError(f"{size} bytes of JSON")
        document, sizes = json.loads(bytes(self._read(size)))
        if not all(type(size) is int and size >= 0 for size in sizes) or sum(sizes) > _LARGEST_BLOBS:
            raise ValueError("sizes of blobs that cannot be")
        return document, [self._read(size) for size in sizes]

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            self._wait()
            got = self._connection.recv_into(rest)
            if not got:
                raise ChannelClosed
            rest = rest[got:]
        return data

    def _wait(self) -> None:
        ready = dict(self._watched.poll(None if self.seconds is None else self.seconds * 1000))
        if not ready:
            raise TimeoutError("no answer in time")
        if self._connection.fileno() not in ready:
            raise ChannelClosed


if __name__ == "__main__":
    request = strictjson.loads(sys.argv[1])
    install([*map(Path, sys.argv[2:])]).update(falsifier.partition(".")[0] for falsifier, _ in request)
    print(json.dumps([_obstacle_of(falsifier, subjects) for falsifier, subjects in request]))
