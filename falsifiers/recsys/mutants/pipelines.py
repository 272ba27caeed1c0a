"""Training pipelines with one known defect each: what is not waited for, not kept, not up to date, or not restored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from falsifiers.recsys.reference.pipelines import Coming, Native, PipelinedRun, Pipelines, Prefetch
from falsifiers.recsys.reference.ranking_model import Here, RankingModel
from falsifiers.recsys.streams import Stream, Streams
from falsifiers.recsys.training_subject import Batch, Outcome

__all__ = [
    "CopyNotAwaited", "CopyNotKept", "DenseOnly", "FirstMomentLost", "GatherNotAwaited", "GradientsKept",
    "IdsNotAwaited", "InTurn", "KeysLost", "LastBatchLost", "PositionOff", "RefreshedEarly", "RefreshedMeanwhile",
    "RoundedCheckpoint", "RowsInTurn", "RowsNotKept", "SecondBatchDropped", "SecondBatchTwice", "SecondMomentLost",
    "StaleRows", "StepLost", "StepNotSaved", "StepsFused", "Swapped", "UpdateNotAwaited",
]  # fmt: skip


class _CopyNotAwaited(Native):
    def wait_for(self, coming: Coming) -> None:
        self.keep(coming, self.compute)


class CopyNotAwaited(Pipelines):
    """A step does not wait for the copy of its batch."""

    native = _CopyNotAwaited


class _GatherNotAwaited(Prefetch):
    def wait_for(self, coming: Coming) -> None:
        self.compute.wait(coming.copied)
        self.keep(coming, self.compute)

    def refresh(self, following: Coming, here: Coming) -> None:
        self.compute.run(self.model.refresh, following.here, here.here)


class GatherNotAwaited(Pipelines):
    """A step does not wait for the rows that are gathered for it."""

    prefetch = _GatherNotAwaited


class _IdsNotAwaited(Prefetch):
    def prefetch(self, coming: Coming) -> None:
        self.gathers.wait(self.updated)
        self.keep(coming, self.gathers)
        self.gather(coming, self.gathers)


class IdsNotAwaited(Pipelines):
    """Rows are gathered without waiting for the copy of their ids."""

    prefetch = _IdsNotAwaited


class _UpdateNotAwaited(Prefetch):
    def prefetch(self, coming: Coming) -> None:
        self.gathers.wait(coming.copied)
        self.keep(coming, self.gathers)
        self.gather(coming, self.gathers)


class UpdateNotAwaited(Pipelines):
    """Rows are gathered without waiting for the update of the step before the last."""

    prefetch = _UpdateNotAwaited


class _StaleRows(Prefetch):
    def refresh(self, following: Coming, here: Coming) -> None:
        pass


class StaleRows(Pipelines):
    """Rows that were gathered before the last update are used as they are."""

    prefetch = _StaleRows


class _RefreshedEarly(Prefetch):
    def step(self, coming: Coming, outcomes: list[Outcome]) -> None:
        for following in self.following:
            super().refresh(following, coming)
        super().step(coming, outcomes)

    def prefetch(self, coming: Coming) -> None:
        super().prefetch(coming)
        self.following = [coming]

    def refresh(self, following: Coming, here: Coming) -> None:
        pass


class RefreshedEarly(Pipelines):
    """Rows are replaced before the update, not behind it."""

    prefetch = _RefreshedEarly


class _RefreshedMeanwhile(Prefetch):
    def refresh(self, following: Coming, here: Coming) -> None:
        self.compute.run(self.model.refresh, following.here, here.here)


class RefreshedMeanwhile(Pipelines):
    """Rows are replaced behind the update, but perhaps while they are still being gathered."""

    prefetch = _RefreshedMeanwhile


class _CopyNotKept(Native):
    def keep(self, coming: Coming, stream: Stream) -> None:
        pass


class CopyNotKept(Pipelines):
    """Memory of a batch goes to a later batch while the step still reads it: no record_stream."""

    native = _CopyNotKept


class _RowsNotKept(Prefetch):
    def keep(self, coming: Coming, stream: Stream) -> None:
        for name, tensor in coming.here.items():
            if name not in ("rows", "slot", "unique"):
                stream.keep(tensor)


class RowsNotKept(Pipelines):
    """Memory of gathered rows goes to those of a later batch while the step still uses it."""

    prefetch = _RowsNotKept


class _InTurn(Native):
    def __init__(self, model: RankingModel, streams: Streams) -> None:
        super().__init__(model, streams)
        self.copies = self.compute


class InTurn(Pipelines):
    """Copies are in the stream of steps, so nothing overlaps."""

    native = _InTurn


class RowsInTurn(Pipelines):
    """Prefetching only copies ahead; rows are gathered in the stream of steps."""

    prefetch = Native


class _Reordered(Prefetch):
    order: Sequence[int] = ()

    def train(self, batches: Sequence[Batch], outcomes: list[Outcome]) -> None:
        super().train([*(batches[place] for place in self.order), *batches[3:]], outcomes)


class _Dropped(_Reordered):
    order = (0, 2)


class SecondBatchDropped(Pipelines):
    """The second batch is not trained on."""

    prefetch = _Dropped


class _Twice(_Reordered):
    order = (0, 1, 1, 2)


class SecondBatchTwice(Pipelines):
    """The second batch is trained on twice."""

    prefetch = _Twice


class _Swapped(_Reordered):
    order = (0, 2, 1)


class Swapped(Pipelines):
    """The second and the third batch change places."""

    prefetch = _Swapped


class _LastBatchLost(Native):
    def train(self, batches: Sequence[Batch], outcomes: list[Outcome]) -> None:
        super().train(batches[:-1], outcomes)


class LastBatchLost(Pipelines):
    """The batch that is on its way when the data ends is not trained on."""

    native = _LastBatchLost


class _StepsFused(RankingModel):
    steps = 0

    def zero_gradients(self) -> None:
        self.steps += 1
        if self.steps % 2:
            super().zero_gradients()

    def update(self, here: Here, of_rows: Tensor) -> None:
        if not self.steps % 2:
            super().update(here, of_rows)


class StepsFused(Pipelines):
    """Two updates are one; of dense weights, it has the gradients of both batches."""

    model = _StepsFused


class _GradientsKept(RankingModel):
    def zero_gradients(self) -> None:
        pass


class GradientsKept(Pipelines):
    """Gradients of dense weights are added to those of earlier batches."""

    model = _GradientsKept


class _Partial(PipelinedRun):
    """Takes only a part of a checkpoint; the rest is as in a new run."""

    def taken(self, name: str) -> bool:
        """Return whether a part is taken."""
        raise NotImplementedError

    def load(self, path: Path) -> None:
        state, new = torch.load(path, weights_only=True), self.state()
        self.model.load({name: one if self.taken(name) else new[name] for name, one in state.items()})
        self.position = int(state["position"])


class _StepLost(_Partial):
    def taken(self, name: str) -> bool:
        return name != "step"

    def load(self, path: Path) -> None:
        super().load(path)
        self.forgotten = int(torch.load(path, weights_only=True)["step"])

    def state(self) -> dict[str, Tensor]:
        state = super().state()
        return {**state, "step": state["step"] + getattr(self, "forgotten", 0)}


class StepLost(Pipelines):
    """Adam's bias correction begins anew behind a checkpoint, though the run says that it goes on."""

    run = _StepLost


