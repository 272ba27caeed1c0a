"""The temporary memory of kernels within an operator, which fake tensors do not show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from harness.tools.probe.device_table import Device

__all__ = ["BIASED", "BLAS", "hidden_temporaries", "is_unmeasured"]

_aten = torch.ops.aten

# The operators that call cuBLAS.
BLAS = frozenset(
    {_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.mv, _aten.addmv, _aten.dot, _aten._addmm_activation}
)


# Those of them that call cuBLASLt, which has a workspace of its own.
BIASED = frozenset({_aten.addmm, _aten._addmm_activation})
_SUMMED = (torch.float32, torch.bfloat16, torch.float16)
_UNMEASURED = (
    "aten::convolution", "aten::_cudnn", "aten::cudnn", "aten::_scaled_mm", "aten::linalg_", "aten::_linalg_",
    "aten::_fft", "c10d::", "_c10d_functional::",
)  # fmt: skip
_NEEDS_NO_MEMORY = ("aten::linalg_vector_norm", "c10d::barrier", "_c10d_functional::wait_tensor")


def is_unmeasured(name: str) -> bool:
    """Whether an operator uses memory that has not been measured, such as memory of cuDNN or NCCL."""
    return name.startswith(_UNMEASURED) and not name.startswith(_NEEDS_NO_MEMORY)


def hidden_temporaries(packet: Any, arguments: tuple[Any, ...], result: Any, device: Device) -> tuple[int, ...]:
    """Return the sizes in bytes of the temporaries that the CUDA kernel of an operator allocates and frees."""
    if packet in _PARTIAL_BYTES:
        return _reduction(packet, arguments, result, device.multiprocessors)
    if packet in BLAS:
        return _matrices(arguments)
    sizes = _TEMPORARIES.get(packet)
    return sizes(arguments, result) if sizes is not None else ()


_FEW = 3072
"""The number of indices up to which another kernel sums the gradients of an embedding."""
_MAX_OF_BAG = 2
_SMALL_SORT = 4096
"""The length of rows up to which another kernel sorts, in place."""
_SHORTEST_FOR_BLOCKS = ((20, 20000), (40, 10000), (80, 8000), (200, 5000), (800, 3000), (4000, 800), (1 << 62, 400))
"""The numbers of rows, and the length from which several thread blocks find the largest of one (`TensorTopK.cu`)."""
_PARTIAL_BYTES = {
    _aten.sum: 4, _aten.mean: 4, _aten.amax: 4, _aten.amin: 4, _aten.linalg_vector_norm: 4, _aten.max: 16,
    _aten.min: 16, _aten.any: 1, _aten.all: 1,
}  # fmt: skip
"""The reductions, and the bytes of a partial result for numbers of up to 32 bits."""


def _reduction(packet: Any, arguments: tuple[Any, ...], result: Any, multiprocessors: int) -> tuple[int, ...]:
    """A copy in the type of the result, and what thread blocks share (`ReduceOps.cpp`, `Reduce.cuh`)."""
    reduced = arguments[0]
    results = result if isinstance(result, tuple) else (result,)
    if len(arguments) > 1 and isinstance(arguments[1], torch.Tensor):
        return ()  # the larger of two tensors
    is_half = reduced.dtype in (torch.float16, torch.bfloat16) and results[0].dtype == torch.float32
    is_cast = packet in (_aten.sum, _aten.mean) and results[0].dtype != reduced.dtype and not is_half
    copy = (reduced.numel() * results[0].element_size(),) if is_cast else ()
    return (*copy, *_shared(reduced, results[0], _PARTIAL_BYTES[packet], multiprocessors))


def _shared(reduced: torch.Tensor, result: torch.Tensor, size: int, multiprocessors: int) -> tuple[int, ...]:
    """The partial results of thread blocks that share an output (`setReduceConfig` in Reduce.cuh)."""
    outputs = result.numel()
    if not outputs or not reduced.is_contiguous() or not (reduced.dtype in _SUMMED or reduced.dtype is torch.bool):
        return ()
    inputs = reduced.numel() // outputs
    is_along_rows = outputs > 1 and (result.dim() == 0 or result.size(-1) == reduced.size(-1)) and reduced.dim() > 1
    return _of_blocks(outputs, inputs, reduced.size(-1) if is_along_rows else 0, size, multiprocessors)


def _of_blocks(outputs: int, inputs: int, row: int, size: int, multiprocessors: int) -> tuple[int, ...]:
    """Partial results of `size` bytes. `row` is the length of the rows that are reduced together, 0 for each alone."""
    vector = 1
    if row:
        vector = next(each for each in (4, 2, 1) if row % each == 0)
        width, height = outputs // vector, inputs
    else:
        width, height = (inputs // 4 if inputs >= 128 else inputs), outputs
    most = 512 // vector
    width, height = (min(most, 1 << max(each.bit_length() - 1, 0)) for each in (width, height))
    columns = min(width, 32)
    rows = min(height, most // columns)
    columns = min(width, most // rows)
    step_input, step_output = (1, columns) if row else (columns, 1)
    if -(-inputs // step_input) < min(rows * 16, 256):
        return ()
    values = -(-inputs // (step_input * rows))
    grid = -(-(outputs // vector) // step_output)
    blocks = multiprocessors * (2048 // (columns * rows))
    if values < 256 or grid > blocks:
        return ()
    sharing = max(min(-(-blocks // grid), -(-values // 16)), -(-values // 256))
    if sharing == 1:
        return ()
    return size * outputs * sharing * (columns * vector if row else 1), 4 * grid


def _copies(tensors: Iterable[torch.Tensor]) -> tuple[int, ...]:
    """A copy of each tensor that is not contiguous."""
    return tuple(each.numel() * each.element_size() for each in tensors if not each.is_contiguous())


def _matrices(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """A copy of each matrix in which neither rows nor columns lie together (`prepare_matrix_for_cublas`)."""
    matrices = []
    for each in arguments:
        if isinstance(each, torch.Tensor) and each.dim() >= 2 and each.numel():
            (rows, columns), (down, right) = each.shape[-2:], each.stride()[-2:]
            if not (right == 1 and down >= max(1, columns)) and not (down == 1 and right >= max(1, rows)):
                matrices.append(each.numel() * each.element_size())
    return tuple(matrices)


def _flash_backward(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """Accumulated gradient of the queries in float32, and one number a row (`mha_bwd` in flash_api.cpp)."""
    query = arguments[1]
    batch, heads, length, width = query.shape
    rows = batch * heads * (-(-length // 128) * 128)
    rounded = -(-width // 32) * 32
    return rows * rounded * 4, rows * 4


def _efficient_backward(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """A number a row, in float32: the `delta` of attention_backward.cu, a sum of products. Of float32, these too.

    A gradient whose heads do not lie within its rows is copied first.
    """
    gradient, query = arguments[:2]
    batch, heads, length, width = gradient.shape
    rows = batch * heads * length * 4
    inner = [gradient.stride(each) for each in (0, 2, 1, 3)]
    is_in_rows = inner == [length * heads * width, heads * width, width, 1]
    copy = () if is_in_rows else (gradient.numel() * gradient.element_size(),)
    return (*copy, query.numel() * 4, rows, rows) if query.dtype == torch.float32 else (*copy, rows)


def _cudnn_backward(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """One number a row and the gradient of the query in float32; with grouped heads, those of key and value a head."""
    query, key = arguments[1:3]
    batch, heads, length, width = query.shape
    rows = batch * heads * length
    return (rows * 4 + (1 + (key.size(1) != heads)) * rows * width * 4 + 256,)


def _softmax_backward(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """The product of gradient and result (`softmax_backward_cuda_out` in SoftMax.cu)."""
    gradient, output = arguments[:2]
    return (gradient.numel() * max(gradient.element_size(), output.element_size()),)


def _loss(arguments: tuple[Any, ...], result: Any) -> tuple[int, ...]:
    """The losses of the elements, if they are reduced (`Loss.cpp`)."""
    size = max(arguments[0].numel(), arguments[1].numel()) * result.element_size()
    return () if result.dim() else (size,)


def _embedding_backward(arguments: tuple[Any, ...], result: Any) -> tuple[int, ...]:
    """Sorted indices and their origins, and partial sums of rows in float32 (`EmbeddingBackwardKernel.cu`)."""
    indices = arguments[1]
    count = indices.numel()
    if count <= _FEW:
        return ()
    size = count * indices.element_size()
    return (*[size] * 6, *_partial_rows(count, result))


def _partial_rows(count: int, result: torch.Tensor) -> tuple[int, int]:
    """The places and the sums of segments of at most ten rows."""
    partial = min(count, result.size(0)) + count // 10
    return partial * 8, partial * (-(-result.size(1) // 32) * 32) * 4


def _bag_backward(arguments: tuple[Any, ...], result: Any) -> tuple[int, ...]:
    """Sorted indices with their origins and bags, and partial sums of rows in float32 (`EmbeddingBag.cu`)."""
    indices, mode = arguments[1], arguments[8]
    count = indices.numel()
    if mode == _MAX_OF_BAG or count <= _FEW or result.is_sparse:
        return ()
    return (*[count * indices.element_size()] * 5, *_partial_rows(count, result))


def _added_by_index(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """Places as numbers, sorted, with their origins, and cub's second buffers (`index_put_with_sort_kernel`)."""
    indices, accumulate = arguments[1], len(arguments) > 3 and arguments[3]
    given = [each for each in indices if each is not None]
    if not accumulate or not given:
        return ()
    count = 1
    for length in torch.broadcast_shapes(*(each.shape for each in given)):  # type: ignore[no-untyped-call]
        count *= length
    size = count * 8
    return (*[size] * 4, 2 * size + count * 2 // 9 + 6000)


def _sort(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """Positions as int64, and cub's second buffer of keys and positions, if rows are long (`Sort.cpp`)."""
    keys = arguments[0]
    dim = next((each for each in arguments[1:] if isinstance(each, int) and not isinstance(each, bool)), -1)
    length = keys.size(dim) if keys.dim() else 1
    if length <= _SMALL_SORT:
        return ()
    count = keys.numel()
    more = count * keys.element_size() // (36 if keys.element_size() > 4 else 21) if length == count else 0
    return count * 8, count * (keys.element_size() + 8) + more + 255


def _topk(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """Two tables of 256 counters for each row, if several thread blocks work on one (`TensorTopK.cu`)."""
    values = arguments[0]
    length = values.size(arguments[2] if len(arguments) > 2 else -1) if values.dim() else 1
    rows = values.numel() // max(length, 1)
    shortest = next(least for most, least in _SHORTEST_FOR_BLOCKS if rows <= most)
    return (rows * 1024, rows * 1024) if length >= shortest else ()


def _scatter_reduce(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """For a mean: ones like the source, their sums, and where these are zero (`scatter_reduce_two`)."""
    own, source, kind = arguments[0], arguments[3], arguments[4]
    if kind != "mean":
        return ()
    return own.numel() * own.element_size(), source.numel() * source.element_size(), own.numel()


def _normalization_backward(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """Copies of gradient and input where they are not contiguous (`layer_norm_kernel.cu`)."""
    return _copies(arguments[:2])


def _first_copied(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    return _copies(arguments[:1])


def _scan(arguments: tuple[Any, ...], result: Any) -> tuple[int, ...]:
    """A copy in the type of the result (`ReduceOps.cpp`)."""
    return (result.numel() * result.element_size(),) if arguments[0].dtype != result.dtype else ()


def _distances_backward(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """The gradient of each pair (`_cdist_backward_kernel`)."""
    gradient, first = arguments[:2]
    return (gradient.numel() * first.size(-1) * gradient.element_size(),)


def _pairs_backward(arguments: tuple[Any, ...], result: Any) -> tuple[int, ...]:
    """The gradient of each row for each other one (`pdist_backward_kernel_impl`)."""
    return (max(result.size(0) - 1, 0) * result.numel() * result.element_size(),)


def _drawn(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """A drawn number for each probability (`multinomial` in Distributions.cpp)."""
    return (arguments[0].numel() * arguments[0].element_size(),)


def _whole(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """A copy of the first argument, which the kernel overwrites."""
    return (arguments[0].numel() * arguments[0].element_size(),)


_TEMPORARIES: dict[Any, Callable[[tuple[Any, ...], Any], tuple[int, ...]]] = {
    _aten._scaled_dot_product_flash_attention_backward: _flash_backward,
    _aten._scaled_dot_product_efficient_attention_backward: _efficient_backward,
    _aten._scaled_dot_product_cudnn_attention_backward: _cudnn_backward,
    _aten._softmax_backward_data: _softmax_backward,
    _aten.mse_loss: _loss,
    _aten.smooth_l1_loss: _loss,
    _aten.embedding_dense_backward: _embedding_backward,
    _aten._embedding_bag_backward: _bag_backward,
    _aten._index_put_impl_: _added_by_index,
    _aten.sort: _sort,
    _aten.topk: _topk,
    _aten.scatter_reduce: _scatter_reduce,
    _aten.scatter_reduce_: _scatter_reduce,
    _aten.native_layer_norm: _first_copied,
    _aten.native_layer_norm_backward: _normalization_backward,
    _aten._fused_rms_norm: _first_copied,
    _aten._fused_rms_norm_backward: _normalization_backward,
    _aten.col2im: _first_copied,
    _aten.im2col: _whole,
    _aten.cumsum: _scan,
    _aten.cumprod: _scan,
    _aten._cdist_backward: _distances_backward,
    _aten._pdist_backward: _pairs_backward,
    _aten.multinomial: _drawn,
    _aten._fft_c2r: _whole,
}
