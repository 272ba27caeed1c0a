"""A training pipeline with a defect, for the suites that are to find it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from falsifiers.recsys.reference.pipelines import Coming, PipelinedRun, Pipelines, Prefetch
from falsifiers.recsys.reference.ranking_model import RankingModel
from falsifiers.recsys.streams import Streams
from falsifiers.recsys.training_subject import Kind, Recipe

__all__ = ["StaleRows"]


class _StaleRows(Prefetch):
    def refresh(self, following: Coming, here: Coming) -> None:
        pass


class StaleRows(Pipelines):
    """Rows that were gathered before the last update are used as they are."""

    def begin(self, kind: Kind, recipe: Recipe, weights: Mapping[str, Tensor], streams: Streams) -> PipelinedRun:
        """Return a run."""
        run = super().begin(kind, recipe, weights, streams)
        if kind == "prefetch":
            model: RankingModel = run.model
            run.pipeline = _StaleRows(model, streams)
        return run
