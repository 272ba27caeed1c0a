"""The files that a process ran. Each test has a fresh interpreter, since an audit hook cannot be removed."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.execution.sources import LARGEST, changed

PROJECT = Path(__file__).parents[2]

_PROGRAM = """
import json, os, pathlib, sys
from harness.execution.sources import Sources

root = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(root), str(root / "site-packages")]
os.chdir(root)
sources = Sources(root)
sources.listen()
told = []
for part in sys.argv[2:]:
    exec(part)
    told.append(sources.news())
print(json.dumps(told))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a package, a module at its root, a data set, and a library in its own folder."""
    root = tmp_path / "project"
    for name in (
        *("toy/__init__.py", "toy/late.py", "toy/add.cu", "toy/kernels/deep/mul.cu", "toy/made.bin"),
        *("alone.py", "beside.txt", "data/corpus.txt", "site-packages/library/__init__.py"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\n")
    return root


def told(root: Path, *parts: str) -> list[dict[str, str]]:
    """The reports of a process after each of these parts of a program."""
    command = [sys.executable, "-B", "-c", _PROGRAM, str(root), *parts]
    done = subprocess.run(command, cwd=PROJECT, env={"PYTHONPATH": str(PROJECT)}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def digests(root: Path, *names: str) -> dict[str, str]:
    """The digests of these files."""
    return {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in names}


def test_modules_are_told_of_once_and_libraries_never(root: Path) -> None:
    """Each module has the digest of its file. A built-in module, and one made at run time, has none."""
    found = told(
        root,
        "import toy, library, sys, types; sys.modules['made_up'] = types.ModuleType('made_up')",
        "import toy",
        "import toy.late",
        "sys.modules['by_another_name'] = toy",
    )
    assert found == [digests(root, "toy/__init__.py"), {}, digests(root, "toy/late.py"), {}]


def test_the_harness_is_nobody_s_source(root: Path) -> None:
    """The harness's own modules are left out, even if they are in the project, as in this repository."""
    (found,) = told(PROJECT, "import tests.contracts")
    assert {"tests/contracts.py"} <= set(found)
    assert [name for name in found if name.startswith("harness/")] == []


def test_what_is_read_near_a_module_is_told_of_once(root: Path) -> None:
    """Files in the module's folder or below are reported once, also if they are read again or after the module."""
    reads = "[open(name).read() for name in ('toy/add.cu', 'toy/kernels/deep/mul.cu', 'data/corpus.txt')]"
    found = told(root, "import toy", reads, reads)
    assert found == [digests(root, "toy/__init__.py"), digests(root, "toy/add.cu", "toy/kernels/deep/mul.cu"), {}]


def test_what_was_read_before_its_module_was_imported(root: Path) -> None:
    """The text of a kernel becomes a source when the package around it is imported. The data set does not."""
    reads = "[open(name).read() for name in ('toy/add.cu', 'data/corpus.txt')]"
    found = told(root, "import alone", reads, "import toy", "import toy.late")
    assert found == [
        digests(root, "alone.py"),
        {},
        digests(root, "toy/__init__.py", "toy/add.cu"),
        digests(root, "toy/late.py"),
    ]


def test_a_module_in_the_root_makes_no_source_of_the_whole_project(root: Path) -> None:
    """Files beside the module may be sources. A folder of data may not."""
    found = told(root, "import alone; [open(name).read() for name in ('beside.txt', 'data/corpus.txt')]")
    assert found == [digests(root, "alone.py", "beside.txt")]


@pytest.mark.parametrize(
    "read",
    [
        "open(b'toy/add.cu').close()",
        "open(root / 'toy' / 'add.cu').close()",
        "open('data/../toy/add.cu').close()",
        "os.close(os.open('toy/add.cu', os.O_RDONLY))",
        "open(os.open('toy/add.cu', os.O_RDONLY)).close()",
    ],
)
def test_ways_to_read(root: Path, read: str) -> None:
    """A file counts with any spelling of its path and any way to open it."""
    assert told(root, "import toy", read)[1] == digests(root, "toy/add.cu")


@pytest.mark.parametrize(
    "opened",
    [
        "open('toy/made.bin', 'w').write('x'); open('toy/made.bin').close()",
        "open('toy/made.bin', 'r+').close(); open('toy/made.bin').close()",
        "os.close(os.open('toy/made.bin', os.O_WRONLY)); open('toy/made.bin').close()",
        "os.rename('toy/add.cu', 'toy/made.bin'); open('toy/made.bin').close()",
        "os.dup2(os.open('toy', os.O_RDONLY), 64); made = f'{root}/toy/made.bin'; "
        "os.rename('add.cu', made, src_dir_fd=64); open(made).close()",
        "os.close(os.open('toy', os.O_RDONLY))",
        "open(f'{root}s.txt', 'w').close(); open(f'{root}s.txt').close()",
        "sys.audit('open'); sys.audit('open', 'toy/add.cu', 'r', None); sys.audit('os.remove', 'toy/add.cu', None, 0)",
    ],
)
def test_what_is_no_source(root: Path, opened: str) -> None:
    """A written file, a folder, a file outside of the project, and an unknown event are no sources."""
    assert told(root, "import toy", opened)[1] == {}


