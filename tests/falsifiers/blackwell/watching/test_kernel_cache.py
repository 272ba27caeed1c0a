"""The watch on a kernel cache: images, log lines and the counter."""

from __future__ import annotations

import logging

import pytest

from falsifiers.blackwell.reference.kernel_cache import KernelCache
from falsifiers.blackwell.reference.kernels.catalogue import add, rms_norm, rms_norm_backward
from falsifiers.blackwell.reference.prewarmed import Rehearsal
from falsifiers.blackwell.watching.kernel_cache import CacheWatch, LogLines

GRID = (1, 1, 1)
NORM, OTHER = rms_norm(64, 1e-6), rms_norm(64, 1e-5)


def test_a_cache_that_keeps_its_books() -> None:
    cache = KernelCache(Rehearsal(), Rehearsal())
    watch = CacheWatch.on(cache)
    with LogLines() as log:
        cache.prewarm([NORM, OTHER])
        cache.launch(NORM, GRID, 1)
        cache.launch(add(), GRID, 1)
    assert (watch.asked, watch.ran) == ([NORM.digest, add().digest],) * 2
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
