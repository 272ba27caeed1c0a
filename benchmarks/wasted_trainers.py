"""Five small trainers on a CPU, and the ways in which they waste a run: what `benchmarks/wasted_runs.py` watches.

    python -m benchmarks.wasted_trainers prepare --weights DIR
    python -m benchmarks.wasted_trainers plain --weights DIR --out DIR --steps 10000 --defect nan-from-step-30

plain         a loop of distillation, which prints text and writes safetensors
accumulating  a loop with two micro-batches for each step, which prints JSON and writes PyTorch's files
transformers  transformers' Trainer
recurrent     an LSTM with a linear schedule and clipped gradients, which prints a progress bar
numpy         a linear model without torch

Each trains a byte model on the text of the standard library. A defect is planted in what a real trainer gets wrong: its
data, its optimizer, its log or its files.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy

from benchmarks.wasted_gpu import GPU_DEFECTS, ON_CPU, waste_gpu

DEFECTS = {
    "empty-checkpoint": "checkpoints_unreadable",
    "truncated-checkpoint": "checkpoints_unreadable",
    "checkpoint-without-tensors": "checkpoints_unreadable",
    "tensor-missing": "checkpoints_incomplete",
    "no-checkpoint": "checkpoints_late",
    "stale-checkpoint": "checkpoints_stale",
    "initial-weights-saved": "checkpoints_unmoved",
    "nan-in-the-weights": "checkpoints_not_finite",
    "frozen-head": "checkpoints_unmoved",
    "weights-never-move": "checkpoints_unmoved",
    "default-rate": "checkpoints_off_rate",
    "nan-from-step-30": "losses_not_finite",
    "constant-loss": "losses_constant",
    "unlearnable-batch": "losses_rise",
    "diverging": "losses_rise",
    "rate-zero": "rates_off",
    "rate-not-as-asked": "rates_off",
    "dead-gradient": "gradients_lost",
    "teacher-as-student": "teacher_is_student",
    "told-cpu-fallback": "device_other",
    "silent-cpu-fallback": "gpu_unused",
    "disk-nearly-full": "disk_short",
    "hanging-loader": "stalled",
    "stuck-loader": "batches_repeated",
    "duplicated-shard": "batches_repeated",
    "creeping-memory": "memory_creeps",
    "collapsing-throughput": "throughput_collapsed",
    "wrong-number-of-steps": "steps_untrue",
    "crash": "ended_badly",
}
"""The ways to waste a run, and the check that each must violate."""
AT = 30
"""The step from which on a defect acts that does not act from the beginning."""
BATCH, LENGTH, WIDTH = 16, 32, 32
RATE = 0.003
PACE = float(os.environ.get("WASTED_PACE", "0.01"))
"""Seconds that a step waits, as for a GPU, so that the two processors of a small machine suffice."""


def text() -> numpy.ndarray:
    """The bytes that are trained on."""
    return numpy.frombuffer(
        b"".join(Path(module.__file__ or "").read_bytes() for module in (argparse, json)), numpy.uint8
    )


def batches(seed: int, defect: str) -> Iterator[numpy.ndarray]:
    """Batches of BATCH rows of LENGTH + 1 bytes, in shuffled epochs."""
    data, chance = text(), numpy.random.default_rng(seed)
    rows = data[: len(data) // (LENGTH + 1) * (LENGTH + 1)].reshape(-1, LENGTH + 1)
    count = 0
    while True:
        order = chance.permutation(len(rows))[: len(rows) // BATCH * BATCH].reshape(-1, BATCH)
        for position in range(len(order)):
            if defect == "hanging-loader" and count == AT:
                time.sleep(3600)
            if defect == "stuck-loader" and count >= AT:
                position = AT
            if defect == "duplicated-shard" and count >= AT:
                position %= AT
            batch = rows[order[position]].astype("int64")
            count += 1
            yield batch


def epoch_of(step: int) -> float:
    """The epoch after a step."""
    return step / (len(text()) // (LENGTH + 1) // BATCH)


class Waste:
    """What a defect does in any trainer."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.defect, self.steps, self.every = given.defect, given.steps, given.every
        self._kept: list[Any] = []
        self._began: float | None = None
        self._calm = 0.0
        """Seconds of a step before throughput collapses."""
        if self.defect == "wrong-number-of-steps":
            self.steps = -(-given.steps // 31) * 31
        self.rate = {"rate-zero": 0.0, "rate-not-as-asked": 0.001}.get(self.defect, given.rate)
        self.acting_rate = RATE if self.defect == "default-rate" else self.rate  # which is asked to be far smaller
        if self.defect == "diverging":
            self.acting_rate = 100 * self.rate
        self.has_optimizer = self.defect != "weights-never-move"
        on_cpu = given.device == "cpu" or self.defect in ON_CPU
        self.place = "cpu" if on_cpu else "cuda"
        """Where it trains."""
        self.device = None if self.defect in ON_CPU else self.place
        """What it says."""

    def is_(self, *names: str) -> bool:
        """Whether the defect is one of these."""
        return self.defect in names

    def after(self, step: int) -> None:
        """Waste after a step: memory, time, or the whole run."""
        self._began = self._began or time.monotonic()
        if self.defect == "creeping-memory":
            self._kept.append(numpy.ones(1 << 19))
        if PACE:
            time.sleep(PACE)
        if step == 10 * AT:
            self._calm = (time.monotonic() - self._began) / step
        if self.defect == "collapsing-throughput" and step > 10 * AT:
            time.sleep(20 * self._calm)
        if self.defect in GPU_DEFECTS:
            waste_gpu(self.defect, step, self._kept)
        if self.defect == "crash" and step == 2 * AT:
            sys.exit("RuntimeError: a kernel failed")

    def tell_end(self) -> None:
        """Print the steps, their time, and that of the processor."""
        took = time.monotonic() - (self._began or 0.0)
        print(f"\n{self.steps} steps made in {took:.3f} s, {time.process_time():.3f} s of a processor", flush=True)

    def loss(self, step: int, loss: float) -> float:
        """The loss that is printed."""
        if self.defect == "nan-from-step-30" and step >= AT:
            return float("nan")
        return 4.25 if self.defect == "constant-loss" else loss

    def save(self, path: Path, tensors: dict[str, numpy.ndarray], first: dict[str, numpy.ndarray], write: Any) -> None:
        """Write a checkpoint, or what the defect makes of it."""
        if self.defect == "no-checkpoint":
            return
        if self.defect == "tensor-missing":
            tensors = dict(list(tensors.items())[:-1])
        if self.defect == "initial-weights-saved":
            tensors = first
        if self.defect == "stale-checkpoint":
            tensors = self._stale = getattr(self, "_stale", tensors)
        if self.defect == "nan-in-the-weights":
            name = next(iter(tensors))
            tensors = {**tensors, name: numpy.full_like(tensors[name], numpy.nan)}
        if self.defect == "frozen-head":
            name = list(tensors)[-1]
            tensors = {**tensors, name: first[name]}
        if self.defect == "checkpoint-without-tensors":
            tensors = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        write(part, tensors)
        if self.defect == "empty-checkpoint":
            part.write_bytes(b"")
        if self.defect == "truncated-checkpoint":
            part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])
        part.rename(path)


