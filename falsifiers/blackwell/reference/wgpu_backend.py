"""The operations of a block in WGSL, on Vulkan: the fallback of training when CUDA has no memory.

    wgpu = WgpuBackend("gpu")
    weight = wgpu.upload(weight)      # stays on the adapter; results of such tensors stay there too
    wgpu.matmul(x, y)                 # host and CUDA tensors are uploaded, and the result is fetched

A tensor larger than the adapter's binding limit is processed in parts.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

import torch
from torch import Tensor

from falsifiers.blackwell.reference import wgpu_gemm
from falsifiers.blackwell.reference.backend import ProjectionGradients
from falsifiers.blackwell.reference.wgpu_device import Device, DeviceLimit, Kernel, Window, choose_adapter
from falsifiers.blackwell.reference.wgpu_gemm import Product
from falsifiers.blackwell.reference.wgpu_tensor import WgpuTensor, whole

_THREADS: Final = 256
_SUMMED_COLUMNS: Final = 32

_ADD: Final = Kernel(("elementwise.wgsl",), "add", (1, 2, 4))
_ADD_ROW: Final = Kernel(("elementwise.wgsl",), "add_row", (1, 2, 4))
_SILU_GATE: Final = Kernel(("elementwise.wgsl",), "silu_gate", (1, 2, 4))
_SILU_GATE_BACKWARD: Final = Kernel(("elementwise.wgsl",), "silu_gate_backward", (1, 2, 3, 4, 5))
_RMS_NORM: Final = Kernel(("rms_norm.wgsl",), "rms_norm", (1, 2, 4))
_RMS_NORM_BACKWARD: Final = Kernel(("rms_norm.wgsl",), "rms_norm_backward", (1, 2, 3, 4, 5))
_COLUMN_SUM: Final = Kernel(("column_sum.wgsl",), "column_sum", (1, 2))
_ROPE: Final = Kernel(("rope.wgsl",), "rope", (1, 2, 3))
_SOFTMAX: Final = Kernel(("softmax.wgsl",), "causal_softmax", (1, 3))
_SOFTMAX_BACKWARD: Final = Kernel(("softmax.wgsl",), "causal_softmax_backward", (1, 2, 3))


class WgpuBackend:
    """Every operation of `Backend`, in float32."""

    name = "wgpu"

    def __init__(self, adapter: str = "gpu", *, device: Device | None = None) -> None:
        """Open the adapter that `choose_adapter` finds, or use an open device.

        Raises:
            NoAdapter: there is no such adapter; a software adapter never counts as a GPU.
        """
        self.device = device or Device(choose_adapter(adapter))
        self._turns: dict[tuple[int, int, float], WgpuTensor] = {}

    def upload(self, tensor: Tensor) -> WgpuTensor:
        """A copy of a float32 tensor on the adapter; a tensor that is already there is returned unchanged."""
        return tensor if isinstance(tensor, WgpuTensor) else WgpuTensor.of(self.device, tensor)

    def project(self, projection: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        del projection
        return self._run(self._project, x, weight, *([] if bias is None else [bias]))[0]

    def project_backward(
        self, projection: str, x: Tensor, weight: Tensor, gradient: Tensor, *, bias: bool
    ) -> ProjectionGradients:
        del projection
        operation = self._project_backward_with_bias if bias else self._project_backward
        grad_x, grad_weight, *grad_bias = self._run(operation, x, weight, gradient)
        return ProjectionGradients(grad_x, grad_weight, grad_bias[0] if bias else None)

    def matmul(self, a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
        return self._run(lambda a, b: (self._product(a, b, transpose_a, transpose_b),), a, b)[0]

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return self._run(lambda x, weight: (self._rms_norm(x, weight, eps),), x, weight)[0]

    def rms_norm_backward(self, x: Tensor, weight: Tensor, gradient: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        grad_x, grad_weight = self._run(
            lambda x, weight, gradient: self._rms_norm_backward(x, weight, gradient, eps), x, weight, gradient
        )
        return grad_x, grad_weight

    def rope(self, x: Tensor, theta: float) -> Tensor:
        return self._run(lambda x: (self._rotate(x, theta, +1.0),), x)[0]

    def rope_backward(self, gradient: Tensor, theta: float) -> Tensor:
        return self._run(lambda gradient: (self._rotate(gradient, theta, -1.0),), gradient)[0]

    def causal_softmax(self, scores: Tensor, scale: float) -> Tensor:
        return self._run(lambda scores: (self._softmax(_SOFTMAX, scale, scores),), scores)[0]

    def causal_softmax_backward(self, probabilities: Tensor, gradient: Tensor, scale: float) -> Tensor:
        return self._run(
            lambda probabilities, gradient: (self._softmax(_SOFTMAX_BACKWARD, scale, probabilities, gradient),),
            probabilities,
            gradient,
        )[0]

    def silu_gate(self, gate: Tensor, up: Tensor) -> Tensor:
        return self._run(lambda gate, up: self._elements(_SILU_GATE, 1, gate, up), gate, up)[0]

    def silu_gate_backward(self, gate: Tensor, up: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        grad_gate, grad_up = self._run(
            lambda gate, up, gradient: self._elements(_SILU_GATE_BACKWARD, 2, gate, up, gradient), gate, up, gradient
        )
        return grad_gate, grad_up

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return self._run(lambda a, b: self._elements(_ADD, 1, a, b), a, b)[0]

    def _run(self, operation: Callable[..., Sequence[WgpuTensor]], *tensors: Tensor) -> Sequence[Tensor]:
        """The operation on the adapter; what it gives lies where the first tensor does."""
        results = operation(*(self.upload(tensor).packed() for tensor in tensors))
        if isinstance(tensors[0], WgpuTensor):
            return results
        return [result.fetch(tensors[0].device) for result in results]

    def _project(self, x: WgpuTensor, weight: WgpuTensor, *bias: WgpuTensor) -> Sequence[WgpuTensor]:
        product = self._product(x, weight, False, True)
        if not bias:
            return [product]
        columns = product.shape[-1]
        result = self._like(product)
        self._in_parts(
            _ADD_ROW,
            [(product, columns), (bias[0], 0), (result, columns)],
            product.shape[0],
            lambda first, rows: [rows * columns, columns],
            lambda rows: math.ceil(rows * columns / _THREADS),
        )
        return [result]

    def _project_backward(self, x: WgpuTensor, weight: WgpuTensor, gradient: WgpuTensor) -> list[WgpuTensor]:
        return [self._product(gradient, weight, False, False), self._product(gradient, x, True, False)]

    def _project_backward_with_bias(self, x: WgpuTensor, weight: WgpuTensor, gradient: WgpuTensor) -> list[WgpuTensor]:
        return [*self._project_backward(x, weight, gradient), self._column_sum(gradient, gradient.shape[-1])]

    def _product(self, a: WgpuTensor, b: WgpuTensor, transpose_a: bool, transpose_b: bool) -> WgpuTensor:
        (m, k), (k_of_b, n) = _operand(a, transpose_a), _operand(b, transpose_b)
        leading = a.shape[:-2]
        if k != k_of_b or leading != b.shape[:-2]:
            raise ValueError(f"no product of {tuple(a.shape)} and {tuple(b.shape)} as they are transposed")
        product = Product(m, n, k, math.prod(leading), transpose_a, transpose_b)
        tile = wgpu_gemm.choose_tile(product, self.device)
        kernel = wgpu_gemm.kernel(product, tile)
        parts = wgpu_gemm.splits(product, tile)
        if parts > 1:
            partial = WgpuTensor.empty(self.device, parts, m, n)
            windows = [whole(a), whole(b), whole(partial)]
            self.device.run(kernel, windows, wgpu_gemm.uniform(product, parts), product.tiles(tile), depth=parts)
            return _reshaped(self._column_sum(partial, m * n), *leading, m, n)
        result = WgpuTensor.empty(self.device, *leading, m, n)
        for first, count in self._cut(product.batches, m * k, k * n, m * n, at_most=self.device.groups_a_dimension):
            windows = [_window(x, first * size, count * size) for x, size in ((a, m * k), (b, k * n), (result, m * n))]
            self.device.run(kernel, windows, wgpu_gemm.uniform(product), product.tiles(tile), depth=count)
        return result

    def _rms_norm(self, x: WgpuTensor, weight: WgpuTensor, eps: float) -> WgpuTensor:
        result, columns = self._like(x), x.shape[-1]
        self._in_parts(
            _RMS_NORM,
            [(x, columns), (weight, 0), (result, columns)],
            x.numel() // columns,
            lambda first, rows: [rows, columns, eps],
            lambda rows: rows,
        )
        return result

    def _rms_norm_backward(
        self, x: WgpuTensor, weight: WgpuTensor, gradient: WgpuTensor, eps: float
    ) -> Sequence[WgpuTensor]:
        grad_x, grad_weight_by_row, columns = self._like(x), self._like(x), x.shape[-1]
        self._in_parts(
            _RMS_NORM_BACKWARD,
            [(x, columns), (weight, 0), (gradient, columns), (grad_x, columns), (grad_weight_by_row, columns)],
            x.numel() // columns,
            lambda first, rows: [rows, columns, eps],
            lambda rows: rows,
        )
        return grad_x, self._column_sum(grad_weight_by_row, columns)

    def _rotate(self, x: WgpuTensor, theta: float, direction: float) -> WgpuTensor:
        positions, head_dim = x.shape[-2:]
        half, result = head_dim // 2, self._like(x)
        self._in_parts(
            _ROPE,
            [(x, head_dim), (self._turns_of(positions, half, theta), 0), (result, head_dim)],
            x.numel() // head_dim,
            lambda first, rows: [rows * half, positions, half, first, direction],
            lambda rows: math.ceil(rows * half / _THREADS),
        )
        return result

    def _turns_of(self, positions: int, half: int, theta: float) -> WgpuTensor:
        """Cosine and sine [positions, half, 2] of angles in float64: at position 32,767 float32 is off by 0.002."""
        key = (positions, half, theta)
        if key not in self._turns:
            rates = theta ** -(torch.arange(half, dtype=torch.float64) / half)
            angles = torch.arange(positions, dtype=torch.float64).unsqueeze(-1) * rates
            self._turns[key] = self.upload(torch.stack([angles.cos(), angles.sin()], dim=-1).float())
        return self._turns[key]

    def _softmax(self, kernel: Kernel, scale: float, *operands: WgpuTensor) -> WgpuTensor:
        result, keys = self._like(operands[0]), operands[0].shape[-1]
        self._in_parts(
            kernel,
            [(tensor, keys) for tensor in (*operands, result)],
            result.numel() // keys,
            lambda first, rows: [rows, keys, first % keys, scale],
            lambda rows: rows,
        )
        return result

    def _elements(self, kernel: Kernel, results: int, *operands: WgpuTensor) -> list[WgpuTensor]:
        outputs = [self._like(operands[0]) for _ in range(results)]
        self._in_parts(
            kernel,
            [(tensor, 1) for tensor in (*operands, *outputs)],
            operands[0].numel(),
            lambda first, count: [count, 1],
            lambda count: math.ceil(count / _THREADS),
        )
        return outputs

    def _column_sum(self, x: WgpuTensor, columns: int) -> WgpuTensor:
        """The sum over rows of x, taken as rows of `columns` elements: [columns]."""
        sums: list[WgpuTensor] = []
        for first, rows in self._cut(x.numel() // columns, columns):
            sums.append(WgpuTensor.empty(self.device, columns))
            windows = [_window(x, first * columns, rows * columns), whole(sums[-1])]
            self.device.run(_COLUMN_SUM, windows, [rows, columns], math.ceil(columns / _SUMMED_COLUMNS))
        return reduce(lambda total, part: self._elements(_ADD, 1, total, part)[0], sums)

    def _in_parts(
        self,
        kernel: Kernel,
        tensors: Sequence[tuple[WgpuTensor, int]],
        units: int,
        values: Callable[[int, int], Sequence[float]],
        groups: Callable[[int], int],
    ) -> None:
        """Launch a kernel over units (elements, rows or matrices), as many at a time as the adapter binds.

        Args:
            tensors: each with its elements per unit; 0 if every part needs the whole tensor.
            values: the uniform struct for `count` units from `first` on.
            groups: the number of workgroups for a number of units.
        """
        for first, count in self._cut(units, *(elements for _, elements in tensors)):
            windows = [
                _window(tensor, first * elements, count * elements) if elements else whole(tensor)
                for tensor, elements in tensors
            ]
            self.device.run(kernel, windows, values(first, count), groups(count))

    def _cut(self, units: int, *elements: int, at_most: int = 2**32) -> list[tuple[int, int]]:
        """First unit and count of each part, for tensors with these float32 elements per unit.

        Raises:
            DeviceLimit: a single unit is too large.
        """
        most = min(at_most, self.device.binding_bytes // (4 * max(1, *elements)))
        if most < units:  # every part must begin at the adapter's alignment
            aligned = [self.device.alignment // math.gcd(self.device.alignment, 4 * size) for size in elements if size]
            step = math.lcm(*aligned)
            most = most // step * step
        if not most and units:
            raise DeviceLimit(
                f"{self.device.name} binds {self.device.binding_bytes} bytes at once, and a part that cannot be "
                f"divided has {4 * max(elements)}; use a shorter sequence or a smaller batch"
            )
        return [(first, min(most, units - first)) for first in range(0, units, most or 1)]

    def _like(self, tensor: WgpuTensor) -> WgpuTensor:
        return WgpuTensor.empty(self.device, *tensor.shape)


def _operand(tensor: Tensor, transposed: bool) -> tuple[int, int]:
    rows, columns = tensor.shape[-2:]
    return (columns, rows) if transposed else (rows, columns)


def _reshaped(tensor: WgpuTensor, *shape: int) -> WgpuTensor:
    return WgpuTensor(tensor.storage_on_device, torch.empty(shape, device="meta"))


def _window(tensor: WgpuTensor, first: int, count: int) -> Window:
    """`count` elements of a packed tensor from `first` on, rounded up to four; buffers have room for that."""
    return Window(tensor.storage_on_device, 4 * first, 16 * math.ceil(count / 4))
