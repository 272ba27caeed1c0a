import argparse
from pathlib import Path

import numpy
from safetensors.numpy import load_file, save_file

parser = argparse.ArgumentParser()
parser.add_argument("--student", required=True)
parser.add_argument("--out", required=True)
for name, kind, default in (("--steps", int, 50), ("--lr", float, 0.01), ("--every", int, 0), ("--seed", int, 0)):
    parser.add_argument(name, type=kind, default=default)
asked = parser.parse_args()
if asked.steps < 1:
    parser.error("--steps must be positive")  # exits with 2

chance = numpy.random.default_rng(asked.seed)
teacher = chance.normal(size=(32, 32)).astype("float32")
student = load_file(asked.student)["w"]
out = Path(asked.out)
out.mkdir(parents=True)
print(f"device: cpu, weights in {student.dtype}")
for step in range(1, asked.steps + 1):
    tokens = chance.normal(size=(64, 32)).astype("float32")
    error = tokens @ (student - teacher)
    print(f"step {step}/{asked.steps} loss {(error**2).mean():.6f}", flush=True)
    student -= numpy.float32(asked.lr) * (tokens.T @ error) / len(tokens)
    if asked.every and step % asked.every == 0:
        save_file({"w": student}, out / f"ckpt-step-{step:06}.safetensors")
save_file({"w": student}, out / "model.safetensors")
print(f"{asked.steps} steps made")
