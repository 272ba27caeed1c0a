"""Writes what each optimizer step starts from and leaves, for claims that compute steps a second time.

    dump = StepDump(model, optimizer, "runs/1/steps")      # before the first step; the loop stays as it is

It hangs on torch's hooks, so it works in a loop of your own and within Lightning, accelerate and transformers. Copy it
beside your trainer: it needs torch and safetensors alone. Each step is one file of safetensors:

    before/weight/NAME     after/weight/NAME       the trained parameters
    before/SLOT/NAME       after/SLOT/NAME         the optimizer's: exp_avg, exp_avg_sq, step
    gradient/NAME                                  as the optimizer takes it: accumulated and clipped
    input/tokens           input/labels            int64 [rows, tokens] of all micro-batches; label i is the token that
                                                   position i predicts, and -100 counts for nothing

Its metadata are `step`, from 1, and `learning_rate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file


class StepDump:
    """Dumps every step of an optimizer."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: str, made: int = 0) -> None:
        """Args:
        made: how many steps were made before, of a run that was resumed.
        """
        self.folder, self.made = Path(folder), made
        self.folder.mkdir(parents=True, exist_ok=True)
        self.names = {weight: name for name, weight in model.named_parameters() if weight.requires_grad}
        self.batches: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.tensors: dict[str, torch.Tensor] = {}
        model.register_forward_pre_hook(self._sees, with_kwargs=True)
        optimizer.register_step_pre_hook(self._begins)
        optimizer.register_step_post_hook(self._ends)

    def batch(self, tokens: torch.Tensor, labels: torch.Tensor) -> None:
        """Take a micro-batch, for a model that is not called with `input_ids` and `labels`."""
        self.batches.append((tokens.detach().cpu(), labels.detach().cpu()))

    def _sees(self, model: Any, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled() and kwargs.get("labels") is not None:  # which transformers' models shift
            self.batch(kwargs["input_ids"][:, :-1], kwargs["labels"][:, 1:])

    def _state(self, when: str, optimizer: Any) -> None:
        for weight, name in self.names.items():
            self.tensors[f"{when}/weight/{name}"] = _copied(weight)
            for slot, value in optimizer.state.get(weight, {}).items():
                self.tensors[f"{when}/{slot}/{name}"] = _copied(torch.as_tensor(value))

    def _begins(self, optimizer: Any, *_: Any) -> None:
        self.rate = optimizer.param_groups[0]["lr"]
        self._state("before", optimizer)

    def _ends(self, optimizer: Any, *_: Any) -> None:
        for weight, name in self.names.items():  # Lightning computes them within the step
            if weight.grad is not None:
                self.tensors[f"gradient/{name}"] = _copied(weight.grad)
        self._state("after", optimizer)
        for number, part in enumerate(("tokens", "labels")):
            if self.batches:
                self.tensors[f"input/{part}"] = torch.cat([batch[number] for batch in self.batches]).contiguous()
        self.made += 1
        told = {"step": str(self.made), "learning_rate": repr(float(self.rate))}
        save_file(self.tensors, self.folder / f"step-{self.made:06}.safetensors", metadata=told)
        self.batches, self.tensors = [], {}


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().clone().contiguous()
