"""Runs steps with a varying batch in a process of its own, and prints the statistics of torch's allocator.

python -m falsifiers.nanochat.alternating_steps '{}' '[1024, 4096]'
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch

_WIDTH, _LAYERS = 2048, 4


def steps(rows: Sequence[int]) -> dict[str, Any]:
    """Run a step for each number of rows. Return the losses, and the peaks of allocated and reserved bytes."""
    generator = torch.Generator("cuda").manual_seed(0)
    losses, reserved = [], 0
    for count in rows:
        values = torch.randn(count, _WIDTH, device="cuda", generator=generator)
        weights = [
            torch.randn(_WIDTH, _WIDTH, device="cuda", generator=generator).div_(_WIDTH**0.5).requires_grad_()
            for _ in range(_LAYERS)
        ]
        for weight in weights:
            values = torch.relu(values @ weight)
        loss = values.square().mean()
        loss.backward()
        losses.append(float(loss.detach()))
        reserved = max(reserved, torch.cuda.memory_reserved())
    return {"losses": losses, "reserved": reserved, "allocated": torch.cuda.max_memory_allocated()}


def main(late: str, rows: str) -> None:
    """Set the variables of `late` after the first tensor, run the steps, and print the results as JSON."""
    first = torch.zeros(1 << 20, device="cuda")
    os.environ.update(json.loads(late))
    results = steps(json.loads(rows))
    snapshot = torch.cuda.memory._snapshot()
    results["expandable"] = bool(snapshot["allocator_settings"].get("expandable_segments"))
    results["segments_expandable"] = any(bool(segment.get("is_expandable")) for segment in snapshot["segments"])
    print(json.dumps({**results, "device": first.device.type}))


if __name__ == "__main__":
    main(*sys.argv[1:])
