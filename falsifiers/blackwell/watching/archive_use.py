"""What a process uses of an archive: the files it opens, and on CUDA the images it loads and launches."""

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class UseWatch:
    """Opened files and launches."""

    opened: set[str] = field(default_factory=set)
    """Real paths of the files below the archive's folder that were opened through Python."""
    launches: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Launches through cuda.bindings, by the SHA-256 of the image and the kernel's name in it."""


@contextmanager
def watching_use(folder: Path, *, on_gpu: bool) -> Iterator[UseWatch]:
    """Watch until the block ends. Calls of the driver that bypass cuda.bindings are not seen, and not counted."""
    seen, looking, root = UseWatch(), [True], os.path.realpath(folder) + os.sep

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if looking and event == "open" and isinstance(arguments[0], str):
            path = os.path.realpath(arguments[0])
            if path.startswith(root):
                seen.opened.add(path)

    sys.addaudithook(heard)  # an audit hook cannot be removed; the process ends with the trial
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
    """Map images to modules, modules to functions, and functions to launches."""
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
