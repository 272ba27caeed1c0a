"""Builds a `transformers.Trainer` with a function of the project, and keeps the states of the random generators."""

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Trainer

from harness import NotMeasured, Setting
from harness.contract.entry_point import resolve

_DECISIVE = frozenset(
    {"steps", "batch", "sequence", "learning_rate", "warmup_steps", "gradient_norm", "alpha", "temperature"}
    | {"checkpoint_every", "dropout", "log_every"}
)
"""Parameters that determine a run. FUNCTION must take them, unless their value is 0 or null, which turns them off."""


class BuiltTrainer:
    """A Trainer, with the states of the random generators after it was built."""

    def __init__(self, setting: Setting, directory: Path) -> None:
        name = setting.parameters["trainer"]
        try:
            function = resolve(name)
        except (ImportError, AttributeError) as error:
            raise NotMeasured(f"{name} cannot be imported: {error}") from error
        arguments = _arguments(function, name, setting, directory)
        try:
            with torch.enable_grad():  # the first use may be in an evaluation
                trainer = function(**arguments)
        except ImportError as error:
            raise NotMeasured(f"{name}: {error}; run make install, or install the extra trainers") from error
        if not isinstance(trainer, Trainer):
            raise NotMeasured(f"{name} returns {type(trainer).__name__}; a transformers.Trainer is needed")
        trainer.args.output_dir = str(directory)
        self.trainer = trainer
        self._chance = _chance()

    @contextmanager
    def as_after_building(self) -> Iterator[None]:
        """Continue with the random numbers that follow the building, whatever was drawn or built since."""
        _set_chance(self._chance)
        yield


def _arguments(function: Callable[..., Any], name: str, setting: Setting, directory: Path) -> dict[str, Any]:
    """The arguments of FUNCTION: the setting, or parameters by name.

    Raises:
        NotMeasured: it does not take a parameter that determines a run, or requires one that the claim does not have.
    """
    signature = inspect.signature(function).parameters
    own = {"setting": setting, "seed": setting.seed, "device": setting.device, "output_dir": str(directory)}
    offered = {**setting.parameters, **own}
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in signature.values())
    if not takes_all and "setting" not in signature:
        for key in sorted(_DECISIVE & setting.parameters.keys() - signature.keys()):
            if setting.parameters[key]:
                raise NotMeasured(f"{name} does not take {key!r}, which is {setting.parameters[key]}; let it do so")
    arguments = offered if takes_all else {key: value for key, value in offered.items() if key in signature}
    empty = [
        key
        for key, parameter in signature.items()
        if key not in arguments
        and parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    if empty:
        raise NotMeasured(f"{name} takes {empty[0]!r}, which this run does not set; give it a default")
    return arguments


def _chance() -> dict[str, Any]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state(), "cuda": cuda}


def _set_chance(state: Mapping[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["cpu"])
    if state["cuda"] is not None:
        torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def restored_chance() -> Iterator[None]:
    """Restore the states of the random generators at the end of the block."""
    before = _chance()
    try:
        yield
    finally:
        _set_chance(before)
