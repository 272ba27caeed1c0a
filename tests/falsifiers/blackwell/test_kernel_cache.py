"""The counts, log lines and content of a kernel cache."""

from __future__ import annotations

import logging

import pytest

from falsifiers.blackwell.reference.kernel_archive import Archive, ArchiveError
from falsifiers.blackwell.reference.kernel_cache import ArchiveSource, CompilerSource, KernelCache
from falsifiers.blackwell.reference.kernels.catalogue import silu_gate
from falsifiers.blackwell.reference.kernels.nvrtc import Form, Image
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.subjects.prewarm_keys import Launch
from tests.falsifiers.blackwell.conftest import SPECS

ADD, NORM = SPECS
GRID = (1, 1, 1)


class Recorder:
    """A device that records what is loaded and launched."""

    sm = 90

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.launched: list[str] = []

    def load(self, spec: KernelSpec, image: Image) -> Launch:
        self.loaded.append(spec.key)
        return lambda grid, threads, *arguments: self.launched.append(spec.key)


def test_an_archive_compiles_nothing(archive: Archive) -> None:
    device = Recorder()
    cache = KernelCache(ArchiveSource(archive), device)
    cache.prewarm(SPECS)
    cache.launch(ADD, GRID, 1)
    cache.launch(ADD, GRID, 1)
    assert (cache.compilations, device.loaded, device.launched) == (0, [ADD.key, NORM.key], [ADD.key, ADD.key])
    assert cache.requested == {ADD.key: 2}
    with pytest.raises(ArchiveError, match="silu_gate"):
        cache.launch(silu_gate(), GRID, 1)


@pytest.mark.parametrize("form", Form)
def test_every_compilation_is_counted_and_logged_once(form: Form, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("cuda.bindings")
    cache = KernelCache(CompilerSource(form), Recorder())
    with caplog.at_level(logging.WARNING):
        cache.prewarm([ADD])
        cache.launch(ADD, GRID, 1)
        cache.launch(silu_gate(), GRID, 1)
    assert cache.compilations == 2
    assert [record.message.split(" with ")[0] for record in caplog.records] == [
        "compiled add for sm_90",
        "compiled silu_gate for sm_90",
    ]