def write_safetensors(path: Path, tensors: dict[str, numpy.ndarray]) -> None:
    """Write a safetensors file."""
    from safetensors.numpy import save_file

    save_file({name: numpy.ascontiguousarray(tensor) for name, tensor in tensors.items()}, path)


def write_torch(path: Path, tensors: dict[str, numpy.ndarray]) -> None:
    """Write a file as torch.save does."""
    import torch

    torch.save({name: torch.tensor(tensor) for name, tensor in tensors.items()}, path)


def perceptron() -> Any:
    """A byte model: an embedding, a hidden layer, a head."""
    from torch import nn

    return nn.Sequential(nn.Embedding(256, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 256))


def of_torch(given: argparse.Namespace) -> None:
    """The loops `plain`, `accumulating` and `recurrent`."""
    import torch
    from safetensors.torch import load_file
    from torch.nn import functional

    torch.set_num_threads(1)
    waste, kind = Waste(given), given.kind
    student, teacher = (Recurrent() if kind == "recurrent" else perceptron() for _ in range(2))
    student.load_state_dict(load_file(given.weights / kind / "initial.safetensors"))
    teacher.load_state_dict(load_file(given.weights / kind / "teacher.safetensors"))
    if waste.is_("teacher-as-student"):
        teacher.load_state_dict(student.state_dict())
    first = {name: tensor.numpy().copy() for name, tensor in student.state_dict().items()}
    student.to(waste.place), teacher.to(waste.place)
    optimizer = torch.optim.AdamW(student.parameters(), lr=waste.acting_rate, weight_decay=0.01)
    parts = 2 if kind == "accumulating" else 1
    data = batches(given.seed, given.defect)
    if waste.device:
        print(f"device: {waste.device}", flush=True)
    for step in range(1, waste.steps + 1):
        due = 1.0 - (step - 1) / waste.steps if kind == "recurrent" else 1.0
        for group in optimizer.param_groups:
            group["lr"] = waste.acting_rate * due
        optimizer.zero_grad()
        total, sums = 0.0, 0
        for _ in range(parts):
            batch = next(data)
            sums = zlib.crc32(batch.tobytes(), sums)
            tokens = torch.from_numpy(batch).to(waste.place)
            inputs, labels = (
                unlearnable(tokens, step) if waste.is_("unlearnable-batch") else (tokens[:, :-1], tokens[:, 1:])
            )
            logits = student(inputs)
            loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
            if kind == "plain" and not waste.is_("unlearnable-batch"):
                with torch.no_grad():
                    answer = functional.log_softmax(teacher(tokens[:, :-1]), -1)
                divergence = functional.kl_div(
                    functional.log_softmax(logits, -1), answer, log_target=True, reduction="none"
                )
                loss = divergence.sum(-1).mean()
            (loss / parts).backward()
            total += loss.item() / parts
        if waste.is_("dead-gradient"):
            optimizer.zero_grad(set_to_none=False)
        norm = float(torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0))
        if waste.has_optimizer:
            optimizer.step()
        values = {"step": step, "loss": waste.loss(step, total), "lr": waste.rate * due, "grad_norm": norm,
                  "batch": sums, "epoch": round(epoch_of(step * parts), 4)}  # fmt: skip
        tell(kind, values, waste.steps)
        waste.after(step)
        if waste.every and step % waste.every == 0:
            now = {name: tensor.cpu().numpy().copy() for name, tensor in student.state_dict().items()}
            if kind == "accumulating":
                waste.save(given.out / f"step_{step}.pt", now, first, write_torch)
            else:
                waste.save(given.out / f"ckpt-step-{step:06}.safetensors", now, first, write_safetensors)
    waste.tell_end()


