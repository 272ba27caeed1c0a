"""Kernels by key: where they come from, what each costs, and whether one was compiled when nobody expected it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from falsifiers.blackwell.reference.kernel_archive import Archive
from falsifiers.blackwell.reference.kernels.nvrtc import Form, Image, compile_kernel
from falsifiers.blackwell.reference.kernels.spec import KernelSpec

__all__ = ["ArchiveSource", "CompilerSource", "Device", "KernelCache", "Launch", "Loaded", "Source"]

_LOG = logging.getLogger(__name__)


class Launch(Protocol):
    """A loaded kernel."""

    def __call__(self, grid: tuple[int, int, int], threads: int, *arguments: object) -> None:
        """Start `grid` blocks of `threads` threads on the current stream, or run them where there is none."""
        ...


class Device(Protocol):
    """Where kernels run: `CudaDevice`, or the CPU as `HostDevice`."""

    @property
    def sm(self) -> int | None:
        """Compute capability, such as 90; None where any image will do."""
        ...

    def load(self, spec: KernelSpec, image: Image) -> Launch:
        """Make an image ready to be launched."""
        ...

    def free_bytes(self) -> int | None:
        """Memory of the device that nobody has taken; None where that cannot be told."""
        ...


class Source(Protocol):
    """Where images come from."""

    def image(self, spec: KernelSpec, sm: int) -> tuple[Image, str | None]:
        """The image, and what was compiled with to get it, and will be to load it: None where nothing is compiled."""
        ...


@dataclass(frozen=True)
class ArchiveSource:
    """Machine code that was compiled before."""

    archive: Archive

    def image(self, spec: KernelSpec, sm: int) -> tuple[Image, str | None]:
        """See `Source`; ArchiveError where the archive lacks it."""
        return self.archive.image(spec, sm), None


@dataclass(frozen=True)
class CompilerSource:
    """NVRTC: to machine code, or to PTX, which the driver compiles once more when it is loaded."""

    form: Form

    def image(self, spec: KernelSpec, sm: int) -> tuple[Image, str | None]:
        """See `Source`."""
        return compile_kernel(spec, sm, self.form), "NVRTC" if self.form is Form.CUBIN else "NVRTC and the driver's JIT"


@dataclass(frozen=True)
class Loaded:
    """One kernel in the cache, and what it costs.

    Attributes:
        image_bytes: of the machine code or PTX.
        device_bytes: by which the device's free memory fell while it was loaded; None where that cannot be told. The
            driver takes memory in steps of 2 MiB, so most kernels cost nothing and some cost that.
    """

    key: str
    launch: Launch
    image_bytes: int
    device_bytes: int | None


@dataclass
class KernelCache:
    """Kernels by key. What is not in it is fetched when it is launched first, and compiled where the source must.

    Attributes:
        compilations: how often something was compiled for it; each is one warning in the log.
        requested: the keys asked for by `launch`, in the order of their first use.
        fallback_sm: the target to fetch images of where the device itself runs none, as the CPU.
    """

    source: Source
    device: Device
    fallback_sm: int = 121
    kernels: dict[str, Loaded] = field(default_factory=dict)
    requested: dict[str, int] = field(default_factory=dict)
    compilations: int = 0

    def prewarm(self, specs: Iterable[KernelSpec]) -> None:
        """Load kernels before the first step needs them."""
        for spec in specs:
            self._loaded(spec)

    def launch(self, spec: KernelSpec, grid: tuple[int, int, int], threads: int, *arguments: object) -> None:
        """Launch a kernel, fetched now if it is new."""
        loaded = self._loaded(spec)
        self.requested[loaded.key] = self.requested.get(loaded.key, 0) + 1
        loaded.launch(grid, threads, *arguments)

    def bytes_by_owner(self) -> dict[str, int]:
        """What the cache holds: bytes of images, and of device memory where they were told."""
        held = self.kernels.values()
        return {
            "images": sum(one.image_bytes for one in held),
            "modules": sum(one.device_bytes or 0 for one in held),
        }

    def key(self, spec: KernelSpec) -> str:
        """Under which key a kernel is kept."""
        return spec.key

    def _loaded(self, spec: KernelSpec) -> Loaded:
        key = self.key(spec)
        if key not in self.kernels:
            self.kernels[key] = self._fetch(key, spec)
        return self.kernels[key]

    def _fetch(self, key: str, spec: KernelSpec) -> Loaded:
        sm = self.device.sm or self.fallback_sm
        image, compiler = self.source.image(spec, sm)
        if compiler is not None:
            self.compilations += 1
            _LOG.warning("compiled %s for sm_%d with %s", key, sm, compiler)
        before = self.device.free_bytes()
        launch = self.device.load(spec, image)
        after = self.device.free_bytes()
        cost = None if before is None or after is None else before - after
        return Loaded(key, launch, len(image.data), cost)
