"""Where memory is and how long it lives: the host, checkpoints, streams, graphs, shards, micro-batches."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

from benchmarks.various_steps.training import Step, block, made, training


def _alone() -> None:
    """Make this process the only rank of a process group."""
    if not torch.distributed.is_initialized():
        store = f"file://{os.path.join(tempfile.mkdtemp(), 'store')}"
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl", init_method=store, rank=0, world_size=1)


def _blocks(layers: int = 8, width: int = 1024) -> nn.Sequential:
    return nn.Sequential(*(block(width) for _ in range(layers)))


def sharded_on_host() -> Step:
    """FSDP2 in one process, with parameters and optimizer on the host."""
    _alone()
    model = _blocks(8, 2048)
    for layer in (*model, model):
        fully_shard(layer, offload_policy=CPUOffloadPolicy())
    x = made(4096, 2048)
    return training(model, lambda: model(x).square().mean())


def sharded_alone() -> Step:
    """FSDP2 in one process, with weights in bfloat16 for the products and gradients clipped."""
    _alone()
    model = _blocks(8, 2048).cuda()
    for layer in (*model, model):
        fully_shard(layer, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    optimizer = torch.optim.AdamW(model.parameters())
    x = made(8192, 2048)

    def step() -> None:
        optimizer.zero_grad()
        model(x).float().square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def packed_on_host() -> Step:
    """Tensors for backward that hooks copy to pinned memory of the host if they are large."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(8))).cuda()
    x = made(8192, 4096)

    def pack(tensor: Tensor) -> Any:
        if tensor.numel() < 1 << 20 or not tensor.is_cuda:
            return tensor
        kept = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        kept.copy_(tensor, non_blocking=True)
        return (kept,)

    def unpack(packed: Any) -> Tensor:
        found: Tensor = packed[0].to("cuda", non_blocking=True) if isinstance(packed, tuple) else packed
        return found

    def loss() -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return model(x).square().mean()

    return training(model, loss)


def saved_in_half() -> Step:
    """Tensors for backward that hooks keep in bfloat16 on the GPU."""
    model = _blocks().cuda()
    x = made(16384, 1024)

    def pack(tensor: Tensor) -> Any:
        return (tensor.bfloat16(),) if tensor.dtype is torch.float32 and tensor.numel() > 1 << 22 else tensor

    def loss() -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(
            pack, lambda packed: packed[0].float() if isinstance(packed, tuple) else packed
        ):
            return model(x).square().mean()

    return training(model, loss)


def saved_on_pageable_host() -> Step:
    """The tensors for backward are kept in ordinary memory of the host."""
    model = _blocks(6).cuda()
    x = made(8192, 1024)

    def loss() -> Tensor:
        with torch.autograd.graph.save_on_cpu():
            return model(x).square().mean()

    return training(model, loss)


def checkpointed_with_dropout() -> Step:
    """Checkpoints without reentrance of layers with dropout."""
    model = nn.ModuleList(block(1024, 0.1) for _ in range(8)).cuda()
    x = made(16384, 1024)

    def loss() -> Tensor:
        hidden = x
        for layer in model:
            hidden = checkpoint(layer, hidden, use_reentrant=False)
        return hidden.square().mean()

    return training(model, loss)


def checkpointed_in_segments() -> Step:
    """A chain that is checkpointed in three segments."""
    model = _blocks(9).cuda()
    x = made(16384, 1024, grad=True)
    return training(model, lambda: checkpoint_sequential(model, 3, x, use_reentrant=False).square().mean())


def selectively_checkpointed() -> Step:
    """Checkpoints that keep the results of products and compute the rest again."""
    model = nn.ModuleList(block(1024) for _ in range(8)).cuda()
    x = made(16384, 1024)

    def policy(_context: Any, operator: Any, *_arguments: Any, **_keywords: Any) -> CheckpointPolicy:
        is_product = operator in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE

    def loss() -> Tensor:
        hidden = x
        for layer in model:
            made_contexts = partial(create_selective_checkpoint_contexts, policy)
            hidden = checkpoint(layer, hidden, use_reentrant=False, context_fn=made_contexts)
        return hidden.square().mean()

    return training(model, loss)


