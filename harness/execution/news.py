"""Reports the models that a trial's process builds and the data files that it opens, as lines for the trial's log."""

from __future__ import annotations

import os
import sys
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

from harness.authoring.toolkit_log import HYPOTHESIS
from harness.base import regular_file
from harness.execution.messages import Start
from harness.execution.sources import Sources

__all__ = ["ModelsBuilt", "News", "tensors_of"]

_LARGEST_DIGESTED: Final = 16 << 20
"""Maximum size in bytes of a data file whose digest is logged."""


@final
class News:
    """Collects the models that this process builds and the data files that it opens."""

    def __init__(self, start: Start, sources: Sources) -> None:
        self._start, self._sources, self._models = start, sources, ModelsBuilt()

    def listen(self) -> None:
        """Start recording models, and files that libraries open in Rust."""
        self._models.listen()
        self._sources.hear_libraries()

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield each new line with its topic (see `TrialLog.write`)."""
        self.listen()  # libraries may have been imported meanwhile
        for text, kind in self._models.news():
            yield f"built {text}", f"model {kind}"
        for name in self._sources.data():
            if name != str(self._start.claim) and HYPOTHESIS not in Path(name).parts:
                yield self._file(name), ""

    def _file(self, name: str) -> str:
        """Return the line for an opened file."""
        start, path = self._start, name
        for folder in (start.setting.workspace, start.artifacts, start.setting.cache):
            path = path.replace(f"{folder}{os.sep}", f"{folder.name}{os.sep}")
        try:
            size = os.stat(name).st_size
            digest = "" if start.is_timed or size > _LARGEST_DIGESTED else f", sha256 {regular_file.sha256(Path(name))}"
            return f"read {path}, {size} bytes{digest}"
        except OSError as error:
            return f"opened {path}: {error.strerror}"


_MOST: Final = 100_000
"""Maximum modules that one call describes."""
_MOST_TENSORS: Final = 12


@final
class ModelsBuilt:
    """Collects the models that this process builds. It calls no method of a module, which may be the subject's."""

    def __init__(self) -> None:
        self._new: dict[int, weakref.ref[Any]] = {}
        """Modules that got a parameter or a submodule since the last call of `news`."""
        self._parts: set[int] = set()
        self._hears = False

    def listen(self) -> None:
        """Start recording modules, if torch is imported. Call this again after imports."""
        if "torch" in sys.modules and not self._hears:
            self._hears = True
            with suppress(Exception):  # the code under test may have put anything in torch's place
                from torch.nn.modules import module as built

                built.register_module_parameter_registration_hook(self._parameter_registered)
                built.register_module_module_registration_hook(self._module_registered)

    def news(self) -> list[tuple[str, str]]:
        """Return description and class of each model that was built since the last call. Submodules are left out."""
        if not self._new:
            return []
        new, parts = self._new, self._parts
        self._new, self._parts = {}, set()
        models = []
        for module in [
            module for number, reference in new.items() if number not in parts and (module := reference()) is not None
        ]:
            with suppress(Exception):  # the module may be anything
                models.append((_described(module), type(module).__name__))
        return models

    def _parameter_registered(self, module: Any, name: str, value: Any) -> None:
        if len(self._new) < _MOST:
            self._new[id(module)] = weakref.ref(module)

    def _module_registered(self, module: Any, name: str, part: Any) -> None:
        self._parameter_registered(module, name, part)
        if len(self._parts) < _MOST:
            self._parts.add(id(part))


def tensors_of(subject: object) -> list[str]:
    """Describe each tensor attribute of an object; empty without torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    with suppress(Exception):
        lines = []
        with torch._C.DisableTorchFunctionSubclass():
            for name, value in list(object.__getattribute__(subject, "__dict__").items()):
                if isinstance(value, torch.Tensor):
                    lines.append(f"{name}: {_plain(value.dtype)}{list(value.shape)} on {value.device}")
        return lines[:_MOST_TENSORS]
    return []


def _described(module: Any) -> str:
    import torch

    parameters: dict[int, Any] = {}
    dtypes, devices, modules = Counter[str](), Counter[str](), 0
    for part in _walk(module):
        modules += 1
        for parameter in _own(part, "_parameters").values():
            if parameter is not None:
                parameters[id(parameter)] = parameter
    size = trained = total = 0
    with torch._C.DisableTorchFunctionSubclass():
        for parameter in parameters.values():
            count = parameter.numel()
            total += count
            size += count * parameter.element_size()
            trained += count if parameter.requires_grad else 0
            dtypes[_plain(parameter.dtype)] += 1
            devices[str(parameter.device)] += 1
    frozen = "" if trained == total else f", {trained:,} of them trained"
    kinds = f"{' and '.join(sorted(dtypes))} on {' and '.join(sorted(devices))}" if parameters else "nothing to train"
    return f"{type(module).__name__}: {total:,} parameters{frozen}, {size:,} bytes, {modules} modules, {kinds}"


def _walk(module: Any) -> Iterator[Any]:
    """Yield a module and its submodules, each once."""
    visited, left = {id(module)}, [module]
    while left and len(visited) < _MOST:
        current = left.pop()
        yield current
        for part in _own(current, "_modules").values():
            if part is not None and id(part) not in visited:
                visited.add(id(part))
                left.append(part)


def _own(module: Any, name: str) -> Mapping[str, Any]:
    return object.__getattribute__(module, "__dict__").get(name) or {}


def _plain(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
