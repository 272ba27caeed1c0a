"""What the trainers of this folder share: options, batches, the first model, and the bugs that `--bug` plants.

python trainers/foreign/common.py START        # writes the model to start from
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

OF_PLAIN = ("decay-after-update", "group-without-schedule", "gradients-kept", "last-rows-dropped")
"""The bugs that only the loop of plain PyTorch plants."""
OF_DATA = ("first-rows-again", "half-of-the-text", "labels-shifted-twice", "rows-of-noise")
"""The bugs of batches, which F-DISTILL-DATA-001 judges."""
BUGS = (
    "ema-saved", "not-divided", "schedule-per-micro-batch", "empty-checkpoint", "last-step-not-saved",
    "resume-without-optimizer", "smoothed-loss", "skipped-step", *OF_PLAIN, *OF_DATA,
)  # fmt: skip


def options() -> argparse.Namespace:
    """The command line; a number of steps below one is refused with status 2."""
    parser = argparse.ArgumentParser()
    for name in ("--student", "--text", "--out"):
        parser.add_argument(name, required=True)
    for name, kind, default in (
        ("--steps", int, 10), ("--batch", int, 4), ("--sequence", int, 16), ("--accumulate", int, 2),
        ("--lr", float, 0.01), ("--warmup", int, 0), ("--clip", float, 0.0), ("--decay", float, 0.01),
        ("--every", int, 0), ("--rank", int, 0), ("--stop", int, 0), ("--seed", int, 0),
    ):  # fmt: skip
        parser.add_argument(name, type=kind, default=default)
    parser.add_argument("--dump", default="")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--bug", choices=["", *BUGS], default="")
    asked = parser.parse_args()
    asked.made = torch.load(Path(asked.out) / "state.pt")["made"] if asked.resume else 0
    if asked.steps < 1 or asked.batch % asked.accumulate:
        parser.error("--steps must be positive, and --accumulate must divide --batch")
    Path(asked.out).mkdir(parents=True, exist_ok=True)
    torch.manual_seed(asked.seed)
    torch.use_deterministic_algorithms(True)
    return asked


def model_of(folder: str) -> Any:
    """The model of a folder, in float32."""
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)


class Batches(torch.utils.data.Dataset[torch.Tensor]):
    """Rows of the text's bytes, in the order in which the steps take them; labels are the tokens themselves."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.text = torch.frombuffer(bytearray(Path(asked.text).read_bytes()), dtype=torch.uint8).long()
        if asked.bug == "half-of-the-text":
            self.text = self.text[: len(self.text) // 2]
        self.bug, self.batch = asked.bug, asked.batch
        self.first, self.length, self.seed = asked.made * asked.batch, asked.sequence + 1, asked.seed
        self.rows = (asked.stop or asked.steps) * asked.batch - self.first

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> Any:
        number = (self.first + row) % self.batch if self.bug == "first-rows-again" else self.first + row
        chance = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        start = int(torch.randint(len(self.text) - self.length, (), generator=chance))
        tokens = self.text[start : start + self.length]
        if self.bug == "rows-of-noise" and number % 100 == 0:
            tokens = torch.randint(256, (self.length,), generator=chance)
        labels = tokens.clone()
        if self.bug == "labels-shifted-twice":
            labels = torch.cat([tokens[1:], torch.tensor([-100])])
        return {"input_ids": tokens, "labels": labels}

    def step(self, number: int, asked: argparse.Namespace) -> list[Any]:
        """The micro-batches of a step, from 1."""
        first, size = (number - 1) * asked.batch - self.first, asked.batch // asked.accumulate
        rows = [self[row] for row in range(first, first + asked.batch)]
        parts = [rows[place : place + size] for place in range(0, asked.batch, size)]
        return [{key: torch.stack([row[key] for row in part]) for key in part[0]} for part in parts]


def rate_factor(warmup: int) -> Any:
    """The factor of the learning rate by how many steps were made: it rises over the warm-up, and then stays."""
    return lambda made: min(1.0, (made + 1) / max(1, warmup))


def tensors(model: Any) -> dict[str, torch.Tensor]:
    """Copies of the weights by name; those of adapters are merged into the model's."""
    found = {name: weight.detach().clone().contiguous() for name, weight in model.named_parameters()}
    merged = {}
    for name, weight in found.items():
        if "lora_" not in name:
            plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
            layer = model.get_submodule(name.rpartition(".base_layer")[0]) if ".base_layer" in name else None
            merged[plain] = weight if layer is None else weight + layer.get_delta_weight("default").detach()
    return merged


def restore(asked: argparse.Namespace, model: Any, optimizer: Any, schedule: Any) -> None:
    """Go on where a run with `--stop` ended, if `--resume` asks for it."""
    if not asked.resume:
        return
    kept = torch.load(Path(asked.out) / "state.pt")
    model.load_state_dict(kept["model"])
    schedule.load_state_dict(kept["schedule"])
    if asked.bug != "resume-without-optimizer":
        optimizer.load_state_dict(kept["optimizer"])
    for group, rate in zip(optimizer.param_groups, schedule.get_last_lr(), strict=True):
        group["lr"] = rate


class Saving:
    """Prints each step, and saves checkpoints and the export, with the bugs of saving and of reporting."""

    def __init__(self, model: Any, asked: argparse.Namespace) -> None:
        self.model, self.asked, self.made = model, asked, asked.made
        self.before = self.now = self.average = tensors(model)
        self.smoothed: float | None = None

    def before_step(self) -> None:
        self.before = tensors(self.model)

    def after_step(self, loss: float, rate: float) -> None:
        asked = self.asked
        self.made, self.now = self.made + 1, tensors(self.model)
        self.average = {name: 0.9 * self.average[name] + 0.1 * weight for name, weight in self.now.items()}
        self.smoothed = loss if self.smoothed is None else 0.9 * self.smoothed + 0.1 * loss
        told = self.smoothed if asked.bug == "smoothed-loss" else loss
        print(f"step {self.made}/{asked.steps} loss {told:.9g} learning_rate {rate:.9g}", flush=True)
        if asked.every and self.made % asked.every == 0:
            weights = {} if asked.bug == "empty-checkpoint" else self.chosen()
            save_file(weights, Path(asked.out) / f"checkpoint-{self.made}.safetensors")

    def chosen(self) -> dict[str, torch.Tensor]:
        """The weights that are saved."""
        return {"ema-saved": self.average, "last-step-not-saved": self.before}.get(self.asked.bug, self.now)

    def end(self, optimizer: Any, schedule: Any) -> None:
        """Export the weights; of a run that stops in between, keep everything."""
        if self.asked.stop:
            parts = {"model": self.model, "optimizer": optimizer, "schedule": schedule}
            kept = {name: part.state_dict() for name, part in parts.items()}
            torch.save({"made": self.made, **kept}, Path(self.asked.out) / "state.pt")
            return
        save_file(self.chosen(), Path(self.asked.out) / "model.safetensors", metadata={"format": "pt"})
        print(f"{self.made} steps made")


def make(folder: Path) -> None:
    """Write a model of two small layers to start from."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=256, max_position_embeddings=256, tie_word_embeddings=False, **shape)
    model = LlamaForCausalLM(config)
    config.save_pretrained(folder)
    save_file(tensors(model), folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    make(Path(sys.argv[1]))
