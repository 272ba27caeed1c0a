"""What the harness asks git, in repositories that are set up to run programs or to give false answers."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from harness.machine import git, timebox

HARNESS = Path(git.__file__).parents[1]
PROGRAMS = (
    "core.fsmonitor",
    "core.sshCommand",
    "core.gitProxy",
    "core.askPass",
    "core.editor",
    "core.pager",
    "core.alternateRefsCommand",
    "credential.helper",
    "diff.external",
    "diff.x.command",
    "diff.x.textconv",
    "filter.x.clean",
    "filter.x.smudge",
    "filter.x.process",
    "filter.a=b.required",
    "filter.a=b.clean",
    "gpg.program",
    "interactive.diffFilter",
    "merge.x.driver",
    "pager.ls-files",
    "sequence.editor",
    "trailer.x.command",
    "uploadpack.packObjectsHook",
)
"""The settings of a repository that name a program."""
ALIASES = ("ls-files", "ls-tree", "rev-list", "rev-parse", "status", "cat-file")


def made(folder: Path) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True)
    call(folder, "init", "-q", "-b", "main")
    (folder / "a.py").write_text("1\n")
    commit(folder, "one")
    return folder


def commit(folder: Path, message: str) -> str:
    call(folder, "add", ".")
    call(folder, "commit", "-qm", message)
    return call(folder, "rev-parse", "HEAD")


def call(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def ask_everything(folder: Path) -> None:
    """Everything that the harness asks git about a folder."""
    git.commit(folder)
    git.ancestry(folder)
    git.is_untracked(folder / "a.py")
    git.git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    git.git(folder, "ls-tree", "-r", "-z", "HEAD")
    git.git(folder, "cat-file", "--batch", stdin=b"HEAD:a.py\n")


def test_no_program_of_a_repository_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a setting nor a hook of a repository, nor a variable, makes git run a program."""
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 >> {ran}\n")
    program.chmod(0o755)
    root = made(tmp_path / "root")
    (root / ".gitattributes").write_text("* filter=x diff=x merge=x\n*.b filter=a=b\n")
    (root / "c.b").write_text("2")
    commit(root, "two")
    (root / "a.py").write_text("2\n")  # as long as before, so that git compares the content
    (root / "c.b").write_text("3")
    for name in PROGRAMS:
        call(root, "config", name, "true" if name.endswith("required") else str(program))
    for name in ALIASES:
        call(root, "config", f"alias.{name}", f"!{program}")
    hooks = root / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction", "post-checkout", "pre-auto-gc"):
        (hooks / name).symlink_to(program)
    for name in ("GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_ASKPASS", "GIT_SSH_COMMAND", "GIT_EDITOR", "GIT_PROXY_COMMAND"):
        monkeypatch.setenv(name, str(program))
    for name, value in {"COUNT": "1", "KEY_0": "core.fsmonitor", "VALUE_0": str(program)}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    monkeypatch.setenv("GIT_TRACE", str(ran))
    ask_everything(root)
    assert not ran.exists(), ran.read_text()
    revision = git.commit(root).value
    assert revision is not None
    assert git.differing(root, revision, {"a.py": hashlib.sha256(b"2\n").hexdigest()}).value == ["a.py"]
    assert not ran.exists(), ran.read_text()


def test_a_missing_object_is_not_fetched(tmp_path: Path) -> None:
    """A partial clone fetches what it lacks, through any program that its remote names."""
    ran = tmp_path / "ran"
    root = made(tmp_path / "root")
    blob = call(root, "rev-parse", "HEAD:a.py")
    (root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    call(root, "config", "core.repositoryFormatVersion", "1")
    call(root, "config", "extensions.partialClone", "origin")
    call(root, "config", "remote.origin.promisor", "true")
    call(root, "config", "protocol.allow", "always")
    for url in (f"ext::touch {ran}", f"ssh://x{tmp_path}", str(tmp_path / "other")):
        call(root, "config", "remote.origin.url", url)
        call(root, "config", "core.sshCommand", f"touch {ran} #")
        call(root, "config", "remote.origin.uploadpack", f"touch {ran} #")
        git.git(root, "cat-file", "--batch", stdin=f"{blob}\n".encode())
        ask_everything(root)
    assert not ran.exists()


def test_replaced_objects_and_grafts_do_not_count(tmp_path: Path) -> None:
    """A repository cannot show other content for a commit, nor add a commit to the history of another one."""
    root = made(tmp_path / "root")
    (root / "a.py").write_text("2\n")
    second = commit(root, "two")
    call(root, "checkout", "-q", "--orphan", "other")
    (root / "a.py").write_text("3\n")
    unrelated = commit(root, "three")
    call(root, "checkout", "-q", "main")
    honest = git.git(root, "ls-tree", "-r", second)
    call(root, "replace", second, unrelated)
    assert git.git(root, "ls-tree", "-r", second) == honest
    assert git.ancestry(root).lacks(unrelated)
    call(root, "replace", "-d", second)
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "grafts").write_text(f"{second} {unrelated}\n")
    assert git.ancestry(root).lacks(unrelated)


def test_a_folder_that_looks_like_a_repository_is_none(tmp_path: Path) -> None:
    """A commit can hold a folder that git takes for a bare repository, with settings of its own."""
    root = made(tmp_path / "root")
    inner = root / "inner"
    inner.mkdir()
    call(inner, "clone", "-q", "--bare", str(root), ".")
    assert git.git(inner, "ls-tree", "HEAD").value is None


def test_configurations_that_never_end_are_given_up(tmp_path: Path) -> None:
    root = made(tmp_path / "root")
    os.mkfifo(root / ".git" / "pipe")
    call(root, "config", "include.path", "pipe")
    answer = git.git(root, "ls-tree", "HEAD", seconds=0.5)
    assert (answer.value, bool(answer.reason)) == (None, True)


def test_names_and_content_arrive_byte_by_byte(tmp_path: Path) -> None:
    root = made(tmp_path / "root")
    (root / os.fsdecode(b"\xff\r\n")).write_bytes(b"\xfe\r\n\0")
    commit(root, "odd")
    assert git.git(root, "ls-files", "-z").value == b"a.py\0\xff\r\n\0"
    assert (git.git(root, "cat-file", "--batch", stdin=b"HEAD:a.py\n").value or b"").endswith(b" blob 2\n1\n\n")
    blob = call(root, "ls-tree", "HEAD").splitlines()[-1].split()[2]
    assert git.git(root, "cat-file", "blob", blob).value == b"\xfe\r\n\0"


def test_nothing_waits_for_input(tmp_path: Path) -> None:
    """A command that does not read its input, or that ends before it, is no error."""
    assert timebox.output(["true"], 60, stdin=bytes(1 << 20)).value == b""
    assert timebox.output(["cat"], 60, stdin=b"a\r\n").value == b"a\r\n"
    began = time.monotonic()
    assert timebox.output(["sleep", "1000"], 0.2, stdin=bytes(1 << 20)).value is None
    assert time.monotonic() - began < 500


def test_one_function_calls_git() -> None:
    """Nothing else in the harness names the program."""
    calling = [
        path.relative_to(HARNESS).as_posix()
        for path in sorted(HARNESS.rglob("*.py"))
        if '"git"' in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.List) and node.elts and isinstance(node.elts[0], ast.Constant)
        if node.elts[0].value == "git"
    ]
    assert calling == ["machine/git.py"]
