"""Three training pipelines: no overlap, overlapping copies, and also overlapping gathers of embedding rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from falsifiers.recsys.reference.ranking_model import Here, RankingModel
from falsifiers.recsys.streams import COMPUTE, Event, Stream, Streams
from falsifiers.recsys.training_subject import Batch, Kind, Outcome, Recipe
from harness import Setting


@dataclass
class Coming:
    """A batch in preparation.

    Attributes:
        here: its tensors, in memory of the stream that copied or gathered them.
        longest: no sequence is longer.
        copied, gathered: events of these streams.
    """

    here: Here
    longest: int
    copied: Event
    gathered: Event | None = None


class Plain:
    """Copy, gather and step, one after the other."""

    def __init__(self, model: RankingModel, streams: Streams) -> None:
        self.model, self.compute = model, streams.stream(COMPUTE)

    def train(self, batches: Sequence[Batch], outcomes: list[Outcome]) -> None:
        """Launch a step for each batch; each appends its outcome."""
        for batch in batches:
            coming = self.copy(batch, self.compute)
            self.gather(coming, self.compute)
            self.step(coming, outcomes)

    def copy(self, batch: Batch, stream: Stream) -> Coming:
        tensors = self.model.placed(batch.tensors)
        here = {name: stream.empty(tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
        stream.run(_copy, here, tensors)
        return Coming(here, batch.longest, stream.record())

    def gather(self, coming: Coming, stream: Stream) -> None:
        """Find and read the embedding rows of a batch."""
        here, tokens = coming.here, coming.here["ids"].numel()
        here |= {name: stream.empty((tokens,), torch.int64) for name in ("unique", "slot")}
        here["rows"] = stream.empty((tokens, self.model.recipe.width), self.model.table.dtype)
        stream.run(self.model.find, here)
        stream.run(self.model.gather, here)
        coming.gathered = stream.record()

    def step(self, coming: Coming, outcomes: list[Outcome]) -> None:
        self.compute.run(self.model.step, coming.here, coming.longest, outcomes)


class Native(Plain):
    """The next batch is copied while a step runs."""

    def __init__(self, model: RankingModel, streams: Streams) -> None:
        super().__init__(model, streams)
        self.copies = streams.stream("copy")

    def train(self, batches: Sequence[Batch], outcomes: list[Outcome]) -> None:
        """Launch the copy of a batch before the step of the one before it."""
        waiting = [self.copy(batch, self.copies) for batch in batches[:1]]
        for number in range(len(batches)):
            here = waiting.pop(0)
            waiting += [self.copy(batch, self.copies) for batch in batches[number + 1 : number + 2]]
            self.wait_for(here)
            self.gather(here, self.compute)
            self.step(here, outcomes)

    def wait_for(self, coming: Coming) -> None:
        """Delay the next step until its batch is ready, and keep its memory until the step ends."""
        self.compute.wait(coming.copied)
        self.keep(coming, self.compute)

    def keep(self, coming: Coming, stream: Stream) -> None:
        """Record that a stream uses memory that another one allocated."""
        for tensor in coming.here.values():
            stream.keep(tensor)


class Prefetch(Native):
    """The next batch's embedding rows are gathered while a step runs, and the batch after it is copied.

    Rows that the step updates are then replaced, so that the next step has the values of a later gather.
    """

    def __init__(self, model: RankingModel, streams: Streams) -> None:
        super().__init__(model, streams)
        self.gathers = streams.stream("gather")
        self.updated: Event = self.compute.record()

    def train(self, batches: Sequence[Batch], outcomes: list[Outcome]) -> None:
        """Launch copy and gathering of later batches before each step."""
        waiting = [self.copy(batch, self.copies) for batch in batches[:2]]
        for coming in waiting[:1]:
            self.prefetch(coming)
        for number in range(len(batches)):
            here = waiting.pop(0)
            waiting += [self.copy(batch, self.copies) for batch in batches[number + 2 : number + 3]]
            for following in waiting[:1]:
                self.prefetch(following)
            self.wait_for(here)
            self.step(here, outcomes)
            self.updated = self.compute.record()
            for following in waiting[:1]:
                self.refresh(following, here)

    def prefetch(self, coming: Coming) -> None:
        """Gather rows after the batch's copy, and after every update but that of the directly preceding step."""
        self.gathers.wait(coming.copied)
        self.gathers.wait(self.updated)
        self.keep(coming, self.gathers)
        self.gather(coming, self.gathers)

    def wait_for(self, coming: Coming) -> None:
        """Delay the next step until batch and rows are ready."""
        assert coming.gathered is not None
        self.compute.wait(coming.gathered)
        super().wait_for(coming)

    def refresh(self, following: Coming, here: Coming) -> None:
        """Update the gathered rows with the results of the step."""
        assert following.gathered is not None
        self.compute.wait(following.gathered)
        self.compute.run(self.model.refresh, following.here, here.here)


class PipelinedRun:
    """A model, its pipeline, and its position in the data."""

    def __init__(self, model: RankingModel, pipeline: Plain, streams: Streams) -> None:
        self.model, self.pipeline, self.streams, self.position = model, pipeline, streams, 0

    def train(self, batches: Sequence[Batch], steps: int) -> list[Outcome]:
        outcomes: list[Outcome] = []
        chosen = batches[self.position : self.position + steps]
        self.pipeline.train(chosen, outcomes)
        self.streams.synchronize()
        self.position += len(chosen)
        return outcomes

    def state(self) -> dict[str, Tensor]:
        return {**self.model.state(), "position": torch.tensor(self.position)}

    def save(self, path: Path) -> None:
        torch.save(self.state(), path)

    def load(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        self.model.load(state)
        self.position = int(state["position"])


class Pipelines:
    """Runs with any of the three."""

    def __init__(self, setting: Setting) -> None: ...

    def begin(self, kind: Kind, recipe: Recipe, weights: Mapping[str, Tensor], streams: Streams) -> PipelinedRun:
        model = RankingModel(recipe, weights, streams.device)
        pipelines: Mapping[Kind, type[Plain]] = {"none": Plain, "native": Native, "prefetch": Prefetch}
        return PipelinedRun(model, pipelines[kind](model, streams), streams)


def _copy(to: Here, of: Here) -> None:
    for name, target in to.items():
        target.copy_(of[name], non_blocking=True)
