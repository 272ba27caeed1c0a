"""A small engine that knows nothing of the harness, and prints the lines of an engine that loads kernels and trains.

    python ptx_engine.py distill --steps 5 --backend cuda --out runs/1

It needs no GPU: it trains four numbers on a quadratic. `--fail` gives it a defect that such engines have.
"""

import argparse
import os
import sys
import time
from pathlib import Path

WARMED = ("silu_forward", "batched_rmsnorm_fwd_896_eps358637bd", "batched_rope_fwd_14_64_256")
OUT_OF_MEMORY = 'KernelError("MemoryAllocation(\\"CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY (code: 2)\\")")'


def say(text: str) -> None:
    print(f"\033[36m{text}\033[0m", file=sys.stderr, flush=True)


def load_kernels(fail: str, backend: str, target: str) -> None:
    label = backend.upper()
    say(f"[{label}] cuBLAS initialized — forward TF32 tensor cores (41x vs SIMD)")
    say(f"[{label}] Kernel cache initialized for target: {target}")
    for kernel in WARMED:
        if fail.startswith("refused"):
            say(f"Failed to load {kernel}: CUDA_ERROR_JIT_COMPILATION_DISABLED (code: 223)")
            if fail == "refused":
                sys.exit("error: no kernels")
        if fail == "compiles-all":
            say(f"[FWD-CACHE] Compiling '{kernel}' (ptx_len=4096)")
            say(f"[FWD-CACHE] OK '{kernel}'")
    if fail == "falls-back":
        say(f"[{label}] Failed to pre-warm AdamW kernels: no context — using CPU")
        return
    say(f"[{label}] Pre-warmed {len(WARMED)} forward kernels (JIT compiled before block upload)")


def upload_blocks(fail: str) -> None:
    if not fail.startswith("upload"):
        return
    say(f"error: Validation failed: CudaTrainerTeacher load: Block 0 upload failed: {OUT_OF_MEMORY}")
    if fail == "upload":
        sys.exit(1)


def leave_in_cache() -> None:
    folder = Path(os.environ["CUDA_CACHE_PATH"], "0", "a")
    folder.mkdir(parents=True)
    (folder / "5e2f").write_bytes(b"\x7fELF of a driver")


def train(steps: int, fail: str) -> list[float]:
    weights, losses = [1.0, -2.0, 3.0, 0.5], []
    rate = -0.05 if fail == "rises" else 0.1
    room = bytearray(96 << 20) if fail == "hungry" else b""
    if room:
        time.sleep(0.5)  # at least as long as an engine would hold it, so that a sample sees it
    made = steps - 1 if fail == "short" else steps
    for step in range(1, made + 1):
        losses.append(sum(weight * weight for weight in weights) + 0 * len(room))
        weights = [weight - rate * 2 * weight for weight in weights]
        if fail.startswith("compiles-late") and step == 3:
            say("[FWD-CACHE] Compiling 'silu_backward' (ptx_len=4096)")
        bar = "#" * step + "." * (made - step)
        print(f"\r\033[32m{100 * step // made:3d}%|{bar}|\033[0m Step {step}/{made} loss={losses[-1]:.5f}", end="")
        if step % 2:
            say("")
        sys.stdout.flush()
    print()
    return losses


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["distill"])
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", default="sm_121")
    parser.add_argument("--fail", default="")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True)
    load_kernels(arguments.fail, arguments.backend, arguments.target)
    upload_blocks(arguments.fail)
    if arguments.fail == "leaves-in-cache":
        leave_in_cache()
    if arguments.fail == "hangs":
        time.sleep(3600)
    losses = train(arguments.steps, arguments.fail)
    if arguments.fail == "crashes":
        os.abort()
    print(f"initial_loss = {losses[0]:.4f}\nfinal_loss   = {losses[-1]:.4f}\n{len(losses)} steps, 0.3s")
    if arguments.fail != "counts-nothing":
        print(f"jit_compiles = {1 if arguments.fail == 'compiles-late' else 0}", end="")


if __name__ == "__main__":
    main()
