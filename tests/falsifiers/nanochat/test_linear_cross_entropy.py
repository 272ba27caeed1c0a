"""Properties of the fused loss that its claim does not test: compilation, fake tensors, shards and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from falsifiers.nanochat.oracle.head_loss import truth
from falsifiers.nanochat.reference.head_rows import RowLoss, gather_rows, row_losses, write_rows
from falsifiers.nanochat.reference.linear_cross_entropy import linear_cross_entropy, rows_per_chunk
from falsifiers.nanochat.reference.vocabulary_shards import (
    _joined,
    data_parallel_linear_cross_entropy,
    sharded_linear_cross_entropy,
)
from falsifiers.nanochat.subject import Question
from falsifiers.param_decomp.ranks import run_of_ranks

IGNORED = -100


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states [9, 8], a head [21, 8] and targets, one of them ignored."""
    generator = torch.Generator().manual_seed(3)
    hidden, weight = (torch.randn(rows, 8, generator=generator, dtype=torch.float64) for rows in (9, 21))
    targets = torch.randint(21, (9,), generator=generator)
    targets[2] = IGNORED
    return hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), targets


@pytest.fixture
def _alone() -> Iterator[None]:
    """A process group of this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_graph_is_compiled_as_a_whole() -> None:
    """Loss and gradients equal those of eager mode."""
    hidden, weight, targets = inputs(torch.float64)

    def step(*tensors: Tensor) -> Tensor:
        return 2.0 * linear_cross_entropy(*tensors, chunk_rows=4)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(step(hidden, weight, targets), (hidden, weight))
    got = torch.autograd.grad(compiled(hidden, weight, targets), (hidden, weight))
    assert all(map(torch.equal, expected, got))


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize(
    "spread",
    [lambda targets: torch.stack([targets, targets + 1], 1)[:, 0], lambda targets: targets[4].expand(9)],
    ids=["a column", "one label for all"],
)
def test_labels_with_a_stride(spread: Callable[[Tensor], Tensor], reduction: str) -> None:
    """The memory between two labels is not read."""
    hidden, weight, targets = inputs()
    strided = spread(targets)
    assert not strided.is_contiguous()
    expected = linear_cross_entropy(hidden, weight, strided.contiguous(), reduction=reduction)
    assert torch.equal(linear_cross_entropy(hidden, weight, strided, reduction=reduction), expected)
    assert torch.isfinite(expected).all()


def test_fake_tensors_go_through_it() -> None:
    """Nothing is computed. A head that is too large for memory has a gradient of its shape."""
    with FakeTensorMode():
        hidden = torch.empty(1 << 16, 1 << 13, dtype=torch.bfloat16, requires_grad=True)
        weight = torch.empty(1 << 20, 1 << 13, dtype=torch.bfloat16, requires_grad=True)
        linear_cross_entropy(hidden, weight, torch.zeros(1 << 16, dtype=torch.int64)).backward()
        assert weight.grad is not None
        assert weight.grad.shape == weight.shape


def test_a_second_backward_pass_is_refused() -> None:
    """The first pass gives the gradients away."""
    hidden, weight, targets = inputs()
    loss = linear_cross_entropy(hidden, weight, targets)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()


def test_only_wanted_gradients_are_made() -> None:
    """A frozen head has no gradient. If nothing needs a gradient, no graph remains."""
    hidden, weight, targets = inputs()
    linear_cross_entropy(hidden, weight.detach(), targets).backward()
    assert hidden.grad is not None
    with torch.no_grad():
        assert not linear_cross_entropy(hidden, weight, targets).requires_grad


def test_a_target_outside_the_vocabulary_is_no_number() -> None:
    """The loss is NaN, and neither the interpreter nor a GPU reads beyond the row."""
    hidden, weight, targets = inputs()
    assert linear_cross_entropy(hidden, weight, targets + 21).isnan()


@pytest.mark.parametrize(
    "wrong", [{"reduction": "max"}, {"label_smoothing": 1.5}, {"softcap": -1.0}, {"z_loss": -1.0}, {"chunk_rows": -1}]
)
def test_wrong_options_are_refused(wrong: dict[str, object]) -> None:
    """The refusal comes before any computation."""
    with pytest.raises(ValueError, match=r"reduction|label_smoothing"):
        linear_cross_entropy(*inputs(), **wrong)  # type: ignore[arg-type]


def test_shapes_and_dtypes_that_do_not_belong_together_are_refused() -> None:
    """The refusal comes before any computation."""
    hidden, weight, targets = inputs()
    for arguments in (
        (hidden[:3], weight, targets),
        (hidden, weight.double(), targets),
        (hidden, weight, targets.int()),
    ):
        with pytest.raises(ValueError, match="targets"):
            linear_cross_entropy(*arguments)


def test_chunks_are_whole_tiles_within_their_memory() -> None:
    """If there are few rows, there is one chunk."""
    assert rows_per_chunk(8192, 65536, 1280, 2) % 128 == 0
    assert rows_per_chunk(65536, 65536, 1280, 2) * 65536 * 2 <= 256 << 20
    assert rows_per_chunk(5, 300, 4096, 2) == 5


def test_statistics_of_shards_make_those_of_the_whole() -> None:
    """For two shards of unequal size, losses and gradients are those of the whole row."""
    of = RowLoss(label_smoothing=0.1, z_loss=1e-3, softcap=5.0)
    hidden, weight, targets = inputs()
    logits = (hidden @ weight.T).detach()
    scales = torch.linspace(0.5, 2.0, 9)
    whole = logits.clone()
    losses = row_losses(whole, targets, scales, of, write=True)
    shards = [logits[:, :8].contiguous(), logits[:, 8:].contiguous()]
    gathered = _joined(
        torch.stack([gather_rows(shard, targets, at, 21, of) for shard, at in zip(shards, (0, 8), strict=True)])
    )
    for shard, first in zip(shards, (0, 8), strict=True):
        torch.testing.assert_close(write_rows(shard, targets, scales, gathered, first, 21, of), losses)
    torch.testing.assert_close(torch.cat(shards, dim=1), whole)


@pytest.mark.usefixtures("_alone")
def test_one_shard_is_the_whole() -> None:
    """The exchange does not change the loss and the gradients of a single process."""
    hidden, weight, targets = inputs()
    group = dist.group.WORLD
    assert group is not None
    loss = sharded_linear_cross_entropy(hidden, weight, targets, group, chunk_rows=4)
    expected = linear_cross_entropy(hidden, weight, targets, chunk_rows=4)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        torch.autograd.grad(loss, (hidden, weight)), torch.autograd.grad(expected, (hidden, weight))
    )


@pytest.mark.parametrize("loss", [sharded_linear_cross_entropy, data_parallel_linear_cross_entropy])
def test_shards_of_two_processes_are_the_whole(loss: Callable[..., Tensor], tmp_path: Path) -> None:
    """Two processes over gloo, with shards of unequal size, have loss and gradients of whole logits in float64."""
    of = RowLoss(label_smoothing=0.1, z_loss=0.01, softcap=5.0)
    hidden, weight, targets = (tensor.detach() for tensor in inputs())
    hidden, targets = hidden[:8], targets[:8]
    above = torch.tensor(-3.0)
    right = truth(Question(hidden, weight, targets, IGNORED, 0.1, 0.01, 5.0, "mean", True, above))

    def work(device: str) -> tuple[Tensor, ...]:
        rank = dist.get_rank()
        rows = slice(None) if loss is sharded_linear_cross_entropy else slice(4 * rank, 4 * rank + 4)
        shard = weight[:8] if rank == 0 else weight[8:]
        leaves = hidden[rows].clone().requires_grad_(), shard.clone().requires_grad_()
        value = loss(leaves[0], leaves[1], targets[rows], dist.group.WORLD, of=of, chunk_rows=3)
        return value.detach(), *torch.autograd.grad(value, leaves, above)

    for rank, got in enumerate(run_of_ranks(2, work, "cpu", tmp_path)):
        rows = slice(None) if loss is sharded_linear_cross_entropy else slice(4 * rank, 4 * rank + 4)
        parts = right.grad_weight[:8] if rank == 0 else right.grad_weight[8:]
        for actual, other in zip(got, (right.loss, right.grad_hidden[rows], parts), strict=True):
            torch.testing.assert_close(actual, other.float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("ignored", "scale", "options"),
    [
        (0, 1.0, {}),
        (10, 1.0, {"label_smoothing": 0.1, "z_loss": 0.01}),
        (10, 20.0, {"label_smoothing": 1.0, "reduction": "none"}),
        (20, 1.0, {"reduction": "sum", "softcap": 5.0, "accumulate_float32": True}),
        (50, 1.0, {}),
        (20, 20.0, {"z_loss": 0.01}),  # losses up to 200, which no exponential in float32 can have
        (20, 20.0, {"reduction": "none", "softcap": 15.0}),
    ],
)
def test_exponentials_make_the_losses_and_gradients_of_logits(
    ignored: int, scale: float, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU of sm_90 computes this way: without ignored rows, with the inner sum in parts."""
    generator = torch.Generator().manual_seed(5)
    hidden, weight = (torch.randn(rows, 24, generator=generator) for rows in (50, 71))
    hidden *= scale
    targets = torch.randint(71, (50,), generator=generator)
    targets[torch.randperm(50, generator=generator)[:ignored]] = IGNORED

    def answer(dtype: torch.dtype) -> tuple[Tensor, ...]:
        inputs = (hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_())
        loss = linear_cross_entropy(*inputs, targets, chunk_rows=32, **options)
        above = torch.linspace(-1.0, 1.0, 50, dtype=dtype) if loss.ndim else torch.tensor(0.5, dtype=dtype)
        return loss.detach(), *torch.autograd.grad(loss, inputs, above)

    expected = answer(torch.float64)
    monkeypatch.setattr("falsifiers.nanochat.reference.linear_cross_entropy.fits", lambda *arguments: True)
    for got, right in zip(answer(torch.float32), expected, strict=True):
        assert (got - right).abs().max() <= 1e-5 * right.abs().max()


def test_exponentials_of_a_target_outside_the_vocabulary_are_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is NaN, as in the path with logits."""
    monkeypatch.setattr("falsifiers.nanochat.reference.linear_cross_entropy.fits", lambda *arguments: True)
    hidden, weight, targets = torch.ones(3, 8), torch.ones(24, 8), torch.tensor([1, 24, IGNORED])
    losses = linear_cross_entropy(hidden, weight, targets, reduction="none")
    assert losses.isnan().tolist() == [False, True, False]
