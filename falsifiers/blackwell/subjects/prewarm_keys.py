"""What F-BLACKWELL-PREWARM-KEYS-001 needs from a subject: a backend that loads its kernels before the first step."""

from typing import Protocol

from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.kernels.nvrtc import Image
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.shapes import BlockShape


class Launch(Protocol):
    """A loaded kernel."""

    def __call__(self, grid: tuple[int, int, int], threads: int, *arguments: object) -> None:
        """Start `grid` blocks of `threads` threads on the current stream; a CPU runs them before it returns."""
        ...


class Device(Protocol):
    """A device that runs kernels: `CudaDevice`, or the CPU as `HostDevice`."""

    @property
    def sm(self) -> int | None:
        """The compute capability, such as 90; None if any image will do."""
        ...

    def load(self, spec: KernelSpec, image: Image) -> Launch:
        """Load an image, so that it can be launched."""
        ...


class Source(Protocol):
    """A source of images."""

    def image(self, spec: KernelSpec, sm: int) -> tuple[Image, str | None]:
        """The image, and the compiler that this call and the load need; None if nothing is compiled."""
        ...


class Cache(Protocol):
    """A cache of kernels by key. A missing kernel is fetched from the source, and loaded on the device.

    Attributes:
        compilations: how many there were.
    """

    source: Source
    device: Device
    compilations: int

    def launch(self, spec: KernelSpec, grid: tuple[int, int, int], threads: int, *arguments: object) -> None:
        """Launch a kernel; fetch it first if it is new."""
        ...


class Prewarming(Backend, Protocol):
    """A backend that can load all kernels of a block at once."""

    def prewarm(self, shape: BlockShape) -> None:
        """Load every kernel that forward and backward of a block of this shape launch."""
        ...


class Prewarmed(Protocol):
    """Makes such backends; built as `Subject(setting)`."""

    def cache(self) -> Cache:
        """An empty cache. Its kernels are compiled for the device of the setting and run there."""
        ...

    def rehearsed(self) -> Cache:
        """An empty cache that neither compiles nor runs kernels, to try thousands of configurations on any machine."""
        ...

    def backend(self, cache: Cache) -> Prewarming:
        """A backend on that cache. Several backends may share one, as teacher and student do."""
        ...
