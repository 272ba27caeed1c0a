"""How the reference writes checkpoints and the final export."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

__all__ = ["checkpoint_path", "save_weights"]


def checkpoint_path(directory: Path, step: int) -> Path:
    """Where the checkpoint after `step` belongs; at least six digits, so that names sort up to step 999,999."""
    return directory / f"ckpt-step-{step:06}.safetensors"


def save_weights(weights: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str]) -> Path:
    """Write tensors and string metadata as safetensors, making the directory first, beside the place and renamed.

    Raises:
        OSError: the directory cannot be made or written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.part")
    save_file({name: tensor.detach().contiguous() for name, tensor in weights.items()}, beside, dict(metadata))
    return beside.replace(path)
