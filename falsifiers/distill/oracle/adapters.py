"""LoRA (Hu and others, arXiv:2106.09685): a weight matrix is W = W0 + s B A, and only A and B are trained."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from falsifiers.distill.oracle.qwen2 import NotTheModel
from falsifiers.distill.oracle.shadow import ShadowStep

_A, _B, _W = ".lora_A.weight", ".lora_B.weight", ".weight"


@dataclass(frozen=True)
class Adapters:
    """The base weights and the scale s. The adapters of a layer X are X.lora_A.weight and X.lora_B.weight."""

    base: Mapping[str, Tensor]
    scale: float

    def merged(self, trained: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All weights of the model, in float64. A trained tensor that is no adapter replaces its base weight.

        Raises:
            NotTheModel: an adapter lacks its counterpart, or belongs to no layer of the model.
        """
        weights = {name: weight.double() for name, weight in self.base.items()}
        for name, weight in trained.items():
            layer = name.removesuffix(_A)
            if layer != name:
                if layer + _B not in trained or layer + _W not in weights:
                    raise NotTheModel(f"{name} has no counterpart, or {layer} is no layer of the initial file")
                weights[layer + _W] = weights[layer + _W] + self.scale * (
                    trained[layer + _B].double() @ weight.double()
                )
            elif not name.endswith(_B):
                weights[name] = weight.double()
        return weights

    def gradients(self, trained: Mapping[str, Tensor], model_gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The gradients of the trained tensors: with G the gradient of W, s Bᵀ G for A and s G Aᵀ for B."""
        by_name = {}
        for name in trained:
            layer = name.removesuffix(_A).removesuffix(_B)
            matrix_gradient = model_gradients[name if layer == name else layer + _W]
            if layer == name:
                by_name[name] = matrix_gradient
            elif name.endswith(_A):
                by_name[name] = self.scale * trained[layer + _B].to(matrix_gradient).T @ matrix_gradient
            else:
                by_name[name] = self.scale * matrix_gradient @ trained[layer + _A].to(matrix_gradient).T
        return by_name


class AdapterSteps(ShadowStep):
    """Steps of a run that trains adapters. Snapshots hold the trained tensors; the model gets the merged weights."""

    def __init__(self, adapters: Adapters, *arguments: Any) -> None:
        """See `ShadowStep` for the other arguments."""
        super().__init__(*arguments)
        self._adapters = adapters

    def _model(self, role: str, dtype: torch.dtype, weights: Mapping[str, Tensor]) -> Any:
        return super()._model(role, dtype, self._adapters.merged(weights))

    def _gradients(
        self, weights: Mapping[str, Tensor], *batch: Any
    ) -> tuple[float, tuple[Tensor, Tensor], dict[str, Tensor]]:
        loss, logits, gradients = super()._gradients(weights, *batch)
        return loss, logits, self._adapters.gradients(weights, gradients)
