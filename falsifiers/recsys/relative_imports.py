"""F-CUTLASS-RELATIVE-001: the first version of cutlass-dsl whose preprocessor accepts `from . import NAME`."""

import __future__

import ast
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol
from unittest.mock import MagicMock, patch

from harness import NotMeasured, Trial

_PACKAGE = "preprocessed_package"
_SOURCES = {
    "__init__": "",
    "sibling": "VALUE = 7\n",
    "named": "from .sibling import VALUE\n",
    "itself": "from . import sibling\n",
}


class Preprocessors(Protocol):
    """The module ast_preprocessor.py of several versions; built as `Subject(setting)`."""

    def text(self, version: str) -> str:
        """Return the text of a version's module."""
        ...


def falsify(trial: Trial[Preprocessors]) -> None:
    """Let each version process the imports of two modules of a package."""
    takes, takes_named = list[str](), list[str]()
    with _package(trial.workspace):
        for version in trial.parameters["versions"]:
            with trial.subject_fault():
                preprocessor = _preprocessor(trial.subject.text(version))
            if _imported(preprocessor, "named").get("VALUE") == 7:
                takes_named.append(version)
            if _imported(preprocessor, "itself").get("sibling") is sys.modules[f"{_PACKAGE}.sibling"]:
                takes.append(version)
    trial.measure(takes=takes, takes_named=takes_named)
    trial.resolve(device="cpu")


@contextmanager
def _package(workspace: Path) -> Iterator[None]:
    """A package with these modules, which can be imported."""
    folder = workspace / _PACKAGE
    folder.mkdir()
    for name, text in _SOURCES.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    with patch.object(sys, "path", [str(workspace), *sys.path]), patch.dict(sys.modules):
        importlib.invalidate_caches()
        for name in ("sibling", "named", "itself"):
            importlib.import_module(f"{_PACKAGE}.{name}")
        yield


def _preprocessor(text: str) -> Any:
    """Run the module with replaced neighbours; return an object of the class that collects imports."""
    parent, common = ModuleType("preprocessed"), ModuleType("preprocessed.common")
    parent.__path__, common.__all__ = [], []  # type: ignore[attr-defined]
    around = {
        "preprocessed": parent, "preprocessed.common": common, "preprocessed.utils": MagicMock(__path__=[]),
        "preprocessed.utils.logger": MagicMock(),
    }  # fmt: skip
    module = ModuleType("preprocessed.ast_preprocessor")
    module.__package__ = "preprocessed"
    with patch.dict(sys.modules, {**around, module.__name__: module}):
        # Annotations name what only the real neighbours have, so they stay unevaluated.
        code = compile(text, "ast_preprocessor.py", "exec", __future__.annotations.compiler_flag, dont_inherit=True)
        exec(code, vars(module))  # noqa: S102  # what is to be tested
    for collector in vars(module).values():
        if isinstance(collector, type) and hasattr(collector, "_get_imports_from_ast"):
            preprocessor = collector.__new__(collector)
            preprocessor.file_name = ""
            return preprocessor
    raise NotMeasured("no class of ast_preprocessor.py has _get_imports_from_ast")


def _imported(preprocessor: Any, name: str) -> dict[str, Any]:
    """The imports that the preprocessor finds for a module of the package; empty if it raises ImportError."""
    module = sys.modules[f"{_PACKAGE}.{name}"]
    imports: dict[str, Any] = {}
    try:
        preprocessor.exec_imports(preprocessor._get_imports_from_ast(ast.parse(_SOURCES[name]), module), imports)
    except ImportError as error:
        print(f"{name}: {error}", flush=True)
    return imports
