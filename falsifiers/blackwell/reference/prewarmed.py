"""The subject of F-BLACKWELL-PREWARM-KEYS-001: caches and backends, compiled for the GPU or rehearsed without one."""

import torch

from falsifiers.blackwell.reference.kernel_cache import CompilerSource, KernelCache
from falsifiers.blackwell.reference.kernels.nvrtc import Form, Image
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.ptx_backend import PtxBackend
from falsifiers.blackwell.subjects.prewarm_keys import Device, Launch, Source
from harness import Setting


class Rehearsal:
    """A source and device without a GPU: nothing is compiled, and launches do nothing.

    The kernels that a step requests follow from shapes alone, so the values of tensors do not matter.
    """

    sm = None

    def image(self, spec: KernelSpec, sm: int) -> tuple[Image, str | None]:
        """An empty image. It counts as compiled, as on a GPU."""
        return Image(Form.CUBIN, b""), "nothing, in rehearsal"

    def load(self, spec: KernelSpec, image: Image) -> Launch:
        """A launch that does nothing."""
        return lambda grid, threads, *arguments: None


class PrewarmedBackends:
    """On CUDA every kernel is compiled with NVRTC and launched; on a CPU all of it is rehearsed. See `Prewarmed`."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def cache(self) -> KernelCache:
        source, device = self._where()
        return KernelCache(source, device)

    def rehearsed(self) -> KernelCache:
        rehearsal = Rehearsal()
        return KernelCache(rehearsal, rehearsal)

    def backend(self, cache: KernelCache) -> PtxBackend:
        return PtxBackend(cache)

    def _where(self) -> tuple[Source, Device]:
        if not self.setting.device.startswith("cuda"):
            rehearsal = Rehearsal()
            return rehearsal, rehearsal
        from falsifiers.blackwell.reference.cuda_device import CudaDevice  # cuda.bindings, which a CPU does not need

        return CompilerSource(Form.CUBIN), CudaDevice(torch.device(self.setting.device).index or 0)
