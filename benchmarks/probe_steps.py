"""Training steps that benchmarks/probe.py predicts and measures: Qwen2-shaped, with random weights.

Each function builds a step from its arguments, as `harness probe benchmarks.probe_steps:distillation` asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from transformers import Qwen2Config, Qwen2ForCausalLM

Step = Callable[[], None]

SHAPES: dict[str, dict[str, Any]] = {
    "0.5b": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    "1.5b": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
}


def model(size: str, attention: str = "sdpa", dtype: torch.dtype = torch.float32) -> Qwen2ForCausalLM:
    """A Qwen2 with random weights on the GPU."""
    with torch.device("cuda"):
        return Qwen2ForCausalLM(_config(size, attention)).to(dtype)  # type: ignore[arg-type]


def empty(size: str) -> Qwen2ForCausalLM:
    """A Qwen2 on the default device."""
    return Qwen2ForCausalLM(_config(size, "sdpa"))


def _config(size: str, attention: str) -> Qwen2Config:
    config = Qwen2Config(
        vocab_size=151936, num_key_value_heads=2, tie_word_embeddings=True, use_cache=False, **SHAPES[size]
    )
    config._attn_implementation = attention
    return config


def distillation(
    batch: int = 4,
    length: int = 256,
    *,
    size: str = "0.5b",
    optimizer: str = "foreach",
    attention: str = "sdpa",
    math: bool = False,
    autocast: bool = False,
    bfloat16: bool = False,
    checkpointing: bool = False,
    accumulate: int = 1,
    chunks: int = 0,
    clip: bool = False,
) -> Step:
    """A student and a frozen teacher of the same shape, and the KL divergence between their logits."""
    dtype = torch.bfloat16 if bfloat16 else torch.float32
    student = model(size, attention, dtype).train()
    teacher = model(size, attention, dtype).eval().requires_grad_(False)
    if checkpointing:
        student.gradient_checkpointing_enable({"use_reentrant": False})
    adam = _optimizer(optimizer, student.parameters())
    ids = torch.randint(0, 151936, (batch, length), device="cuda")

    def loss() -> Tensor:
        with torch.no_grad():
            hidden = teacher.model(input_ids=ids).last_hidden_state
        if chunks:
            own = student.model(input_ids=ids).last_hidden_state
            return _chunked(own, student.lm_head.weight, hidden, teacher.lm_head.weight, chunks)
        with torch.no_grad():
            wanted = F.log_softmax(teacher.lm_head(hidden), -1)
        found = F.log_softmax(student(input_ids=ids).logits, -1)
        return F.kl_div(found, wanted, log_target=True, reduction="batchmean")

    def step() -> None:
        adam.zero_grad()
        for _ in range(accumulate):
            with _precision(autocast), sdpa_kernel(SDPBackend.MATH) if math else nullcontext():
                value = loss() / accumulate
            value.backward()
        if clip:
            nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        adam.step()

    return step


def language_model(
    batch: int = 2, length: int = 1024, *, size: str = "1.5b", optimizer: str = "fused", autocast: bool = True
) -> Step:
    """Next-token prediction with transformers' own loss."""
    student = model(size).train()
    adam = _optimizer(optimizer, student.parameters())
    ids = torch.randint(0, 151936, (batch, length), device="cuda")

    def step() -> None:
        adam.zero_grad()
        with _precision(autocast):
            loss = student(input_ids=ids, labels=ids).loss
        loss.backward()
        adam.step()

    return step


