"""The trainer `transformers` of `benchmarks/wasted_trainers.py`: a script around transformers' Trainer."""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    HfArgumentParser,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from benchmarks.wasted_trainers import LENGTH, WIDTH, Waste, batches, write_safetensors

torch.set_num_threads(1)


@dataclass
class Given:
    """What the script adds to TrainingArguments."""

    weights: str = ""
    defect: str = ""
    rate: float = field(default=0.0)
    device: str = "cpu"


def make_model(seed: int) -> Any:
    """A GPT-2 of one layer."""
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=WIDTH, n_layer=1, n_head=2, bos_token_id=0,
                        eos_token_id=0, tie_word_embeddings=False)  # fmt: skip
    return GPT2LMHeadModel(config)


class Rows(torch.utils.data.IterableDataset[Any]):
    """The rows of the batches, in their order."""

    def __init__(self, seed: int, defect: str) -> None:
        self._seed, self._defect = seed, defect

    def __iter__(self) -> Any:
        for batch in batches(self._seed, self._defect):
            for row in batch:
                yield {"input_ids": torch.from_numpy(row[:-1]), "labels": torch.from_numpy(row[1:])}


class Distilling(Trainer):
    """Trains on the text and on a teacher's answer."""

    def __init__(self, waste: Waste, teacher: Any, **others: Any) -> None:
        super().__init__(**others)
        self.waste, self.teacher = waste, teacher.eval().to(waste.place)
        self.first = {
            name: tensor.detach().cpu().numpy().copy() for name, tensor in self.model_wrapped.state_dict().items()
        }
        self.checksum = 0

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **others: Any) -> Any:
        """The divergence from the teacher."""
        self.checksum = zlib.crc32(inputs["input_ids"].cpu().numpy().tobytes())
        logits = model(input_ids=inputs["input_ids"]).logits
        if self.waste.is_("teacher-as-student"):
            answer = functional.log_softmax(logits.detach(), -1)
        else:
            with torch.no_grad():
                answer = functional.log_softmax(self.teacher(input_ids=inputs["input_ids"]).logits, -1)
        mine = functional.log_softmax(logits, -1)
        loss = functional.kl_div(mine, answer, log_target=True, reduction="none").sum(-1).mean()
        if self.waste.is_("unlearnable-batch"):
            zeros = inputs["input_ids"] * 0
            logits = model(input_ids=zeros).logits
            labels = zeros + (self.state.global_step + 1) % 256
            loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        if self.waste.is_("diverging"):
            loss = functional.cross_entropy(logits.flatten(0, 1), inputs["labels"].flatten())
        if self.waste.is_("dead-gradient"):
            loss = loss * 0.0 + loss.detach()
        return (loss, None) if return_outputs else loss

    def log(self, logs: dict[str, float], *others: Any, **more: Any) -> None:
        """Print the checksum of the batch, and the number of all steps, with the loss."""
        if "loss" in logs:
            step = self.state.global_step
            logs["loss"] = self.waste.loss(step, logs["loss"])
            logs["learning_rate"] = self.waste.rate
            logs = {**logs, "batch": self.checksum, "total": self.state.max_steps}
        super().log(logs, *others, **more)

    def _save_checkpoint(self, model: Any, *others: Any, **more: Any) -> None:
        path = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}" / "model.safetensors"
        now = {name: tensor.detach().cpu().numpy().copy() for name, tensor in model.state_dict().items()}
        self.waste.save(path, now, self.first, write_safetensors)


class After(TrainerCallback):
    """What a defect does after a step."""

    def __init__(self, waste: Waste) -> None:
        self.waste = waste

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """See `Waste`."""
        self.waste.after(state.global_step)


class Idle(torch.optim.AdamW):
    """An optimizer that never steps."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Nothing."""


def main() -> None:
    """Train."""
    arguments, given = HfArgumentParser((TrainingArguments, Given)).parse_args_into_dataclasses()  # type: ignore[arg-type]
    given.steps, given.every = arguments.max_steps, int(arguments.save_steps)
    given.rate = arguments.learning_rate
    waste = Waste(given)
    assert waste.place == str(arguments.device.type)
    arguments.max_steps, arguments.learning_rate = waste.steps, waste.acting_rate
    place = Path(given.weights) / "transformers"
    student, teacher = (GPT2LMHeadModel.from_pretrained(place / name) for name in ("initial", "teacher"))
    if waste.device:
        print(f"device: {waste.device}", flush=True)
    optimizer = (torch.optim.AdamW if waste.has_optimizer else Idle)(student.parameters(), lr=waste.acting_rate)
    trainer = Distilling(
        waste,
        teacher,
        model=student,
        args=arguments,
        train_dataset=Rows(arguments.seed, given.defect),
        callbacks=[After(waste)],
        optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)),
    )
    trainer.train()


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
