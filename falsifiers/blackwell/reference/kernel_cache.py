"""A cache of kernels by key, which counts and logs compilations."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from falsifiers.blackwell.reference.kernel_archive import Archive
from falsifiers.blackwell.reference.kernels.nvrtc import Form, Image, compile_kernel
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.subjects.prewarm_keys import Device, Launch, Source

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArchiveSource:
    """Machine code from an archive."""

    archive: Archive

    def image(self, spec: KernelSpec, sm: int) -> tuple[Image, str | None]:
        """See `Source`; raises ArchiveError if the archive lacks the image."""
        return self.archive.image(spec, sm), None


@dataclass(frozen=True)
class CompilerSource:
    """NVRTC, which compiles to machine code, or to PTX, which the driver compiles again. See `Source`."""

    form: Form

    def image(self, spec: KernelSpec, sm: int) -> tuple[Image, str | None]:
        return compile_kernel(spec, sm, self.form), "NVRTC" if self.form is Form.CUBIN else "NVRTC and the driver's JIT"


@dataclass
class KernelCache:
    """Kernels by key. A missing kernel is fetched at its first launch, and compiled if the source has to.

    Attributes:
        compilations: number of compilations; each is logged as a warning.
        requested: number of launches by key, in the order of the first launch.
        fallback_sm: target of the images if the device itself takes none, as a CPU.
    """

    source: Source
    device: Device
    fallback_sm: int = 121
    kernels: dict[str, Launch] = field(default_factory=dict)
    requested: dict[str, int] = field(default_factory=dict)
    compilations: int = 0

    def prewarm(self, specs: Iterable[KernelSpec]) -> None:
        """Load kernels before the first step needs them."""
        for spec in specs:
            self._loaded(spec)

    def launch(self, spec: KernelSpec, grid: tuple[int, int, int], threads: int, *arguments: object) -> None:
        """Launch a kernel; fetch it first if it is new."""
        launch, key = self._loaded(spec), self.key(spec)
        self.requested[key] = self.requested.get(key, 0) + 1
        launch(grid, threads, *arguments)

    def key(self, spec: KernelSpec) -> str:
        """The key of a kernel in this cache."""
        return spec.key

    def _loaded(self, spec: KernelSpec) -> Launch:
        key = self.key(spec)
        if key not in self.kernels:
            self.kernels[key] = self._fetch(key, spec)
        return self.kernels[key]

    def _fetch(self, key: str, spec: KernelSpec) -> Launch:
        sm = self.device.sm or self.fallback_sm
        image, compiler = self.source.image(spec, sm)
        if compiler is not None:
            self.compilations += 1
            _LOG.warning("compiled %s for sm_%d with %s", key, sm, compiler)
        return self.device.load(spec, image)
