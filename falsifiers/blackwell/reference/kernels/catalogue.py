"""The kernels of each operation, and all kernels of a block.

Both the backend, at a launch, and pre-warming get their kernels here, so that a key has one spelling.
"""

from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.shapes import PROJECTIONS, BlockShape

# A tile of 128 x 128 keeps the arithmetic busy; where the result is narrow, 64 x 64 gives four times the blocks.
_SMALL_TILE, _LARGE_TILE, _WIDE = 64, 128, 2048


def project(projection: str, size_in: int, size_out: int, *, bias: bool) -> KernelSpec:
    """`x [tokens, in] @ weight.T + bias`."""
    return _gemm(f"{projection}_forward", n=size_out, k=size_in, transpose_b=1, bias=int(bias))


def project_backward_x(projection: str, size_in: int, size_out: int) -> KernelSpec:
    """`gradient [tokens, out] @ weight [out, in]`."""
    return _gemm(f"{projection}_backward_x", n=size_in, k=size_out)


def project_backward_weight(projection: str, size_in: int, size_out: int) -> KernelSpec:
    """`gradient.T [out, tokens] @ x [tokens, in]`."""
    return _gemm(f"{projection}_backward_weight", m=size_out, n=size_in, transpose_a=1)


def matmul(*, transpose_a: bool, transpose_b: bool) -> KernelSpec:
    """The products of attention. Their sizes depend on the sequence and are arguments of the launch."""
    return _gemm("matmul", transpose_a=int(transpose_a), transpose_b=int(transpose_b))


def column_sum() -> KernelSpec:
    """The gradient of a bias."""
    return KernelSpec("column_sum", "column_sum")


def rms_norm(hidden: int, eps: float) -> KernelSpec:
    """The norm of tokens of `hidden` features."""
    return KernelSpec("rms_norm", "rms_norm", (("HIDDEN", hidden), ("EPS", float(eps))))


def rms_norm_backward(hidden: int, eps: float) -> KernelSpec:
    """The norm's gradient of x, and 1 / rms of every token."""
    return KernelSpec("rms_norm_backward", "rms_norm_backward", (("HIDDEN", hidden), ("EPS", float(eps))))


def rms_norm_weight(hidden: int) -> KernelSpec:
    """The norm's gradient of its weight."""
    return KernelSpec("rms_norm_weight", "rms_norm_weight", (("HIDDEN", hidden),))


def rope(head_dim: int, theta: float) -> KernelSpec:
    """The rotary embedding. The sequence is an argument of the launch, so that no length is compiled in."""
    return KernelSpec("rope", "rope", (("HEAD_DIM", head_dim), ("THETA", float(theta)), ("DIRECTION", 1)))


def rope_backward(head_dim: int, theta: float) -> KernelSpec:
    return KernelSpec("rope", "rope", (("HEAD_DIM", head_dim), ("THETA", float(theta)), ("DIRECTION", -1)))


def causal_softmax() -> KernelSpec:
    return KernelSpec("causal_softmax", "causal_softmax")


def causal_softmax_backward() -> KernelSpec:
    return KernelSpec("causal_softmax_backward", "causal_softmax_backward")


def silu_gate() -> KernelSpec:
    return KernelSpec("silu_gate", "silu_gate")


def silu_gate_backward() -> KernelSpec:
    """The gradients of gate and up."""
    return KernelSpec("silu_gate_backward", "silu_gate_backward")


def add() -> KernelSpec:
    return KernelSpec("add", "add")


def block_kernels(shape: BlockShape) -> tuple[KernelSpec, ...]:
    """Every kernel that forward and backward of such a block launch, for any batch and sequence."""
    biased = {name.removesuffix(".bias") for name in shape.parameters() if name.endswith(".bias")}
    projections = []
    for name in PROJECTIONS:
        sizes = shape.projection(name)
        projections += [
            project(name, *sizes, bias=name in biased),
            project_backward_x(name, *sizes),
            project_backward_weight(name, *sizes),
        ]
    return (
        *projections,
        column_sum(),
        matmul(transpose_a=False, transpose_b=True),
        matmul(transpose_a=False, transpose_b=False),
        matmul(transpose_a=True, transpose_b=False),
        rms_norm(shape.hidden, shape.eps),
        rms_norm_backward(shape.hidden, shape.eps),
        rms_norm_weight(shape.hidden),
        rope(shape.head_dim, shape.theta),
        rope_backward(shape.head_dim, shape.theta),
        causal_softmax(),
        causal_softmax_backward(),
        silu_gate(),
        silu_gate_backward(),
        add(),
    )


def _gemm(
    name: str, *, m: int = 0, n: int = 0, k: int = 0, transpose_a: int = 0, transpose_b: int = 0, bias: int = 0
) -> KernelSpec:
    constants = (
        ("SIZE_M", m),
        ("SIZE_N", n),
        ("SIZE_K", k),
        ("TRANSPOSE_A", transpose_a),
        ("TRANSPOSE_B", transpose_b),
        ("BIAS", bias),
        ("TILE", _LARGE_TILE if n >= _WIDE else _SMALL_TILE),
    )
    return KernelSpec(name, "gemm", constants)