def accumulated_sizes() -> Step:
    """Micro-batches of five sizes, whose gradients are added."""
    model = _blocks().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batches = [made(size, 1024) for size in (3000, 7000, 1111, 8192, 5003)]

    def step() -> None:
        optimizer.zero_grad()
        for batch in batches:
            (model(batch).square().mean() / len(batches)).backward()
        optimizer.step()

    return step


def growing_batches() -> Step:
    """Each step has a longer batch than the one before."""
    model = _blocks().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    sizes = iter((5000, 11000, 17000))

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        model(made(next(sizes), 1024)).square().mean().backward()
        optimizer.step()

    return step


def accumulated_half() -> Step:
    """Micro-batches under autocast, with the loss of a vocabulary, tied weights and clipping."""
    table = nn.Embedding(32000, 1024).cuda()
    model = _blocks(4).cuda()
    optimizer = torch.optim.AdamW([*table.parameters(), *model.parameters()])
    ids = torch.randint(32000, (4, 8, 512), device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        for identifier in ids:
            with torch.autocast("cuda", torch.bfloat16):
                found = F.linear(model(table(identifier)), table.weight)
                loss = F.cross_entropy(found.flatten(0, 1).float(), identifier.flatten()) / len(ids)
            loss.backward()
        nn.utils.clip_grad_norm_([*table.parameters(), *model.parameters()], 1.0)
        optimizer.step()

    return step


def copied_on_a_stream() -> Step:
    """Batches that another stream copies from pinned memory of the host."""
    model = _blocks(4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batches = [torch.randn(8192, 1024).pin_memory() for _ in range(3)]
    aside = torch.cuda.Stream()

    def step() -> None:
        for batch in batches:
            with torch.cuda.stream(aside):
                there = batch.cuda(non_blocking=True)
            torch.cuda.current_stream().wait_stream(aside)
            optimizer.zero_grad()
            model(there).square().mean().backward()
            optimizer.step()

    return step


def layers_from_host() -> Step:
    """Frozen layers that are copied to the GPU one at a time, under a trained head."""
    layers = [block(2048).requires_grad_(False) for _ in range(6)]
    head = nn.Linear(2048, 2048).cuda()
    x = made(8192, 2048)

    def loss() -> Tensor:
        hidden = x
        with torch.no_grad():
            for layer in layers:
                layer.to("cuda")
                hidden = hidden + layer(hidden)
                layer.to("cpu")
        found: Tensor = head(hidden).square().mean()
        return found

    return training(head, loss)


def captured() -> Step:
    """A forward pass that a CUDA graph captures."""
    model = _blocks(2).cuda()
    x = made(1024, 1024)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        model(x)
        with torch.cuda.graph(graph):
            model(x)
    return graph.replay


def graphed_callables() -> Step:
    """A module whose passes are captured by make_graphed_callables."""
    model: Any = torch.cuda.make_graphed_callables(_blocks(2).cuda(), (made(1024, 1024),))
    x = made(1024, 1024)
    return training(model, lambda: model(x).square().mean())


def compiled() -> Step:
    """A compiled network."""
    run: Callable[[Tensor], Tensor] = torch.compile(_blocks(2).cuda())
    x = made(1024, 1024)
    return lambda: run(x).sum().backward()  # type: ignore[no-untyped-call]


def cache_emptied() -> Step:
    """A step that empties the cache between forward and backward, and deletes what it does not need."""
    model = _blocks().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = made(16384, 1024)

    def step() -> None:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        torch.cuda.empty_cache()
        loss.backward()
        del loss
        torch.cuda.empty_cache()
        optimizer.step()

    return step
