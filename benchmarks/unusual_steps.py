"""Training steps that differ from the usual ones, for benchmarks/probe.py. Each is built as those of probe_steps.py."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint

Step = Callable[[], None]


def convolutions(batch: int = 64) -> Step:
    """A network of convolutions by cuDNN, in channels_last and float16, with a GradScaler and clipping."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 128, 256, 512):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        channels = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)).cuda()
    model = model.to(memory_format=torch.channels_last)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), torch.amp.GradScaler("cuda")
    images = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch,), device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


class _Adapted(nn.Module):
    """A frozen matrix in half precision, and a product of two thin ones beside it in float32."""

    def __init__(self, width: int, rank: int = 16) -> None:
        super().__init__()
        self.base = nn.Linear(width, width, bias=False, dtype=torch.bfloat16).requires_grad_(False)
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x) + self.up(self.down(x.float())).to(x.dtype)
        return found


def adapters(batch: int = 16, width: int = 4096) -> Step:
    """Low-rank adapters of frozen layers in bfloat16."""
    model = nn.Sequential(*(_Adapted(width) for _ in range(16))).cuda()
    optimizer = torch.optim.AdamW(parameter for parameter in model.parameters() if parameter.requires_grad)
    inputs = torch.randn(batch, 512, width, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad()
        F.gelu(model(inputs)).float().square().mean().backward()
        optimizer.step()

    return step


def experts(batch: int = 64, width: int = 2048) -> Step:
    """Experts that choose their tokens, gathered by index and added again by index_add."""
    layers = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(8)).cuda()
    router = nn.Linear(width, 8).cuda()
    optimizer = torch.optim.AdamW([*layers.parameters(), *router.parameters()])
    inputs = torch.randn(batch * 128, width, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        shares = router(inputs).softmax(-1)
        found = torch.zeros_like(inputs)
        for place, layer in enumerate(layers):
            weights, chosen = shares[:, place].topk(len(inputs) // 4)
            found = found.index_add(0, chosen, layer(inputs[chosen]) * weights[:, None])
        found.square().mean().backward()
        optimizer.step()

    return step


def biased_attention(batch: int = 8, length: int = 1024, *, learned: bool = False) -> Step:
    """Attention with dropout and a bias by distance that is added to the scores, or with a learned one."""
    project = nn.Linear(1024, 3072).cuda()
    places = torch.arange(length, device="cuda")
    bias = -0.1 * torch.arange(16, device="cuda")[:, None, None] * (places[:, None] - places).abs()
    bias = nn.Parameter(bias) if learned else bias
    optimizer = torch.optim.AdamW([*project.parameters(), bias] if learned else project.parameters())
    inputs = torch.randn(batch, length, 1024, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        query, key, value = (each.unflatten(-1, (16, 64)).transpose(1, 2) for each in project(inputs).chunk(3, -1))
        mask = bias.expand(batch, -1, -1, -1)
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=0.1)
        found.square().mean().backward()
        optimizer.step()

    return step


def updates_in_backward(batch: int = 4096, width: int = 4096) -> Step:
    """Each parameter is updated as soon as its gradient is computed, so that no two gradients exist together."""
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(16))).cuda()
    for parameter in model.parameters():
        optimizer = torch.optim.AdamW([parameter])

        def update(_: Tensor, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(update)
    inputs = torch.randn(batch, width, device="cuda")
    return lambda: model(inputs).square().mean().backward()


def saved_on_host(batch: int = 4096, width: int = 4096) -> Step:
    """The tensors for backward are kept in pinned memory of the host."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(12))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = torch.randn(batch, width, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()

    return step


def reentrant(batch: int = 4096, width: int = 4096) -> Step:
    """Reentrant checkpoints of layers with dropout, an average of the weights, and RAdam."""
    layers = nn.ModuleList(
        nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))
        for _ in range(4)
    ).cuda()
    average = AveragedModel(layers, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.RAdam(layers.parameters())
    inputs = torch.randn(batch, width, device="cuda", requires_grad=True)

    def step() -> None:
        optimizer.zero_grad()
        hidden = inputs
        for layer in layers:
            hidden = checkpoint(layer, hidden, use_reentrant=True)
        hidden.square().mean().backward()
        optimizer.step()
        average.update_parameters(layers)

    return step


def adversaries(batch: int = 4096, width: int = 4096) -> Step:
    """Two networks with their own optimizers, and a penalty on a gradient, which is differentiated again."""
    made = nn.Sequential(nn.Linear(128, width), nn.LeakyReLU(0.2), nn.Linear(width, width)).cuda()
    judged = nn.Sequential(nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)).cuda()
    optimizers = [torch.optim.Adam(each.parameters(), betas=(0.5, 0.9)) for each in (made, judged)]
    real = torch.rand(batch, width, device="cuda")

    def step() -> None:
        found = made(torch.randn(batch, 128, device="cuda"))
        optimizers[1].zero_grad()
        between = torch.lerp(real, found.detach(), torch.rand(batch, 1, device="cuda")).requires_grad_()
        (slope,) = torch.autograd.grad(judged(between).sum(), between, create_graph=True)
        penalty = slope.norm(2, 1).sub(1).square().mean()
        (judged(found.detach()).mean() - judged(real).mean() + 10 * penalty).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        (-judged(found).mean()).backward()
        optimizers[0].step()

    return step


def padded_encoder(batch: int = 16, length: int = 512) -> Step:
    """torch's own encoder layers with dropout and a mask of padding, and Muon for the matrices."""
    layer = nn.TransformerEncoderLayer(1024, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 8).cuda()
    matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    optimizers = [
        torch.optim.Muon(matrices),
        torch.optim.AdamW(parameter for parameter in model.parameters() if parameter.dim() != 2),
    ]
    inputs = torch.randn(batch, length, 1024, device="cuda")
    is_padding = (torch.arange(length) >= 400).expand(batch, -1).cuda()

    def step() -> None:
        for each in optimizers:
            each.zero_grad()
        model(inputs, src_key_padding_mask=is_padding).square().mean().backward()
        for each in optimizers:
            each.step()

    return step


def bags(batch: int = 65536) -> Step:
    """Sums of embeddings of bags, and gradients of each sample by vmap."""
    table = nn.EmbeddingBag(2_000_000, 64, mode="sum").cuda()
    head = nn.Linear(64, 16).cuda()
    optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], 0.1)
    rows = torch.randint(2_000_000, (batch * 20,), device="cuda")
    starts = torch.arange(0, batch * 20, 20, device="cuda")

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(head, weights, (x,))
        return found.logsumexp(-1)

    def step() -> None:
        optimizer.zero_grad()
        found = table(rows, starts)
        head(found).logsumexp(-1).mean().backward()
        weights = {name: weight.detach() for name, weight in head.named_parameters()}
        each = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, found.detach())
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in each.values()])
        head.weight.grad = (each["weight"] / norms.amax(0)[:, None, None]).mean(0)
        optimizer.step()

    return step


