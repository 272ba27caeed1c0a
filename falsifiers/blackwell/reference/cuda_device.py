"""Load and launch kernels through the CUDA driver, in torch's context and on its current stream."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from falsifiers.blackwell.reference.kernels.nvrtc import Form, Image
from falsifiers.blackwell.reference.kernels.signature import signature
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.subjects.prewarm_keys import Launch


class DriverError(RuntimeError):
    """The driver returned an error. `name` is its name, such as "CUDA_ERROR_NO_BINARY_FOR_GPU"."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(f"{what}: {name}")
        self.name = name


class CudaDevice:
    """One GPU, by torch's index. Modules are loaded by `load`, not at their first launch."""

    def __init__(self, index: int = 0) -> None:
        """Start CUDA through torch; kernels share its context."""
        torch.cuda.init()
        self.device = torch.device("cuda", index)
        torch.zeros(1, device=self.device)  # makes the device's primary context current
        self._modules: list[Any] = []

    @property
    def sm(self) -> int:
        """The compute capability, such as 90 or 121."""
        major, minor = torch.cuda.get_device_capability(self.device)
        return 10 * major + minor

    def load(self, spec: KernelSpec, image: Image) -> Launch:
        """Load an image; raises DriverError if the driver refuses it, as PTX with CUDA_DISABLE_PTX_JIT=1."""
        from cuda.bindings import driver

        with torch.cuda.device(self.device):
            # The driver reads PTX up to a 0 byte, which NVRTC appends.
            data = image.data if image.form is Form.CUBIN else image.data.rstrip(b"\0") + b"\0"
            module = _call(f"loading {spec.key}", driver.cuModuleLoadData(data))
            function = _call(f"finding {spec.key}", driver.cuModuleGetFunction(module, spec.key.encode()))
        self._modules.append(module)
        return _launcher(spec, function, self.device, driver.cuLaunchKernel)


def _launcher(spec: KernelSpec, function: Any, device: torch.device, launch: Callable[..., Any]) -> Launch:
    types = signature(spec)

    def run(grid: tuple[int, int, int], threads: int, *arguments: object) -> None:
        values = tuple(_value(spec, argument, device) for argument in arguments)
        with torch.cuda.device(device):
            stream = torch.cuda.current_stream().cuda_stream
            _call(f"launching {spec.key}", launch(function, *grid, threads, 1, 1, 0, stream, (values, types), 0))

    return run


def _value(spec: KernelSpec, argument: object, device: torch.device) -> object:
    if argument is None:
        return 0
    if not isinstance(argument, Tensor):
        return argument
    if argument.device != device:
        raise ValueError(f"{spec.key} runs on {device}, but an argument is on {argument.device}")
    return argument.data_ptr()


def _call(what: str, answer: Any) -> Any:
    status, *values = answer
    if status.value != 0:
        raise DriverError(what, status.name)
    return values[0] if values else None
