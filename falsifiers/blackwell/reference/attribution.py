"""The subject of F-BLACKWELL-ROOTCAUSE-001: a ledger of a device's bytes by owner, and the owner it blames."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from falsifiers.blackwell.reference.block import Block
from falsifiers.blackwell.reference.shapes import SHAPES, BlockShape
from falsifiers.blackwell.reference.torch_backend import TorchBackend
from falsifiers.blackwell.subjects.root_cause import (
    STEP_RATE,
    DeviceMemory,
    Load,
    OutOfDeviceMemory,
    Owner,
    Report,
    Trained,
    step_input,
)
from harness import Setting

_GAIN = 1.6
"""Standard deviation of what a projection makes of a normed input: wide enough for gates beyond 4."""
_TENSORS = (Owner.WEIGHTS, Owner.OPTIMIZER, Owner.ACTIVATIONS, Owner.SCORES)


class Ledger:
    """Bytes by owner, counted at every request. A refused request is kept in `wanted`."""

    def __init__(self, memory: DeviceMemory) -> None:
        """Count bytes in use outside of the allocator as context; those added later count as modules."""
        self.memory = memory
        self._tensors = dict.fromkeys(_TENSORS, 0)
        self._context = memory.used() - memory.reserved()
        self.wanted: dict[Owner, int] = {}
        self.held: list[Tensor] = []
        """All tensors that were handed out, including those of an interrupted block."""

    @contextmanager
    def account(self, owner: Owner) -> Iterator[None]:
        """Book what the allocator hands out inside this block to `owner`."""
        before = self.memory.allocated()
        try:
            yield
        finally:
            self._tensors[owner] += self.memory.allocated() - before

    def tensor(self, owner: Owner, *shape: int) -> Tensor:
        """A float32 tensor, booked to `owner`."""
        with self.account(owner):
            try:
                self.held.append(self.memory.tensor(shape))
            except OutOfDeviceMemory:
                self.wanted[owner] = 4 * torch.Size(shape).numel()
                raise
        return self.held[-1]

    def module(self, size: int) -> None:
        """Load a module, or record that it was refused."""
        try:
            self.memory.load_module(size)
        except OutOfDeviceMemory:
            self.wanted[Owner.MODULES] = size
            raise

    def accounts(self) -> dict[Owner, int]:
        """Bytes by owner now. Their sum is the driver's figure for bytes in use."""
        used, reserved, allocated = self.memory.used(), self.memory.reserved(), self.memory.allocated()
        return {
            **self._tensors,
            Owner.MODULES: used - reserved - self._context,
            Owner.SLACK: reserved - allocated,
            Owner.CONTEXT: self._context,
            Owner.UNKNOWN: allocated - sum(self._tensors.values()),
        }


class LedgerAttribution:
    """Puts a load on the device with a ledger, and blames the owner of most bytes, with its refused request."""

    def __init__(self, setting: Setting) -> None:
        self._held: list[Tensor] = []
        self._last: dict[str, Trained] = {}

    def put(self, load: Load, memory: DeviceMemory) -> Report:
        self._held, self._last = [], {}
        memory.clear()
        ledger = Ledger(memory)
        self._held = ledger.held
        shape = SHAPES[load.model]
        blocks, ran_out = 0, False
        try:
            for _ in range(load.modules):
                ledger.module(load.module_bytes)
            for _ in range(load.blocks):
                block = self.upload(shape, load.sequence, ledger)
                blocks += 1
                self.step(shape, block, step_input(load, shape.hidden, block["scores"].device))
                self._last = {
                    name: Trained(block[name], block[f"mean of {name}"], block[f"square of {name}"])
                    for name in shape.parameters()
                }
        except (OutOfDeviceMemory, torch.OutOfMemoryError):
            ran_out = True
        accounts = ledger.accounts()
        return Report(blocks, ran_out, accounts, self.blame(accounts, ledger.wanted) if ran_out else None)

    def last_block(self) -> Mapping[str, Trained]:
        return self._last

    def upload(self, shape: BlockShape, sequence: int, ledger: Ledger) -> dict[str, Tensor]:
        """A block's weights, the two moments of each for AdamW, kept activations and score workspace."""
        weights = {name: ledger.tensor(Owner.WEIGHTS, *size) for name, size in shape.parameters().items()}
        moments = {
            f"{moment} of {name}": ledger.tensor(Owner.OPTIMIZER, *size)
            for name, size in shape.parameters().items()
            for moment in ("mean", "square")
        }
        kept = {
            f"kept {index}": ledger.tensor(Owner.ACTIVATIONS, sequence, width)
            for index, width in enumerate(kept_widths(shape))
        }
        scores = {"scores": ledger.tensor(Owner.SCORES, shape.heads, sequence, sequence)}
        return {**weights, **moments, **kept, **scores}

    def step(self, shape: BlockShape, block: Mapping[str, Tensor], x: Tensor) -> None:
        """A forward, a backward and an update of the weights. Their temporary memory becomes slack."""
        weights = {name: block[name] for name in shape.parameters()}
        for name, weight in weights.items():
            weight.fill_(1.0) if name.endswith("norm") else weight.normal_(0.0, _GAIN * weight.shape[-1] ** -0.5)
        run = Block(shape, TorchBackend())
        _, gradients = run.backward(run.forward(x, weights)[1], weights, x)
        for name, gradient in gradients.items():
            weights[name].sub_(gradient, alpha=STEP_RATE)
            block[f"mean of {name}"].copy_(gradient)
            block[f"square of {name}"].copy_(gradient.square())

    def blame(self, accounts: Mapping[Owner, int], refused: Mapping[Owner, int]) -> Owner:
        """The owner of most bytes, including its refused request."""
        return max(accounts, key=lambda owner: accounts[owner] + refused.get(owner, 0))


def kept_widths(shape: BlockShape) -> list[int]:
    """Features of the tensors [sequence, features] that a block keeps: those of `Saved` but the probabilities."""
    kv = shape.kv_heads * shape.head_dim
    return [*[shape.hidden] * 6, kv, kv, *[shape.intermediate] * 3]