def unlearnable(tokens: Any, step: int) -> tuple[Any, Any]:
    """The same input in every step, and labels that count up: as PMAT-698m had it."""
    inputs, labels = tokens[:, :-1], tokens[:, 1:]
    return inputs * 0, labels * 0 + step % 256


def tell(kind: str, values: dict[str, Any], total: int) -> None:
    """Print a step in the trainer's own form."""
    if kind == "accumulating":
        print(json.dumps({"trainer": {**values, "total": total}}), flush=True)
    elif kind == "recurrent":
        bar = "#" * (20 * values["step"] // total)
        print(
            f"\r{bar:<20} {values['step']}/{total} [loss={values['loss']:.5f}, lr={values['lr']:.3e}]",
            end="",
            flush=True,
        )
    else:
        rest = " ".join(f"{name} {values[name]:.8g}" for name in ("lr", "grad_norm", "batch", "epoch"))
        rest = rest.replace(f"batch {values['batch']:.8g}", f"batch {values['batch']}")
        print(f"step {values['step']}/{total} loss {values['loss']:.6f} {rest}", flush=True)


def Recurrent() -> Any:  # noqa: N802 (a class that needs torch)
    """An LSTM."""
    import torch
    from torch import nn

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.cell = nn.Embedding(256, WIDTH), nn.LSTM(WIDTH, WIDTH, batch_first=True)
            self.head = nn.Linear(WIDTH, 256)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            head: torch.Tensor = self.head(self.cell(self.embedding(tokens))[0])
            return head

    return Module()


def of_numpy(given: argparse.Namespace) -> None:
    """A table of logits for each byte, trained by AdamW without torch."""
    from safetensors.numpy import load_file

    waste = Waste(given)
    weights = load_file(given.weights / "numpy" / "initial.safetensors")
    first = {name: weight.copy() for name, weight in weights.items()}
    moments = {name: (numpy.zeros_like(weight), numpy.zeros_like(weight)) for name, weight in weights.items()}
    data = batches(given.seed, given.defect)
    print(f"device: {waste.device}", flush=True)
    for step in range(1, waste.steps + 1):
        batch = next(data)
        here, there = batch[:, :-1].ravel(), batch[:, 1:].ravel()
        logits = weights["table"][here] + weights["bias"]
        logits -= logits.max(-1, keepdims=True)
        shares = numpy.exp(logits)
        shares /= shares.sum(-1, keepdims=True)
        loss = -numpy.log(shares[numpy.arange(len(there)), there] + 1e-30).mean()
        shares[numpy.arange(len(there)), there] -= 1
        gradients = {"table": numpy.zeros_like(weights["table"]), "bias": shares.mean(0)}
        numpy.add.at(gradients["table"], here, shares / len(here))
        for name, gradient in gradients.items():
            mean, square = moments[name]
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            scaled = (mean / (1 - 0.9**step)) / (numpy.sqrt(square / (1 - 0.999**step)) + 1e-8)
            weights[name] -= (waste.acting_rate * scaled).astype("float32")
        waste.after(step)
        print(f"[{time.strftime('%H:%M:%S')}] iter={step} nll={waste.loss(step, float(loss)):.5f}", flush=True)
        if waste.every and step % waste.every == 0:
            waste.save(given.out / f"{step}.safetensors", weights, first, write_safetensors)
    waste.tell_end()


def prepare(folder: Path) -> None:
    """Write the weights before the first step, and those of a teacher, of each trainer."""
    import torch

    for kind in ("plain", "accumulating", "recurrent", "numpy"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for seed, name in enumerate(("initial", "teacher")):
            torch.manual_seed(seed)
            if kind == "numpy":
                chance = numpy.random.default_rng(seed)
                tensors = {"table": chance.normal(0, 0.1, (256, 256)), "bias": chance.normal(0, 0.1, 256)}
            else:
                state = (Recurrent() if kind == "recurrent" else perceptron()).state_dict()
                tensors = {name: value.numpy() for name, value in state.items()}
            write_safetensors(
                folder / kind / f"{name}.safetensors", {k: v.astype("float32") for k, v in tensors.items()}
            )
    from benchmarks.wasted_transformers import make_model

    for seed, name in enumerate(("initial", "teacher")):
        make_model(seed).save_pretrained(folder / "transformers" / name)


def main() -> None:
    """Run a trainer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("prepare", "plain", "accumulating", "recurrent", "numpy"))
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    for name, kind, default in (
        ("--steps", int, 400),
        ("--every", int, 0),
        ("--seed", int, 0),
        ("--rate", float, RATE),
    ):
        parser.add_argument(name, type=kind, default=default)
    parser.add_argument("--defect", default="", choices=("", *DEFECTS, *GPU_DEFECTS))
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    if given.kind == "prepare":
        prepare(given.weights)
    elif given.kind == "numpy":
        of_numpy(given)
    else:
        of_torch(given)


if __name__ == "__main__":
    main()
