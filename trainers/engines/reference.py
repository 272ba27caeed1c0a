"""Our engine of CUDA kernels from an archive, in a process of its own: the subject of F-BLACKWELL-PTX-001."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from falsifiers.blackwell.reference.engine import Engine
from harness import Setting

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--out", type=Path, required=True)
asked = parser.parse_args()
major, minor = torch.cuda.get_device_capability()
shape = {"model": "qwen2-tiny", "targets": [10 * major + minor], "dtype": "float32", "layers": 1, "vocabulary": 64}
model = Engine(Setting(shape, "cuda:0", 0, asked.out / "work", asked.out / "cache")).start()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
tokens = torch.randint(64, (1, 9), generator=torch.Generator().manual_seed(0)).cuda()
for step in range(1, asked.steps + 1):
    optimizer.zero_grad()
    loss = model.loss(tokens)
    loss.backward()
    optimizer.step()
    print(f"step {step}/{asked.steps} loss {loss.item():.6f}", flush=True)