def trainer(batch: int = 8, length: int = 512, *, kind: str = "transformers") -> Callable[[], Any]:
    """One step of a Trainer of transformers or TRL as it is, with a model of 0.5B."""
    import transformers

    from benchmarks.probe_steps import empty
    from trainers.trl_data import bytes_tokenizer, collate, dataset

    options: dict[str, Any] = {
        "output_dir": tempfile.mkdtemp(), "max_steps": 1, "per_device_train_batch_size": batch, "report_to": [],
        "save_strategy": "no", "disable_tqdm": True, "logging_steps": 1, "bf16": kind == "transformers",
        "gradient_checkpointing": False,
    }  # fmt: skip
    given: dict[str, Any] = {
        "model": empty("0.5b"), "data_collator": collate,
        "train_dataset": dataset(torch.randint(256, (8 * batch, length))),
    }  # fmt: skip
    prepared = {"dataset_kwargs": {"skip_prepare_dataset": True}, "max_length": None}
    match kind:
        case "sft":
            from trl import SFTConfig, SFTTrainer

            arguments = SFTConfig(**options, **prepared)
            made: Any = SFTTrainer(**given, args=arguments, processing_class=bytes_tokenizer())
        case "gkd":
            from trl.experimental.gkd import GKDConfig, GKDTrainer

            given["teacher_model"] = empty("0.5b")
            arguments = GKDConfig(**options, **prepared, lmbda=0.0, beta=0.0)
            made = GKDTrainer(**given, args=arguments, processing_class=bytes_tokenizer())
        case _:
            made = transformers.Trainer(**given, args=transformers.TrainingArguments(**options))
    return lambda: made.train()
