"""Code of the harness reads files only through harness/base: bounded, regular files only, strict documents."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_PARSERS = {"json.load", "json.loads", "tomllib.load", "tomllib.loads"}
_READERS = {"read_text", "read_bytes"}
_FOLDERS = {"os.O_DIRECTORY", "os.O_PATH", "os.O_WRONLY", "os.devnull"}
"""What `os.open` may be used for: a folder, a path that is not read, a file that is written, no file."""

DOORS = {
    "base/beneath.py",
    "base/regular_file.py",
    "base/removal.py",
    "base/strictjson.py",
    "base/toml.py",
}
"""What the rest of the harness reads files and documents with."""

OWN = {
    "cli/scaffold.py": ["read_text"],  # templates of the package
    "machine/provenance.py": ["read_bytes", "read_bytes"],  # the package's own sources
    "tools/probe/present_device.py": ["read_bytes"],  # a source file of the package
    "tools/html/templating.py": ["read_text"],  # templates of the package
    "tools/suite/contract.py": ["read_bytes"],  # a template of the package
}
"""The files of the harness's own package."""

TEXTS = {
    "evidence/index.py": ["json.loads", "json.loads"],  # a row of the cache, which has a checksum
    "authoring/tensor_function/fresh_process.py": ["json.loads"],  # what a fork of this process wrote
    "tools/isolate/rpc.py": ["json.loads"],  # a message with a bound, from a subject's process
    "execution/fork_server.py": ["open"],  # a descriptor of a process, to wait for its end
    "execution/messages.py": ["json.loads"],  # a message with a bound, from a trial; it refuses NaN
    "tools/recorder/control.py": ["open"],  # /proc/self/maps, the libraries of its own process
    "tools/trainer/output_events.py": ["json.loads"],  # a line with a bound, of a trainer that may print NaN
    "machine/limited_process.py": ["json.loads", "json.loads"],  # what a fork of this process wrote
    "tools/corpus/campaign.py": [
        "read_bytes",
        "json.loads",
    ],  # the project's own corpus, and what a fork of this process wrote
    "tools/corpus/checker.py": [
        "json.loads",
        "json.loads",
    ],  # the project's own corpus, and what a fork of this process wrote
    "tools/watch/facts.py": [
        "read_bytes",
        "os.open",
        "read_bytes",
        "json.loads",
    ],  # what this user's watcher or job wrote, in bounded lines
    "tools/watch/process.py": ["read_text", "read_text"],  # the status of a job; /proc
    "tools/watch/setting_up.py": [
        "resolve",
        "resolve",
        "resolve",
        "resolve",
        "resolve",
        "resolve",
    ],  # what this user's watcher or job wrote, in bounded lines
}
"""Texts that are no files, and bounded where they are made."""


def readings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each call that reads a file or parses a document by itself.

    Also of `Path.resolve`, which raises RuntimeError for a link to itself; `os.path.realpath` does not.
    """
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func)
        last = name.rpartition(".")[2]
        if name in _PARSERS or last in _READERS:
            yield call.lineno, name if name in _PARSERS else last
        elif name == "os.open":
            if not any(folder in ast.unparse(call) for folder in _FOLDERS):
                yield call.lineno, name
        elif last == "resolve" and not call.args and not call.keywords:
            yield call.lineno, last
        elif last == "open" and not _writes(call, is_method=name != "open"):
            yield call.lineno, name


def _writes(call: ast.Call, *, is_method: bool) -> bool:
    modes = [word.value for word in call.keywords if word.arg == "mode"] + call.args[0 if is_method else 1 :]
    return any(isinstance(mode, ast.Constant) and set(str(mode.value)) & set("wax+") for mode in modes[:2])


def test_files_are_read_through_one_door() -> None:
    """A new reader of files goes through harness/base, or is named above with the reason."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "harness").rglob("*.py")):
        place = path.relative_to(ROOT / "harness").as_posix()
        if names := [name for _, name in readings(path.read_text(encoding="utf-8"))]:
            found[place] = names
    assert {place: names for place, names in found.items() if place not in DOORS} == {**OWN, **TEXTS}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("open(path)", ["open"]),
        ("open(path, 'rb')", ["open"]),
        ("path.open()", ["path.open"]),
        ("path.open(encoding='utf-8')", ["path.open"]),
        ("path.read_text()", ["read_text"]),
        ("(a / b).read_bytes()", ["read_bytes"]),
        ("json.load(file); tomllib.loads(text)", ["json.load", "tomllib.loads"]),
        ("os.open(path, os.O_RDONLY)", ["os.open"]),
        ("path.resolve(); trial.resolve(steps=3)", ["resolve"]),
        ("open(path, 'w'); path.open('xb'); open(path, mode='a')", []),
        ("os.open(path, os.O_DIRECTORY | os.O_RDONLY); strictjson.load(path)", []),
    ],
)
def test_what_counts_as_reading(text: str, names: list[str]) -> None:
    """The rule can fail."""
    assert sorted(name for _, name in readings(text)) == sorted(names)
