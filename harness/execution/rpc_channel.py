"""A connection between two processes that carries documents of JSON, each followed by blobs of bytes."""

from __future__ import annotations

import json
import select
import socket
from typing import Any

from harness.execution.value_codec import Blobs

__all__ = ["ChannelClosed", "RpcChannel"]

_LARGEST_HEAD = 1 << 30
_LARGEST_BLOBS = 16 << 30
"""Bytes of one document."""


class ChannelClosed(Exception):
    """The other process has ended."""


class RpcChannel:
    """One end of the connection."""

    def __init__(self, connection: socket.socket, other: int | None = None) -> None:
        """Args:
        other: a descriptor of the other process. A process that it left behind can hold the connection open.
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
            OSError, TypeError, ValueError, RecursionError, MemoryError: it sent something else.
        """
        size = int.from_bytes(self._read(8), "big")
        if size > _LARGEST_HEAD:
            raise ValueError(f"{size} bytes of JSON")
        document, sizes = json.loads(bytes(self._read(size)))
        if not all(type(one) is int and one >= 0 for one in sizes) or sum(sizes) > _LARGEST_BLOBS:
            raise ValueError("sizes of blobs that cannot be")
        return document, [self._read(one) for one in sizes]

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