@pytest.mark.parametrize("after", ["open('toy/add.cu', 'w').write('x')", "os.remove('toy/add.cu')"])
def test_a_source_that_changes_later_is_one(root: Path, after: str) -> None:
    """It has the digest of what was read, and does not equal its file any more."""
    before = digests(root, "toy/add.cu")
    assert told(root, "import toy", f"open('toy/add.cu').close(); {after}")[1] == before
    assert changed(before, root) == ["toy/add.cu"]


def test_a_module_that_is_loaded_twice_with_other_content_equals_no_file(root: Path) -> None:
    """No single digest can say what ran."""
    edit = "import importlib, toy.late; open('toy/late.py', 'w').write('# other'); importlib.reload(toy.late)"
    first, second = told(root, "import toy.late", edit)
    assert first["toy/late.py"] != second["toy/late.py"]
    assert changed(second, root) == ["toy/late.py"]


def test_an_exception_that_ends_a_thread_changes_no_source(root: Path) -> None:
    """Python compiles the part of the line where it was raised, under the name of the file."""
    (root / "toy/late.py").write_text("def work(one):\n    return one.a + one.b\n")
    started = "one = threading.Thread(target=toy.late.work, args=(1,)); one.start(); one.join()"
    assert told(root, f"import threading, toy.late; {started}") == [digests(root, "toy/__init__.py", "toy/late.py")]


@pytest.mark.parametrize("mode", ["r", "w"])
def test_no_bytecode_can_be_opened(root: Path, mode: str) -> None:
    """Neither read nor written below the project; below its libraries, it can."""
    tries = f"try: open('toy/x.pyc', {mode!r})\nexcept PermissionError: import toy"
    assert told(root, f"open('site-packages/x.pyc', 'w').close()\n{tries}") == [digests(root, "toy/__init__.py")]


@pytest.mark.parametrize(("size", "expected"), [(LARGEST, 1), (LARGEST + 1, 0)])
def test_what_is_too_large_for_a_source(root: Path, size: int, expected: int) -> None:
    """A file of exactly one mebibyte may be a source."""
    (root / "toy" / "add.cu").write_bytes(bytes(size))
    assert LARGEST == 1024**2
    assert len(told(root, "import toy", "open('toy/add.cu').close()")[1]) == expected


@pytest.mark.parametrize(("others", "expected"), [(9_998, 1), (9_999, 0)])
def test_of_files_without_end_so_many_are_remembered(root: Path, others: int, expected: int) -> None:
    """Only a limited number of files is remembered, read or written.

    Missing files count, because they are checked later. The package's own file is one of them.
    """
    opens = f"[sys.audit('open', str(root / 'x' / str(n)), None, n % 2) for n in range({others})]"
    assert len(told(root, "import toy", f"{opens}; open('toy/add.cu').close()")[1]) == expected


def test_data_files_are_told_once_beside_the_sources(tmp_path: Path) -> None:
    """They are for the trial's log: neither code, nor what is written, nor the machine's own files."""
    (tmp_path / "project").mkdir()
    for name in ("a.bin", "b.bin", "c.py"):
        (tmp_path / name).touch()
    opens = "[open(*one).close() for one in [('a.bin',), ('a.bin',), ('b.bin', 'w'), ('c.py',)]]"
    opens = f"os.chdir({str(tmp_path)!r}); {opens}"
    program = _PROGRAM.replace("sources.news()", "sources.data()")
    command = [sys.executable, "-B", "-c", program, str(tmp_path / "project")]
    done = subprocess.run(
        [*command, f"{opens}; open('/proc/self/maps').close()", "pass"],
        cwd=PROJECT, env={"PYTHONPATH": str(PROJECT)}, capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == [[str(tmp_path / "a.bin")], []]


def test_files_that_are_opened_while_others_are_told(tmp_path: Path) -> None:
    """Another thread may open one at any moment. Each of them is told of once."""
    (tmp_path / "project").mkdir()
    names = [str(tmp_path / str(number)) for number in range(100)]
    for name in names:
        Path(name).touch()
    program = f"""
import os, pathlib
from harness.execution.sources import Sources

sources = Sources(pathlib.Path({str(tmp_path / "project")!r}))
sources.listen()
names, exists = {names!r}, os.path.isfile

def isfile(name):
    if names:
        open(names.pop()).close()
    return exists(name)

os.path.isfile = isfile
open(names.pop()).close()
print(sorted(sources.data() + sources.data()) == sorted({names!r}))
"""
    command = [sys.executable, "-B", "-c", program]
    done = subprocess.run(command, cwd=PROJECT, env={"PYTHONPATH": str(PROJECT)}, capture_output=True, check=False)
    assert done.stdout == b"True\n", done.stderr.decode()
