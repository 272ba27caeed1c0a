"""The memory of the context, of cuBLAS and of single operators on this GPU, for the tables of harness/tools/probe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch.nn.attention import SDPBackend, sdpa_kernel


def measured() -> dict[str, Any]:
    """Return bytes by name. `hidden` is an operator's memory at its peak, less that of its results."""
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    torch.zeros(1, device="cuda")
    found["context"] = _outside()
    found.update(_workspaces())
    found["context with cuBLAS"] = _outside()
    for dtype in (torch.float32, torch.bfloat16):
        found.update({f"{name} {dtype}": size for name, size in _operators(dtype)})
    found.update(_attention())
    found["context at the end"] = _outside()
    return found


def _outside() -> int:
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def _kept(run: Callable[[], Any]) -> int:
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated() - before


def _workspaces() -> dict[str, int]:
    """Return the bytes that stay allocated after the first call of each kind, in this thread and in backward's."""
    left = torch.randn(256, 256, device="cuda", requires_grad=True)
    half = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16)
    bias = torch.randn(256, device="cuda")
    found = {
        "workspace: mm": _kept(lambda: left.detach() @ left.detach()),
        "workspace: then mm in bfloat16": _kept(lambda: half @ half),
        "workspace: then addmm": _kept(lambda: torch.addmm(bias, left.detach(), left.detach())),
        "workspace: then addmm in bfloat16": _kept(lambda: torch.addmm(bias.bfloat16(), half, half)),
        "workspace: then linear with bias": _kept(lambda: F.linear(half, half, bias.bfloat16())),
        "workspace: then bmm": _kept(lambda: torch.bmm(half[None], half[None])),
    }
    found["workspace: then backward (with a gradient of 256 KiB)"] = _kept(lambda: (left @ left).sum().backward())
    return found


def _hidden(run: Callable[[], Any]) -> int:
    run()  # the first call loads kernels and makes workspaces
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = run()
    torch.cuda.synchronize()
    peak, after = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
    del kept
    return peak - max(after, before)


def _operators(dtype: torch.dtype) -> list[tuple[str, int]]:
    x = torch.randn(4096, 4096, device="cuda", dtype=dtype)
    wide = torch.randn(1024, 151936, device="cuda", dtype=dtype)
    ids = torch.randint(0, 151936, (8, 512), device="cuda")
    small_ids = torch.randint(0, 151936, (4, 256), device="cuda")
    rows = torch.randn(4096, 896, device="cuda", dtype=dtype)
    few = torch.randn(1024, 896, device="cuda", dtype=dtype)
    labels = torch.randint(0, 151936, (1024,), device="cuda")
    aten = torch.ops.aten
    softmax = torch.log_softmax(wide, -1)
    runs: dict[str, Callable[[], Any]] = {
        "mm": lambda: x @ x,
        "mm of a transpose": lambda: x.T @ x,
        "addmm": lambda: torch.addmm(x[0], x, x),
        "linear with bias": lambda: F.linear(x, x, x[0]),
        "bmm": lambda: torch.bmm(x.view(16, 1024, 1024), x.view(16, 1024, 1024)),
        "sum": lambda: x.sum(),
        "sum of rows": lambda: x.sum(0),
        "mean": lambda: x.mean(-1),
        "log_softmax": lambda: torch.log_softmax(wide, -1),
        "log_softmax backward": lambda: aten._log_softmax_backward_data(wide, softmax, -1, dtype),
        "kl_div": lambda: F.kl_div(softmax, softmax, log_target=True, reduction="batchmean"),
        "cross_entropy": lambda: F.cross_entropy(wide, labels),
        "layer_norm": lambda: F.layer_norm(x, (4096,)),
        "rms_norm": lambda: F.rms_norm(x, (4096,)),
        "dropout": lambda: F.dropout(x, 0.1),
        "gelu": lambda: F.gelu(x),
        "embedding backward, 4096 ids": lambda: aten.embedding_dense_backward(rows, ids, 151936, -1, False),
        "embedding backward, 1024 ids": lambda: aten.embedding_dense_backward(few, small_ids, 151936, -1, False),
        "foreach_norm": lambda: torch._foreach_norm([x, x, x], 2),
        "cumsum": lambda: x.cumsum(0),
        "topk": lambda: wide.topk(8),
        "sort": lambda: x.sort(),
        "argmax": lambda: wide.argmax(-1),
        "index_put": lambda: x.clone().index_put_((labels % 4096,), x[:1024], accumulate=True),
        "scatter_add": lambda: x.clone().scatter_add_(0, (labels % 4096)[:, None].expand(1024, 4096), x[:1024]),
        "fused norm of the gradient": lambda: torch.nn.utils.get_total_norm([x, x]),
    }
    return [(f"hidden: {name}", _hidden(run)) for name, run in runs.items()]


def _attention() -> dict[str, Any]:
    """Return the backend that torch chooses, and each backend's memory beyond its results, forward and backward."""
    found: dict[str, Any] = {}
    for dtype in (torch.float32, torch.bfloat16):
        for heads, kv_heads, width in ((14, 14, 64), (14, 2, 64), (16, 16, 128)):
            shapes = ((8, heads, 512, width), (8, kv_heads, 512, width))
            query = torch.randn(shapes[0], device="cuda", dtype=dtype, requires_grad=True)
            key = torch.randn(shapes[1], device="cuda", dtype=dtype, requires_grad=True)
            gqa = heads != kv_heads
            name = f"{dtype} {heads}/{kv_heads} heads of {width}"
            choice = torch._fused_sdp_choice(query, key, key, None, 0.0, True, enable_gqa=gqa)
            found[f"attention chosen: {name}"] = SDPBackend(choice).name if choice >= 0 else "none"
            for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
                try:
                    found[f"attention {backend.name}: {name}"] = _attended(backend, query, key, gqa)
                except RuntimeError as error:
                    found[f"attention {backend.name}: {name}"] = str(error).splitlines()[0][:80]
    return found


def _attended(backend: SDPBackend, query: torch.Tensor, key: torch.Tensor, gqa: bool) -> dict[str, int]:
    with sdpa_kernel(backend):
        result = F.scaled_dot_product_attention(query, key, key, is_causal=True, enable_gqa=gqa)
        forward = _hidden(
            lambda: F.scaled_dot_product_attention(query.detach(), key.detach(), key.detach(), is_causal=True,
                                                   enable_gqa=gqa)
        )  # fmt: skip
        before = torch.cuda.memory_allocated()
        again = F.scaled_dot_product_attention(query, key, key, is_causal=True, enable_gqa=gqa)
        saved = torch.cuda.memory_allocated() - before
        gradient = torch.randn_like(result)
        backward = _hidden(lambda: torch.autograd.grad(again, (query, key), gradient, retain_graph=True))
    return {"forward": forward, "kept": saved, "backward": backward}