class _StepNotSaved(PipelinedRun):
    def state(self) -> dict[str, Tensor]:
        state = super().state()
        del state["step"]
        return state

    def load(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        self.model.load({**state, "step": torch.tensor(0)})
        self.position = int(state["position"])


class StepNotSaved(Pipelines):
    """Adam's step is no part of the state."""

    run = _StepNotSaved


class _FirstMomentLost(_Partial):
    def taken(self, name: str) -> bool:
        return not name.startswith("exp_avg.")


class FirstMomentLost(Pipelines):
    """Adam's first moments are zero behind a checkpoint."""

    run = _FirstMomentLost


class _SecondMomentLost(_Partial):
    def taken(self, name: str) -> bool:
        return not name.startswith("exp_avg_sq.tables.")


class SecondMomentLost(Pipelines):
    """Adam's second moments of tables are zero behind a checkpoint."""

    run = _SecondMomentLost


class _DenseOnly(_Partial):
    def taken(self, name: str) -> bool:
        return not name.startswith("tables.")


class DenseOnly(Pipelines):
    """Embedding tables are not in the checkpoint."""

    run = _DenseOnly


class _KeysLost(_Partial):
    def taken(self, name: str) -> bool:
        return not name.startswith("keys.")


class KeysLost(Pipelines):
    """Dynamic tables forget which row an id has."""

    run = _KeysLost


class _PositionOff(PipelinedRun):
    def load(self, path: Path) -> None:
        super().load(path)
        self.position += 1


class PositionOff(Pipelines):
    """A checkpoint counts the batch that was on its way, and it is never trained on."""

    run = _PositionOff


class _Rounded(PipelinedRun):
    def save(self, path: Path) -> None:
        state = self.state()
        torch.save({name: one.bfloat16() if one.is_floating_point() else one for name, one in state.items()}, path)


class RoundedCheckpoint(Pipelines):
    """A checkpoint has weights and moments in bfloat16."""

    run = _Rounded
