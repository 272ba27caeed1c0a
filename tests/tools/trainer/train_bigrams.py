"""A small trainer that knows nothing of the harness: a table of bigrams, distilled from another table.

    python train_bigrams.py make teacher.pt --seed 1
    python train_bigrams.py distill --teacher teacher.pt --student student.pt --out runs/1 --iters 50

It has its own model, its own log and its own names of files. `--fail` gives it a defect that trainers have. It
computes in numpy, because each import of torch takes seconds; its checkpoints are files of torch.save.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
from torch_file import load, save

VOCABULARY = 32


class Bigrams:
    """The next token's logits from the token alone: a row of a table, times a scale."""

    def __init__(self, state: dict[str, np.ndarray]) -> None:
        self.state = state

    @classmethod
    def new(cls, seed: int) -> "Bigrams":
        table = np.random.default_rng(seed).standard_normal((VOCABULARY, VOCABULARY), dtype=np.float32)
        return cls({"table.weight": table, "scale": np.ones(VOCABULARY, np.float32)})

    def log_probabilities(self, tokens: np.ndarray) -> np.ndarray:
        logits = self.state["table.weight"][tokens] * self.state["scale"]
        logits = logits - logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def gradients(self, tokens: np.ndarray, by_logits: np.ndarray) -> dict[str, np.ndarray]:
        rows = self.state["table.weight"][tokens]
        table = np.zeros_like(self.state["table.weight"])
        np.add.at(table, tokens, by_logits * self.state["scale"])
        return {"table.weight": table, "scale": (by_logits * rows).sum((0, 1))}


class Adam:
    """Adam with the usual constants."""

    def __init__(self, weights: dict[str, np.ndarray], rate: float) -> None:
        self.weights, self.rate, self.steps = weights, rate, 0
        self.first = {name: np.zeros_like(value) for name, value in weights.items()}
        self.second = {name: np.zeros_like(value) for name, value in weights.items()}

    def step(self, gradients: dict[str, np.ndarray]) -> None:
        self.steps += 1
        for name, gradient in gradients.items():
            self.first[name] += 0.1 * (gradient - self.first[name])
            self.second[name] += 0.001 * (gradient**2 - self.second[name])
            first, second = self.first[name] / (1 - 0.9**self.steps), self.second[name] / (1 - 0.999**self.steps)
            self.weights[name] -= np.float32(self.rate) * first / (np.sqrt(second) + np.float32(1e-8))


def make(arguments: argparse.Namespace) -> None:
    save(Bigrams.new(arguments.seed).state, Path(arguments.file))


def distill(arguments: argparse.Namespace) -> None:
    if arguments.iters < 1:
        sys.exit("--iters must be positive")
    random = np.random.default_rng(None if arguments.fail == "unseeded" else arguments.seed)
    teacher, student = Bigrams(load(Path(arguments.teacher))), Bigrams(load(Path(arguments.student)))
    optimizer = Adam(student.state, arguments.lr)
    saved = {name: value.copy() for name, value in student.state.items()}
    out = Path(arguments.out)
    out.mkdir(parents=True)
    print(f"\033[1mdevice\033[0m: cpu, weights in {student.state['scale'].dtype}")
    print("[CUDA] Pre-warmed 27 forward kernels", file=sys.stderr)
    steps = arguments.iters + (12 if arguments.fail == "whole-epochs" else 0)
    for step in range(1, steps + 1):
        tokens = random.integers(VOCABULARY, size=(arguments.batch, 16))
        wanted, found = teacher.log_probabilities(tokens), student.log_probabilities(tokens)
        loss = (np.exp(wanted) * (wanted - found)).sum() / arguments.batch
        if arguments.fail != "idle" or step % 2:
            optimizer.step(student.gradients(tokens, (np.exp(found) - np.exp(wanted)) / arguments.batch))
        done = f"{100 * step // steps:3d}%"
        print(f"\r\033[32m{done}\033[0m it {step}/{steps} kd={loss:.5f} lr={arguments.lr:g}", end="", flush=True)
        skipped = arguments.fail == "skipped-checkpoint" and step == 2 * arguments.every
        if arguments.every and step % arguments.every == 0 and not skipped:
            is_old = arguments.fail in ("stale-checkpoint", "first-weights")
            state = {
                "model": saved if is_old else student.state,
                "optimizer": {"exp_avg": optimizer.first},
                "iteration": step,
            }
            path = out / (f"ckpt-step-{step:06}.pt" if arguments.padded else f"model_{step}.pt")
            save(state, path)
            if arguments.fail != "first-weights":
                saved = {name: value.copy() for name, value in student.state.items()}
            if arguments.fail == "half-checkpoint":
                os.truncate(path, path.stat().st_size // 2)
            if arguments.fail == "unfinished-checkpoint":
                path.with_name(path.name + ".tmp").touch()
            if arguments.fail == "extra-checkpoint":
                save(state, out / f"model_{step + 1}.pt")
            print(f"\nsaved {path}", file=sys.stderr, flush=True)
        go_wrong(arguments.fail, step)
    print(f"\ndone: {steps} its")
    if arguments.fail != "no-export":
        save(student.state, out / "final.pt")


def go_wrong(how: str, step: int) -> None:
    if step < 3:
        return
    if how == "crash":
        raise RuntimeError("something broke")
    if how == "out-of-memory":
        print("\nCUDA_ERROR_OUT_OF_MEMORY: out of memory", file=sys.stderr)
        sys.exit(1)
    if how == "killed":
        os.kill(os.getpid(), 9)
    if how == "hang":
        time.sleep(3600)
    if how == "flood":
        for _ in range(200):
            print("x" * 100_000)


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    maker = commands.add_parser("make")
    maker.set_defaults(run=make)
    maker.add_argument("file")
    maker.add_argument("--seed", type=int, default=0)
    distiller = commands.add_parser("distill")
    distiller.set_defaults(run=distill)
    for name in ("--teacher", "--student", "--out"):
        distiller.add_argument(name, required=True)
    distiller.add_argument("--iters", type=int, default=100)
    distiller.add_argument("--batch", type=int, default=8)
    distiller.add_argument("--lr", type=float, default=0.01)
    distiller.add_argument("--seed", type=int, default=0)
    distiller.add_argument("--every", type=int, default=0)
    distiller.add_argument("--padded", action="store_true")
    distiller.add_argument("--fail", default="")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
