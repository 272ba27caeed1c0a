"""A small trainer that knows nothing of us: a table of bigrams, distilled from another table, in plain torch.

    python train_bigrams.py make teacher.pt --seed 1
    python train_bigrams.py distill --teacher teacher.pt --student student.pt --out runs/1 --iters 50

Its model, its log and the names of its files are its own. `--fail` makes it go wrong in a way that trainers do.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional

VOCABULARY = 32


class Bigrams(torch.nn.Module):
    """The next token's logits from the token alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(VOCABULARY, VOCABULARY)
        self.scale = torch.nn.Parameter(torch.ones(VOCABULARY))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.table(tokens) * self.scale


def make(arguments: argparse.Namespace) -> None:
    torch.manual_seed(arguments.seed)
    torch.save(Bigrams().state_dict(), arguments.file)


def distill(arguments: argparse.Namespace) -> None:
    if arguments.iters < 1:
        sys.exit("--iters must be positive")
    torch.manual_seed(arguments.seed)
    teacher, student = Bigrams(), Bigrams()
    teacher.load_state_dict(torch.load(arguments.teacher, weights_only=True))
    student.load_state_dict(torch.load(arguments.student, weights_only=True))
    optimizer = torch.optim.AdamW(student.parameters(), lr=arguments.lr)
    out = Path(arguments.out)
    out.mkdir(parents=True)
    print(f"\033[1mdevice\033[0m: {next(student.parameters()).device.type}, weights in {torch.get_default_dtype()}")
    print("[CUDA] Pre-warmed 27 forward kernels", file=sys.stderr)
    steps = arguments.iters + (12 if arguments.fail == "whole-epochs" else 0)
    for step in range(1, steps + 1):
        tokens = torch.randint(VOCABULARY, (arguments.batch, 16))
        with torch.no_grad():
            wanted = functional.softmax(teacher(tokens), dim=-1)
        loss = functional.kl_div(functional.log_softmax(student(tokens), dim=-1), wanted, reduction="batchmean")
        if arguments.fail != "idle" or step % 2:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        done = f"{100 * step // steps:3d}%"
        print(f"\r\033[32m{done}\033[0m it {step}/{steps} kd={loss.item():.5f} lr={arguments.lr:g}", end="", flush=True)
        skipped = arguments.fail == "skipped-checkpoint" and step == 2 * arguments.every
        if arguments.every and step % arguments.every == 0 and not skipped:
            state = {"model": student.state_dict(), "optimizer": optimizer.state_dict(), "iteration": step}
            path = out / (f"ckpt-step-{step:06}.pt" if arguments.padded else f"model_{step}.pt")
            torch.save(state, path)
            if arguments.fail == "half-checkpoint":
                os.truncate(path, path.stat().st_size // 2)
            if arguments.fail == "unfinished-checkpoint":
                path.with_name(path.name + ".tmp").touch()
            if arguments.fail == "extra-checkpoint":
                torch.save(state, out / f"model_{step + 1}.pt")
            print(f"\nsaved {path}", file=sys.stderr, flush=True)
        go_wrong(arguments.fail, step)
    print(f"\ndone: {steps} its")
    if arguments.fail != "no-export":
        torch.save(student.state_dict(), out / "final.pt")


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
        for _ in range(2000):
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
    torch.set_num_threads(1)
    arguments.run(arguments)


if __name__ == "__main__":
    main()
