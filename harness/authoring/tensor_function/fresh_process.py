"""Runs calls in processes without earlier calls.

A server process is forked before the first call. It forks again for each call, so every call sees the state right
after import. A fork cannot use CUDA if its parent did, so create a `FreshProcess` before CUDA is initialized.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

__all__ = ["FreshProcess"]

_LENGTH = struct.Struct("<q")


class FreshProcess:
    """Runs a function of one argument in fresh processes. The argument is pickled; the result is JSON."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        """Fork the server process.

        Raises:
            RuntimeError: CUDA is already initialized.
        """
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            raise RuntimeError("CUDA is in use already; a fresh process must be forked before")
        requests, answers = os.pipe(), os.pipe()
        owner = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            try:
                os.close(requests[1])
                os.close(answers[0])
                _serve(work, requests[0], answers[1])
            finally:
                os._exit(0)
        os.close(requests[0])
        os.close(answers[1])
        self._write, self._read, self._owner = requests[1], answers[0], owner

    def __call__(self, value: Any) -> Any:
        """Run the function in a fresh process.

        Raises:
            ChildProcessError: the process ended without a result. The text states its status or signal.
        """
        _put(self._write, pickle.dumps(value))
        answer = json.loads(_get(self._read))
        if "ended" in answer:
            raise ChildProcessError(answer["ended"])
        return answer["result"]

    def close(self) -> None:
        """End the server process."""
        if self._pid and os.getpid() == self._owner:
            for descriptor in (self._write, self._read):
                with suppress(OSError):
                    os.close(descriptor)
            with suppress(OSError):  # later forks may hold the pipe open, so the server may not see its end
                os.kill(self._pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            self._pid = 0

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()


def _serve(work: Callable[[Any], Any], requests: int, answers: int) -> None:
    while True:
        try:
            value = _get(requests)
        except EOFError:
            return
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            try:
                _put(write, json.dumps({"result": work(pickle.loads(value))}).encode())  # noqa: S301 (of our parent)
            finally:
                os._exit(0)
        os.close(write)
        try:
            answer = _get(read)
        except EOFError:
            answer = b""
        os.close(read)
        status = os.waitpid(child, 0)[1]
        _put(answers, answer or json.dumps({"ended": _ending(status)}).encode())


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exited with status {os.WEXITSTATUS(status)}"


def _put(descriptor: int, content: bytes) -> None:
    left = memoryview(_LENGTH.pack(len(content)) + content)
    while left:
        left = left[os.write(descriptor, left) :]


def _get(descriptor: int) -> bytes:
    return _read_exactly(descriptor, _LENGTH.unpack(_read_exactly(descriptor, _LENGTH.size))[0])


def _read_exactly(descriptor: int, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        part = os.read(descriptor, min(length - len(received), 1 << 20))
        if not part:
            raise EOFError
        received += part
    return bytes(received)