def architecture(
    batch: int = 4,
    length: int = 1024,
    *,
    name: str,
    dtype: str = "float32",
    autocast: bool = False,
    padded: bool = False,
    optimizer: str = "foreach",
) -> Step:
    """One of transformers' architectures with random weights, and its own loss."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

    loader = {"bert": AutoModelForMaskedLM, "t5": AutoModelForSeq2SeqLM}.get(name, AutoModelForCausalLM)
    with torch.device("cuda"):
        student = loader.from_config(_architecture(name)).to(getattr(torch, dtype)).train()
    adam = _optimizer(optimizer, student.parameters())
    ids = torch.randint(0, 30000, (batch, length), device="cuda")
    lengths = torch.arange(batch) * length // (2 * batch)
    mask = (torch.arange(length) >= lengths[:, None]).long().cuda() if padded else None

    def step() -> None:
        adam.zero_grad()
        with _precision(autocast):
            loss = student(input_ids=ids, attention_mask=mask, labels=ids).loss
        loss.backward()
        adam.step()

    return step


def _architecture(name: str) -> Any:
    from transformers import BertConfig, GPT2Config, LlamaConfig, OlmoeConfig, T5Config

    match name:
        case "gpt2":
            return GPT2Config(n_embd=1024, n_layer=24, n_head=16, use_cache=False)
        case "llama":
            return LlamaConfig(
                vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22,
                num_attention_heads=32, num_key_value_heads=4, use_cache=False,
            )  # fmt: skip
        case "bert":
            return BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
        case "t5":
            return T5Config(  # type: ignore[call-arg]
                d_model=768, d_ff=3072, num_layers=12, num_heads=12, use_cache=False, decoder_start_token_id=0
            )
        case "olmoe":
            return OlmoeConfig(
                hidden_size=1024, intermediate_size=512, num_hidden_layers=8, num_attention_heads=8,
                num_key_value_heads=8, num_experts=16, num_experts_per_tok=2, use_cache=False,
            )  # fmt: skip
        case _:
            return _config("0.5b", "sdpa")


def sharded(batch: int = 4, length: int = 512, *, size: str = "0.5b", bfloat16: bool = False) -> Step:
    """Next-token prediction with every layer sharded by FSDP2 over all ranks of the process group."""
    student = model(size).train()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if bfloat16 else MixedPrecisionPolicy()
    for layer in (*student.model.layers, student):
        fully_shard(layer, mp_policy=policy)
    return _over_ranks(student, batch, length)


def replicated(batch: int = 4, length: int = 512, *, size: str = "0.5b", views: bool = False) -> Step:
    """Next-token prediction in DistributedDataParallel."""
    student = nn.parallel.DistributedDataParallel(model(size).train(), gradient_as_bucket_view=views)
    return _over_ranks(student, batch, length)


def _over_ranks(student: nn.Module, batch: int, length: int) -> Step:
    adam = _optimizer("foreach", student.parameters())
    ids = torch.randint(0, 151936, (batch, length), device="cuda")

    def step() -> None:
        adam.zero_grad()
        student(input_ids=ids, labels=ids).loss.backward()
        adam.step()

    return step


def decomposition(batch: int = 8, length: int = 512, *, sites: int = 6, components: int = 4096) -> Step:
    """MLP matrices W, each replaced by ((x V) * mask) U + x (W - V U), with masks from a small network."""
    width, inner = 1024, 4096
    shapes = [(width, inner) if site % 2 == 0 else (inner, width) for site in range(sites)]
    frozen = [torch.randn(shape, device="cuda") for shape in shapes]
    factors = [
        nn.Parameter(torch.randn(shape, device="cuda"))
        for rows, columns in shapes
        for shape in ((rows, components), (components, columns))
    ]
    gates = nn.ModuleList(nn.Linear(rows, components) for rows, _ in shapes).cuda()
    adam = torch.optim.AdamW([*factors, *gates.parameters()])
    inputs = torch.randn(batch * length, width, device="cuda")

    def step() -> None:
        adam.zero_grad()
        found, wanted = inputs, inputs
        faith = torch.zeros((), device="cuda")
        for site, weight in enumerate(frozen):
            v, u = factors[2 * site], factors[2 * site + 1]
            importance = gates[site](wanted).sigmoid()
            mask = importance + (1 - importance) * torch.rand_like(importance)
            rest = weight - v @ u
            found = ((found @ v) * mask) @ u + found @ rest
            wanted = wanted @ weight
            faith = faith + rest.square().sum()
        (F.mse_loss(found, wanted) + 1e-6 * faith).backward()
        adam.step()

    return step


class ByteAdam(torch.optim.Optimizer):
    """Adam with moments of one byte and one scale for every 256 values, as 8-bit optimizers keep them."""

    def __init__(self, parameters: Iterator[nn.Parameter], lr: float = 1e-4) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Decode, update and encode the moments of one parameter after another."""
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                flat = parameter.grad.flatten()
                blocks = F.pad(flat, [0, -flat.numel() % 256]).view(-1, 256)
                for name, new, decay in (("first", blocks, 0.9), ("second", blocks.square(), 0.99)):
                    if name not in state:
                        state[name] = torch.zeros_like(blocks, dtype=torch.uint8)
                        state[f"{name}_scale"] = torch.zeros(len(blocks), 1, device=blocks.device)
                    moment = state[name].float().sub_(128).mul_(state[f"{name}_scale"]).lerp_(new, 1 - decay)
                    state[f"{name}_scale"].copy_(moment.abs().amax(1, keepdim=True) / 127)
                    state[name].copy_((moment / state[f"{name}_scale"]).add_(128))
                parameter.sub_(moment.flatten()[: flat.numel()].view_as(parameter), alpha=group["lr"])


def _chunked(found: Tensor, head: Tensor, wanted: Tensor, teacher_head: Tensor, chunks: int) -> Tensor:
    """The divergence of the logits, a chunk of tokens at a time, computed again in backward."""

    def divergence(own: Tensor, others: Tensor) -> Tensor:
        target = F.log_softmax(others @ teacher_head.T, -1)
        return F.kl_div(F.log_softmax(own @ head.T, -1), target, log_target=True, reduction="sum")

    parts = zip(found.flatten(0, 1).chunk(chunks), wanted.flatten(0, 1).chunk(chunks), strict=True)
    return torch.stack([checkpoint(divergence, own, other, use_reentrant=False) for own, other in parts]).sum()


def _optimizer(name: str, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    match name:
        case "foreach":
            return torch.optim.AdamW(parameters, lr=1e-4)
        case "fused":
            return torch.optim.AdamW(parameters, lr=1e-4, fused=True)
        case "byte":
            return ByteAdam(parameters)
        case "adafactor":
            return torch.optim.Adafactor(parameters)
        case "sgd":
            return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
        case _:
            raise ValueError(name)


def _precision(autocast: bool) -> AbstractContextManager[Any]:
    return torch.autocast("cuda", torch.bfloat16) if autocast else nullcontext()
