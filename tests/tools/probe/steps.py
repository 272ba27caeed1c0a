"""Training steps that the tests probe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint


def mlp(
    batch: int = 64, width: int = 1024, *, foreach: bool | None = None, fused: bool | None = None, device: str = "cuda"
) -> Callable[[], None]:
    """Two linear layers without biases, a GELU between them, and AdamW."""
    model = torch.nn.Sequential(
        torch.nn.Linear(width, 4 * width, bias=False, device=device),
        torch.nn.GELU(),
        torch.nn.Linear(4 * width, width, bias=False, device=device),
    )
    optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach, fused=fused)
    inputs = torch.randn(batch, width, device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def reads_a_value() -> Callable[[], bool]:
    """A step that depends on a number on the device."""
    weight = torch.randn(8, device="cuda", requires_grad=True)
    return lambda: weight.sum().item() > 0


def logs_a_value() -> Callable[[], str]:
    """A step that looks for numbers that are not finite, and prints an average."""
    weight = torch.randn(8, device="cuda", requires_grad=True)

    def step() -> str:
        loss = weight.sum()
        if torch.isnan(loss) or torch.isinf(loss):
            raise ValueError(loss)
        return f"{sum([loss.item(), 1.0]) / 2:.3f}"

    return step


def scales_gradients(fused: bool) -> Callable[[], None]:
    """A step in float16 with a GradScaler."""
    layer = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.AdamW(layer.parameters(), fused=fused)
    scaler = torch.amp.GradScaler("cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.float16):
            loss = layer(torch.randn(8, 64, device="cuda")).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def sharded(width: int = 1024) -> Callable[[], None]:
    """The same layers, each sharded over all ranks."""
    return sharded_with_optimizer(width, "cuda")[0]


def sharded_with_optimizer(width: int, device: str) -> tuple[Callable[[], None], torch.optim.Optimizer]:
    """The step, and the optimizer that holds the parameters and their state."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard  # seconds

    model = torch.nn.Sequential(
        torch.nn.Linear(width, 4 * width, bias=False), torch.nn.GELU(), torch.nn.Linear(4 * width, width, bias=False)
    ).to(device)
    mesh = init_device_mesh(device, (torch.distributed.get_world_size(),))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = torch.randn(64, width, device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step, optimizer


def replicated(*, views: bool = False, hook: Callable[..., object] | None = None) -> Callable[[], None]:
    """Layers of 8 and 64 MiB in DistributedDataParallel."""
    layers = torch.nn.Sequential(
        torch.nn.Linear(1024, 2048, bias=False), torch.nn.Linear(2048, 8192, bias=False)
    ).cuda()
    model = torch.nn.parallel.DistributedDataParallel(layers, gradient_as_bucket_view=views)
    if hook is not None:
        model.register_comm_hook(None, hook)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(model.parameters())
    inputs = torch.randn(8, 1024, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()

    return step


def loads_data(tied: bool = True) -> Callable[[], None]:
    """Shuffled batches from a DataLoader, a decision on a value on the host, tied weights, and a schedule."""
    embedding, head = torch.nn.Embedding(1000, 64).cuda(), torch.nn.Linear(64, 1000, bias=False).cuda()
    if tied:
        head.weight = embedding.weight
    optimizer = torch.optim.AdamW([*{*embedding.parameters(), *head.parameters()}])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    rows = [{"ids": torch.arange(3), "number": number} for number in range(16)]
    batches = iter(torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True, pin_memory=True))

    def step() -> None:
        batch = next(batches)
        assert batch["number"].max().item() < 16
        head(embedding(batch["ids"].cuda(non_blocking=True))).logsumexp(-1).mean().backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()

    return step


def attention(
    *, autocast: bool = False, recomputed: bool = False, masked: bool = False, scattered: bool = False
) -> Callable[[], None]:
    """Attention in float32, or under autocast."""
    query = torch.randn(2, 8, 128, 64, device="cuda", requires_grad=True)
    mask = torch.ones(128, 128, dtype=torch.bool, device="cuda") if masked or scattered else None
    mask = mask.T if mask is not None and scattered else mask

    def attend(query: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(query * 1, query, query, mask)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            found = checkpoint(attend, query, use_reentrant=False) if recomputed else attend(query)
        found.sum().backward()

    return step


def branches(kind: str) -> Callable[[], None]:
    """A tensor with two gradients, which are two tensors or the same one."""
    weight = torch.randn(64, 64, device="cuda", requires_grad=True)

    def step() -> None:
        weight.grad = None
        middle = weight.sin()
        (middle.cos() + middle.exp() if kind == "exclusive" else middle + middle).sum().backward()

    return step


def masks(padded: int, *, spoiled: bool = False) -> Callable[[], None]:
    """Rows of 4 KiB, and a mask that the host makes. Rows without a mark are left out."""
    rows = torch.randn(8, 1024, device="cuda")
    mask = (torch.arange(8) < 8 - padded).long().cuda()
    if spoiled:
        mask.copy_(torch.randint(2, (8,), device="cuda"))

    def step() -> None:
        if not (mask == 1).all():
            rows[mask.nonzero().flatten()].sum()
        else:
            rows.sin()

    return step


def launches_a_kernel() -> Callable[[], None]:
    """A Triton kernel that is not an operator of torch."""
    import triton

    @triton.jit
    def double(x):  # type: ignore[no-untyped-def]
        pass

    weight = torch.randn(8, device="cuda")
    return lambda: double[(1,)](weight)


def compiles() -> Callable[[], None]:
    """A compiled module."""
    layer = torch.compile(torch.nn.Linear(8, 8).cuda())
    return lambda: layer(torch.randn(8, 8, device="cuda")).sum().backward()


def _layer(kind: str) -> Callable[[torch.Tensor], torch.Tensor]:
    match kind:
        case "recurrent":
            layer = torch.nn.LSTM(8, 8).cuda()
            return lambda x: layer(x)[0]
        case "cell":
            return torch.nn.GRUCell(8, 8).cuda()
        case "sparse":
            table = torch.nn.Embedding(8, 8, sparse=True).cuda()
            return lambda x: table(x.long())
        case "second GPU":
            return lambda x: x.requires_grad_().to("cuda:1") * 2
        case "captured":
            graph = torch.cuda.CUDAGraph()
            return lambda x: (graph, x)[1]
        case "numpy":
            return lambda x: x * float(x.cpu().numpy().sum())
        case _:
            return lambda x: torch.nested.nested_tensor([x[0], x[1, :3]], layout=torch.jagged)


def unseen(kind: str) -> Callable[[], None]:
    """A layer whose memory fake tensors do not show."""
    layer, inputs = _layer(kind), torch.randn(4, 8, device="cuda")
    return lambda: layer(inputs).sum().backward()


def trains_by_samples() -> Callable[[], None]:
    """Gradients of each sample, checks of finiteness, and a report of memory."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    inputs = torch.randn(16, 64, device="cuda")

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, weights, (x[None],)).square().mean()

    def step() -> None:
        gradients = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, inputs)
        for name, weight in weights.items():
            if not torch.isfinite(gradients[name]).all() or gradients[name].isnan().any():
                raise ValueError(name)
            weight.sub_(gradients[name].mean(0))
        assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] >= torch.cuda.memory_allocated(device=0)
        torch.cuda.memory_summary()

    return step


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        return values * 2.0

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2.0


def dropped_gradients(times: int) -> Callable[[], None]:
    """Compute gradients, and drop each at once."""
    values = torch.randn(1000, 1000, device="cuda", requires_grad=True)

    def step() -> None:
        for _ in range(times):
            torch.autograd.grad(_Doubled.apply(values).sum(), values)  # type: ignore[no-untyped-call]

    return step


def convolves() -> Callable[[], None]:
    """A convolution, for which cuDNN chooses a workspace."""
    layer = torch.nn.Conv2d(3, 8, 3).cuda()
    return lambda: layer(torch.randn(2, 3, 16, 16, device="cuda")).sum().backward()


def raises() -> Callable[[], None]:
    """A step with a defect."""
    left, right = torch.randn(2, 3, device="cuda"), torch.randn(2, 3, device="cuda")
    return lambda: left @ right


def sorts() -> Callable[[], torch.Tensor]:
    """The order of a million numbers."""
    keys = torch.rand(100, 10000, device="cuda")

    def step() -> torch.Tensor:
        return keys.argsort(dim=1)

    return step
