"""The watch on an archive: opened files, and launches from an image."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from falsifiers.blackwell.watching.archive_use import watching_use

WELL, ILL = SimpleNamespace(value=0), SimpleNamespace(value=1)


def test_files_of_the_archive_that_are_opened_and_no_others(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    files = [folder / "before", folder / "read", folder / "unread", tmp_path / "archived"]
    for file in files:
        file.write_bytes(b"code")
    (tmp_path / "link").symlink_to(folder / "read")
    with watching_use(folder, on_gpu=False) as seen:
        (tmp_path / "link").read_bytes()
        files[-1].read_bytes()
    files[2].read_bytes()
    assert seen.opened == {str(folder / "read")}


def test_a_launch_counts_for_the_image_that_it_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake driver's answers depend on the first argument."""
    pytest.importorskip("cuda.bindings")
    from cuda.bindings import driver

    modules = {b"code": 1, b"other": 2}
    answers: dict[str, Any] = {
        "cuModuleLoadData": lambda image: (WELL, modules[image]) if image in modules else (ILL, 0),
        "cuModuleGetFunction": lambda module, name: (WELL, 10 * module + len(name)),
        "cuLaunchKernel": lambda function, *rest: (WELL if function != 21 else ILL,),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(driver, name, answer)
    with watching_use(tmp_path, on_gpu=True) as seen:
        functions = []
        for image, name in [(b"code", b"add"), (b"code", b"rope"), (b"other", b"x")]:
            _, module = driver.cuModuleLoadData(image)
            functions.append(driver.cuModuleGetFunction(module, name)[1])
        assert driver.cuModuleLoadData(b"PTX")[0] is ILL
        for function in (*functions, functions[0], 99):
            driver.cuLaunchKernel(function, 1, 1, 1)
    driver.cuLaunchKernel(functions[0], 1, 1, 1)
    digest = hashlib.sha256(b"code").hexdigest()
    assert seen.launches == {(digest, "add"): 2, (digest, "rope"): 1}
    assert {name: getattr(driver, name) for name in answers} == answers
