"""The files of a `transformers.Trainer`: folders `checkpoint-N`, and the folder of an export."""

import contextlib
import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer
from transformers.trainer_utils import get_last_checkpoint

from falsifiers.distill.measuring.weight_files import Unreadable, read_safetensors
from harness import NotObserved, Unobserved

_CHECKPOINT = re.compile(r"checkpoint-([0-9]+)")


def newest_checkpoint(directory: Path) -> Path | None:
    """The checkpoint from which `resume_from_checkpoint=True` resumes; None if there is none."""
    newest = get_last_checkpoint(str(directory)) if directory.is_dir() else None
    return None if newest is None else Path(newest)


class TrainerFiles:
    """A Trainer's checkpoints and export. See `WeightFiles`."""

    no_metadata: Mapping[str, str] = Unobserved("the export says nothing about itself")  # type: ignore[assignment]

    def __init__(
        self,
        trainer: Callable[[], Trainer],
        is_built: Callable[[], bool] = lambda: True,
        in_memory: Callable[[], bool] = lambda: True,
    ) -> None:
        """Args:
        trainer: returns the Trainer, and may build it.
        is_built: whether it has been built. A search for checkpoints must not build it, because that may start
            CUDA.
        in_memory: see `WeightFiles`.
        """
        self._trainer = trainer
        self._is_built = is_built
        self._in_memory = in_memory

    @property
    def in_memory(self) -> bool:
        return self._in_memory()

    def read_export(self, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        if not path.exists() and (path.parent / "adapter_model.safetensors").exists():
            raise NotObserved("the export is an adapter of PEFT, and not a whole model")
        tensors, metadata = read_safetensors(path)
        left_out = self._left_out()
        return {name: tensor for name, tensor in tensors.items() if name not in left_out}, metadata

    def read_checkpoint(self, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The weights, and the slots of the optimizer if there are any. An export has none."""
        if path.is_file():
            return self.read_export(path)
        tensors, metadata = self.read_export(path / "model.safetensors")
        return tensors | _slots(path / "optimizer.pt"), metadata

    def name(self, step: int) -> str:
        return f"checkpoint-{step}"

    def checkpoints(self, directory: Path) -> dict[Path, str]:
        """The checkpoints. The one that a Trainer always makes at its end is not periodic and is left out."""
        if not directory.is_dir():
            return {}
        by_path = {path: path.name for path in directory.iterdir() if path.name.startswith("checkpoint")}
        return {path: name for path, name in by_path.items() if self._is_called_periodic(name)}

    def is_periodic(self, step: int) -> bool:
        """Whether a checkpoint of this step is one of those made every `save_steps`."""
        if not self._is_built():
            return True
        state = self._trainer().state
        return step != state.global_step or step < state.max_steps or step % (state.save_steps or 1) == 0

    def _is_called_periodic(self, name: str) -> bool:
        match = _CHECKPOINT.fullmatch(name)
        return match is None or self.is_periodic(int(match[1]))

    def _left_out(self) -> set[str]:
        """The names of tensors in a file that are no parameters: buffers, and other names of tied parameters."""
        model = self._trainer().model
        once = {name for name, _ in model.named_parameters()}
        every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        return {name for name, _ in model.named_buffers()} | (every - once)


def _slots(path: Path) -> dict[str, Tensor]:
    """The tensors of the optimizer's state; empty if there is no file. Raises Unreadable."""
    try:
        state: Mapping[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        return {}
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise Unreadable(f"{path}: {error}") from error
    tensors: dict[str, Tensor] = {}
    with contextlib.suppress(KeyError, AttributeError):
        for number, slots in state["state"].items():
            tensors |= {
                f"optimizer.{number}.{slot}": tensor for slot, tensor in slots.items() if isinstance(tensor, Tensor)
            }
    return tensors
