"""The watch on an archive: opened files, and launches from an image."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from falsifiers.blackwell.reference.kernel_cache import KernelCache
from falsifiers.blackwell.reference.kernels.catalogue import add, rms_norm, rms_norm_backward
from falsifiers.blackwell.reference.prewarmed import Rehearsal
from falsifiers.blackwell.watching.archive_use import watching_use
from falsifiers.blackwell.watching.kernel_cache import CacheWatch, LogLines

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


GRID = (1, 1, 1)
NORM, OTHER = rms_norm(64, 1e-6), rms_norm(64, 1e-5)


def test_a_cache_that_keeps_its_books() -> None:
    cache = KernelCache(Rehearsal(), Rehearsal())
    watch = CacheWatch.on(cache)
    with LogLines() as log:
        cache.prewarm([NORM, OTHER])
        cache.launch(NORM, GRID, 1)
        cache.launch(add(), GRID, 1)
    assert (watch.requested, watch.ran) == ([NORM.digest, add().digest],) * 2
    assert watch.loaded == [NORM.digest, OTHER.digest, add().digest]
    assert (watch.fetched, watch.miscounted(cache.compilations), log.differ_from(watch.compiled)) == (3, 0, 0)


def test_an_image_that_was_made_for_another_kernel() -> None:
    cache = KernelCache(Rehearsal(), Rehearsal())
    watch = CacheWatch.on(cache)
    image, _ = cache.source.image(NORM, 90)
    cache.device.load(OTHER, image)(GRID, 1)
    assert watch.ran == [NORM.digest]


@pytest.mark.parametrize(
    ("counts", "last", "expected"),
    [([], 0, 0), ([0, 1, 2], 3, 0), ([1, 2, 3], 3, 0), ([0, 0, 2], 3, 2), ([0, 1, 2], 2, 1), ([], 1, 1)],
)
def test_a_counter_that_goes_another_way(counts: list[int], last: int, expected: int) -> None:
    """The counter may rise before or after a compilation, but by one each time."""
    watch = CacheWatch(compiled=["add"] * len(counts), counts=counts)
    assert watch.miscounted(last) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["compiled rms_norm_h64", "compiled rms_norm_backward_h64", "compiled add"], 0),
        (["compiled add", "compiled add", "compiled rms_norm_backward_h64"], 2),
        (["compiled rms_norm_h64", "compiled rms_norm_backward_h64"], 1),
        (["compiled rms_norm_h64", "compiled rms_norm_backward_h64", "compiled add", "compiled rope"], 1),
        ([], 3),
    ],
)
def test_every_compilation_has_a_line_of_its_own(lines: list[str], expected: int) -> None:
    logger = logging.getLogger("falsifiers.blackwell.reference.kernel_cache")
    with LogLines() as log:
        for line in ["something else", *lines]:
            logger.warning(line)
    assert log.differ_from([add().name, NORM.name, rms_norm_backward(64, 1e-6).name]) == expected
