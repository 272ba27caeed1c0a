"""What a process takes from an archive: the files it opens, and on CUDA the images that it loads and launches."""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["UseWatch", "watching_use"]


@dataclass
class UseWatch:
    """What was seen."""

    opened: set[str] = field(default_factory=set)
    """Real paths of the files under the archive's folder that Python opened, whichever library asked it to."""
    launches: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often a kernel was launched through cuda.bindings: by the SHA-256 of its image, and its name in it."""


@contextmanager
def watching_use(folder: Path, *, on_gpu: bool) -> Iterator[UseWatch]:
    """Look on. What reaches the driver past cuda.bindings is not seen, and so counts as never launched."""
    seen, looking, root = UseWatch(), [True], os.path.realpath(folder) + os.sep

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if looking and event == "open" and isinstance(arguments[0], str):
            path = os.path.realpath(arguments[0])
            if path.startswith(root):
                seen.opened.add(path)

    sys.addaudithook(heard)  # for the rest of this process, which is a trial's: there is no taking it back
    try:
        if on_gpu:
            with _watching_driver(seen):
                yield seen
        else:
            yield seen
    finally:
        looking.clear()


@contextmanager
def _watching_driver(seen: UseWatch) -> Iterator[None]:
    """Follow images into modules, modules into functions, and functions into launches."""
    from cuda.bindings import driver

    modules: dict[int, str] = {}
    functions: dict[int, tuple[str, str]] = {}

    def loaded(answer: Any, image: Any, *_rest: Any) -> None:
        if answer[0].value == 0 and isinstance(image, bytes):
            modules[int(answer[1])] = hashlib.sha256(image).hexdigest()

    def found(answer: Any, module: Any, name: bytes) -> None:
        if answer[0].value == 0 and int(module) in modules:
            functions[int(answer[1])] = modules[int(module)], name.decode()

    def launched(answer: Any, function: Any, *_rest: Any) -> None:
        if answer[0].value == 0 and int(function) in functions:
            seen.launches[functions[int(function)]] += 1

    watches = {"cuModuleLoadData": loaded, "cuModuleGetFunction": found, "cuLaunchKernel": launched}
    originals = {name: getattr(driver, name) for name in watches}
    for name, look in watches.items():
        setattr(driver, name, _looked_at(originals[name], look))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(driver, name, original)


def _looked_at(original: Callable[..., Any], look: Callable[..., None]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        answer = original(*arguments)
        look(answer, *arguments)
        return answer

    return call
