"""A plain loop of PyTorch on the GPU, as an engine for F-BLACKWELL-PTX-001."""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
steps = parser.parse_args().steps
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
inputs, wanted = torch.randn(512, 64).cuda(), torch.randn(512, 8).cuda()
for step in range(1, steps + 1):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), wanted)
    loss.backward()
    optimizer.step()
    print(f"step {step}/{steps} loss {loss.item():.6f}", flush=True)
