"""Subjects that decompose other sites, or mask other ones in a forward: one known defect each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.reference import Decomposition
from falsifiers.param_decomp.reference.drawing import Stream, chunks
from falsifiers.param_decomp.subject import Masking
from harness import Setting

__all__ = [
    "DownFirst",
    "FrozenSitesMasked",
    "KindsApart",
    "LastChunkDropped",
    "LastSiteDropped",
    "OneForward",
    "OneLayerOn",
    "OneSample",
    "OneSiteSmaller",
    "ShuffledSites",
    "StridedChunks",
    "TenPerChunk",
]


class _Reordered(Decomposition):
    """Its sites in another order, which decides on chunks and on the split of the importances."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.sites = {name: self.sites[name] for name in self.order(list(self.sites))}

    def order(self, names: list[str]) -> list[str]:
        """The names in the defective order."""
        raise NotImplementedError


class ShuffledSites(_Reordered):
    """The sites come out of a set."""

    def order(self, names: list[str]) -> list[str]:
        """By the reversed name, which mixes layers and kinds."""
        return sorted(names, key=lambda name: name[::-1])


class KindsApart(_Reordered):
    """All gates first, then all ups, then all downs: a pattern with a wildcard is expanded by kind."""

    def order(self, names: list[str]) -> list[str]:
        """Kind by kind."""
        return sorted(names, key=lambda name: ("gate", "up", "down").index(name.split(".")[-1][: -len("_proj")]))


class DownFirst(_Reordered):
    """Alphabetical order within a layer: down, gate, up."""

    def order(self, names: list[str]) -> list[str]:
        """By layer and name."""
        return sorted(names, key=lambda name: (int(name.split(".")[1]), name))


class LastSiteDropped(Decomposition):
    """The last site is lost: a range without its end."""

    def __init__(self, setting: Setting) -> None:
        """26 sites."""
        super().__init__(setting)
        del self.sites[list(self.sites)[-1]]


class OneSiteSmaller(Decomposition):
    """One site keeps the number of components of an older run."""

    def __init__(self, setting: Setting) -> None:
        """Half of them."""
        super().__init__(setting)
        site = next(iter(self.sites.values()))
        half = self.config.components // 2
        site.V, site.U = torch.nn.Parameter(site.V[:, :half]), torch.nn.Parameter(site.U[:half])


class OneLayerOn(Decomposition):
    """Layers are counted from 1: 19 to 27 instead of 18 to 26."""

    def __init__(self, setting: Setting) -> None:
        """One layer further."""
        config = configuration_of(setting.parameters)
        further = {"first_layer": config.first_layer + 1, "last_layer": config.last_layer + 1}
        super().__init__(replace(setting, parameters={**setting.parameters, **further}))


class TenPerChunk(Decomposition):
    """Ten sites a chunk: three uneven chunks of 27, so that forwards of unequal size have equal weight."""

    def chunks(self) -> list[list[str]]:
        """10, 10, 7."""
        return chunks(list(self.sites), self.config.sites_per_chunk + 1)


class StridedChunks(Decomposition):
    """Every third site is in one chunk, not nine in a row."""

    def chunks(self) -> list[list[str]]:
        """Strided."""
        names = list(self.sites)
        count = len(super().chunks())
        return [names[start::count] for start in range(count)]


class OneForward(Decomposition):
    """All sites are masked in one forward."""

    def chunks(self) -> list[list[str]]:
        """One chunk."""
        return [list(self.sites)]


class LastChunkDropped(Decomposition):
    """The last chunk is never masked."""

    def chunks(self) -> list[list[str]]:
        """All but the last."""
        return super().chunks()[:-1]


class OneSample(Decomposition):
    """`samples` is read and not used."""

    def __init__(self, setting: Setting) -> None:
        """Whatever is asked for."""
        super().__init__(setting)
        self.config = replace(self.config, samples=1)


class FrozenSitesMasked(Decomposition):
    """Sites outside the chunk run decomposed with masks of 1: equal in exact arithmetic, but trained (S2)."""

    def stochastic_maskings(
        self, chunk: list[str], lower: Mapping[str, Tensor], stream: Stream
    ) -> Callable[[str], Masking | None]:
        """Masks of 1 for the rest."""
        maskings: Any = super().stochastic_maskings(chunk, lower, stream)

        def masking(name: str) -> Masking | None:
            if name in self.sites and name not in chunk:
                return Masking(torch.ones_like(lower[name]), torch.ones_like(lower[name][..., 0]))
            found: Masking | None = maskings(name)
            return found

        return masking
