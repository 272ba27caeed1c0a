"""The engine of F-BLACKWELL-ARCHIVE-001: blocks of our CUDA kernels, all loaded from the archive."""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch

from falsifiers.blackwell.reference.block import Block
from falsifiers.blackwell.reference.host_device import HostDevice, NoHostCompiler
from falsifiers.blackwell.reference.kernel_archive import Archive, build
from falsifiers.blackwell.reference.kernel_cache import ArchiveSource, KernelCache
from falsifiers.blackwell.reference.kernels.catalogue import block_kernels
from falsifiers.blackwell.reference.kernels.nvrtc import Image, compile_kernel
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.model import LanguageModel
from falsifiers.blackwell.reference.ptx_backend import PtxBackend
from falsifiers.blackwell.reference.shapes import SHAPES
from falsifiers.blackwell.subjects.prewarm_keys import Device, Source
from harness import NotMeasured, Setting


class Engine:
    """Trains on the GPU with machine code from the archive.

    On a CPU the archive is read and checked as for a GPU, but the kernels are built from their text.
    """

    def __init__(self, setting: Setting) -> None:
        """Build nothing and touch no device; see `archive` and `start`."""
        self.setting = setting
        self.shape = SHAPES[setting.parameters["model"]]
        self.targets = tuple(setting.parameters["targets"])
        self.cache: KernelCache | None = None
        self._built: Path | None = None

    def archive(self) -> Path:
        """The folder of the archive, in the cache that trials share. Images that are right are not built again."""
        folder = self._kept / "-".join(map(str, (self.setting.parameters["model"], *self.targets)))
        if self._built is None:
            _build(folder, block_kernels(self.shape), self.targets)
            self._built = folder
        return self._built

    def start(self) -> LanguageModel:
        """Load the kernels of the model, then its weights."""
        cache = KernelCache(self.source(), self.device())
        self.cache = cache
        backend = PtxBackend(cache)
        try:
            self.prewarm(backend)
        except NoHostCompiler as error:
            raise NotMeasured(str(error)) from error
        blocks = [self.block(backend) for _ in range(self.setting.parameters["layers"])]
        device = torch.device(self.setting.device)
        return LanguageModel(self.shape, blocks, self.setting.parameters["vocabulary"], self.setting.seed, device)

    def compilations(self) -> int:
        return 0 if self.cache is None else self.cache.compilations

    def launched(self) -> Mapping[str, int]:
        return {} if self.cache is None else dict(self.cache.requested)

    def source(self) -> Source:
        return ArchiveSource(Archive.open(self.archive()))

    def prewarm(self, backend: PtxBackend) -> None:
        backend.prewarm(self.shape)

    def block(self, backend: PtxBackend) -> Block:
        return Block(self.shape, backend)

    def device(self) -> Device:
        if not self.setting.device.startswith("cuda"):
            return HostDevice(self._kept / "host-kernels")
        from falsifiers.blackwell.reference.cuda_device import CudaDevice  # cuda.bindings, which a CPU does not need

        return CudaDevice(torch.device(self.setting.device).index or 0)

    @property
    def _kept(self) -> Path:
        """The folder in the shared cache of what this code has built. Other code finds nothing there."""
        return self.setting.cache / "kernel-archive" / code_digest(Path(__file__).parent)


def _build(folder: Path, kernels: Sequence[KernelSpec], targets: Sequence[int]) -> None:
    """Build the archive. As soon as one image is missing, all are compiled, many at a time."""
    with ThreadPoolExecutor() as pool:
        images: dict[tuple[KernelSpec, int], Future[Image]] = {}

        def compiled(spec: KernelSpec, sm: int) -> Image:
            if not images:
                images.update(
                    {(kernel, to): pool.submit(compile_kernel, kernel, to) for to in targets for kernel in kernels}
                )
            return images[spec, sm].result()

        try:
            build(folder, kernels, targets, compiled=compiled)
        finally:
            pool.shutdown(cancel_futures=True)


def code_digest(package: Path) -> str:
    """A digest of all sources of a package: each may change what a build leaves behind."""
    digest = hashlib.sha256()
    for source in sorted(path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        digest.update(f"{source.relative_to(package)} {hashlib.sha256(source.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:24]
