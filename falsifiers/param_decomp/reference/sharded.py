"""The decomposition trainer with components, importance model and their state sharded over all ranks, for the probe.

    harness probe falsifiers.param_decomp.reference.sharded:step --ranks 64 --sweep batch=64,128,256 --device-memory 180

Components are gathered on use, and their gradients are reduced to the shards. Every rank has the target's frozen
weights and the adversary's sources.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn.utils import parametrize

from falsifiers.param_decomp.reference.adversary import Adversary
from falsifiers.param_decomp.reference.trainer import Decomposition
from harness import Setting

_STEP = 1000
"""By this step, the sources' learning rate has risen."""


def step(**parameters: Any) -> Callable[[], object]:
    """A step of the 27-site configuration; parameters are fields of the configuration, such as `batch`."""
    given = {"configuration": "nine-layers", **parameters, "storage": "meta"}
    trainer = ShardedDecomposition(Setting(given, "cuda", 0, Path(), Path()))
    return lambda: trainer.update(_STEP)


class ShardedDecomposition(Decomposition):
    """Is built without data, then gets memory for the first rank's part only."""

    def __init__(self, setting: Setting) -> None:
        """The process group must be initialized."""
        super().__init__(setting)
        self.device = torch.device(setting.device)
        mesh = init_device_mesh(self.device.type, (dist.get_world_size(),))
        for site in self.sites.values():
            for which in "VU":
                whole = getattr(site, which)
                rows, columns = whole.shape
                local = torch.empty(rows // mesh.size(), columns, device=self.device, dtype=self.dtype)
                shard = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
                setattr(site, which, nn.Parameter(shard))
                parametrize.register_parametrization(site, which, _Gathered(), unsafe=True)
        for module in self.target.modules():
            for name, weight in module._parameters.items():
                if weight is not None and weight.is_meta:
                    module._parameters[name] = nn.Parameter(
                        torch.empty_like(weight, device=self.device), requires_grad=False
                    )
        for part in (*self.importances.blocks, self.importances.output, self.importances):
            fully_shard(part, mesh=mesh)
        self.importances.to_empty(device=self.device)
        self.adversary = Adversary({name: self.first_source() for name in self.sites})
        self.component_optimizer = torch.optim.AdamW(self.components().values(), weight_decay=0.0)
        self.importance_optimizer = torch.optim.AdamW(self.importance_weights().values(), weight_decay=0.0)

    def components(self) -> Mapping[str, Tensor]:
        """V and U of each site; once sharded, only the shards."""
        return {
            f"{name}.{which}": site.parametrizations[which].original
            if parametrize.is_parametrized(site, which)
            else getattr(site, which)
            for name, site in self.sites.items()
            for which in "VU"
        }

    def average_gradients(self) -> None:
        """Average the gradients of the sources; the others are reduced during the backward pass."""
        for source in self.adversary.sources.values():
            if source.grad is not None:
                source.grad = self.averaged(source.grad)


class _Gathered(nn.Module):
    """The gathered matrix of a shard, while it is in use."""

    def forward(self, shard: DTensor) -> Tensor:
        whole = shard.redistribute(placements=[Replicate()])
        return whole.to_local(grad_placements=[Partial()])
