"""A plain loop of PyTorch on the GPU, as an engine for the claims of docs/blackwell.md."""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--tf32", action="store_true")
asked = parser.parse_args()
steps = asked.steps
asked.out.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = asked.tf32
last = torch.nn.Linear(256, 8, bias=False)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), last).cuda()
product = {}
last.register_forward_hook(lambda _, inputs, output: product.update(x=inputs[0], output=output))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
inputs, wanted = torch.randn(512, 64).cuda(), torch.randn(512, 8).cuda()
for step in range(1, steps + 1):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), wanted)
    if step == 3:  # the warm-up is over
        product["x"].retain_grad()
        product["output"].retain_grad()
        product["weight"] = last.weight.detach().clone()
        torch.cuda.profiler.start()
    loss.backward()
    if step == 3:
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        x, output = product["x"], product["output"]
        found = {"x": x, "output": output, "grad_x": x.grad, "grad_output": output.grad}
        turned = {"weight": product["weight"], "grad_weight": last.weight.grad}  # output = x @ weight
        found = {name: tensor.detach().cpu() for name, tensor in found.items()}
        found |= {name: tensor.cpu().T.contiguous() for name, tensor in turned.items()}
        save_file(found, asked.out / "product-last.safetensors")
    optimizer.step()
    print(f"step {step}/{steps} loss {loss.item():.6f}", flush=True)
