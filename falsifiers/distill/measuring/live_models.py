"""Evaluates the live models of a Trainer whose architectures are not the claim's, without code of the subject.

Their weights are copied into models that transformers builds from the same configurations, because a model's own
forward pass is not trusted. The text is the Trainer's `eval_dataset`, because its tokenizer is not the claim's.
"""

import hashlib
import itertools
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer

from falsifiers.distill.measuring.held_out import HeldOut
from falsifiers.distill.measuring.named_models import built
from falsifiers.distill.running.trainer_building import restored_chance
from falsifiers.distill.running.trainer_watch import inputs_and_labels
from harness import NotObserved, Setting, Unobserved


class LiveModels:
    """Models of a Trainer, as transformers computes them.

    Attributes:
        held_out: batches of the Trainer's `eval_dataset`.
    """

    def __init__(self, setting: Setting, trainer: Trainer, *models: nn.Module) -> None:
        """Build each model once.

        Raises:
            NotObserved: transformers does not know a model's configuration, or builds other weights from it; or there
                is no text.
        """
        self.held_out = _held_out(setting, trainer)
        self._theirs = {model: _built(setting, model) for model in models}
        self._vocabulary = min(model.get_output_embeddings().out_features for model in self._theirs.values())
        if (size := 1 + max(int(inputs.max()) for inputs, _ in self.held_out.batches)) > self._vocabulary:
            raise NotObserved(f"the eval_dataset has {size} tokens or more, and a model knows {self._vocabulary}")

    @torch.no_grad()
    def answer(self, model: nn.Module, tokens: Tensor) -> Tensor:
        """The logits [batch, sequence, vocabulary] of a live model's weights, in float32."""
        live, weights = self._theirs[model], dict(model.named_parameters())
        for name, weight in live.named_parameters():
            weight.copy_(weights[name])
        logits: Tensor = live(input_ids=tokens, use_cache=False).logits
        return logits[..., : self._vocabulary]


def _built(setting: Setting, model: nn.Module) -> Any:
    """transformers' own model of the same configuration."""
    config = getattr(model, "config", None)
    if not hasattr(config, "save_pretrained"):
        raise NotObserved(f"{type(model).__name__} has no configuration that transformers knows")
    with tempfile.TemporaryDirectory(dir=setting.workspace) as folder, torch.no_grad():
        config.save_pretrained(folder)
        weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
        try:
            rebuilt = built(Path(folder), "", weights, setting)
        except NotObserved as error:
            raise NotObserved(f"transformers builds no model of these weights from {type(config).__name__}") from error
    if not type(rebuilt).__module__.startswith("transformers."):
        raise NotObserved(f"{type(rebuilt).__name__} is the subject's own class")
    return rebuilt


def _held_out(setting: Setting, trainer: Trainer) -> HeldOut:
    """The first batches of the Trainer's `eval_dataset`; the blind guess uses their token frequencies."""
    if trainer.eval_dataset is None:
        raise NotObserved("the Trainer has no eval_dataset, on whose text its models could be evaluated")
    with restored_chance():
        samples = list(itertools.islice(trainer.get_eval_dataloader(), setting.parameters["held_out_batches"]))
    batches = [inputs_and_labels([sample]) for sample in samples]
    for batch in batches:
        if isinstance(batch, Unobserved):
            batch.reveal()
    if not batches:
        raise NotObserved("the Trainer's eval_dataset is empty")
    labels = torch.cat([labels.flatten() for _, labels in batches])
    counts = torch.bincount(labels).double()
    blind = (counts / counts.sum()).log()[labels]
    digest = hashlib.sha256(b"".join(inputs.numpy().tobytes() for inputs, _ in batches)).hexdigest()
    placed = tuple((inputs.to(setting.device), wanted.to(setting.device)) for inputs, wanted in batches)
    return HeldOut(placed, -blind.mean().item(), digest)
