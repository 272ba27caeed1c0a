"""The harness's end of a fork server (`harness.process.worker`): start it, ask it for trials, and let go of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from harness.redaction import allowed_environment

__all__ = ["ForkServer", "ForkServerError"]

_LARGEST_REPLY = 4 << 20


class ForkServerError(RuntimeError):
    """The fork server is gone; the message says how it ended."""


class ForkServer:
    """One fork server and its scratch folder. It ends, with all below it, when closed or when this process dies."""

    def __init__(self, root: Path, search: tuple[Path, ...]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="falsifier-harness-"))
        self._root = root
        self._send = threading.Lock()
        self._log = self.folder / "server.log"
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = allowed_environment()
        inherited = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [inherited, str(Path(__file__).parents[2])]))
        # torch asks for it where results must be reproducible
        environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # -P: the server runs in the root of a project that may have a package `harness` of its own.
        command = [sys.executable, "-P", "-m", "harness.process.worker"]
        with there, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, str(there.fileno()), str(self.folder), *map(str, search)],
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[there.fileno()],
                start_new_session=True,
            )
        self._control = here

    def import_modules(self, modules: list[str]) -> dict[str, Any]:
        """Import modules into the server; what failed, by module, and the digests of the project's source files."""
        request = {"do": "import", "modules": modules, "root": str(self._root)}
        try:
            with self._send:
                self._control.send(json.dumps(request).encode())
                reply = self._control.recv(_LARGEST_REPLY)
        except OSError as error:
            raise ForkServerError(self._obituary()) from error
        if not reply:
            raise ForkServerError(self._obituary())
        answer: dict[str, Any] = json.loads(reply)
        return answer

    def start(self, trial: dict[str, Any], descriptors: list[int]) -> None:
        """Fork a trial that writes stdout, stderr and messages to the first three descriptors and heeds the fourth."""
        try:
            with self._send:
                socket.send_fds(self._control, [json.dumps({"do": "start", "trial": trial}).encode()], descriptors)
        except OSError as error:
            raise ForkServerError(self._obituary()) from error

    def close(self) -> None:
        """Let go: the server ends everything below it, removes its folder, and exits."""
        self._control.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)  # the server has done it, unless it was killed

    def _obituary(self) -> str:
        try:
            code = self._process.wait(timeout=1)
            said = self._log.read_text(errors="replace")[-500:].strip()
        except (subprocess.TimeoutExpired, OSError):
            return "the fork server does not answer"
        return f"the fork server ended with status {code}{': ' + said if said else ''}"
