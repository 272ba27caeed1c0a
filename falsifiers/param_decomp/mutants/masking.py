"""Subjects that make or apply masks wrongly, or draw them otherwise: one known defect each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from falsifiers.param_decomp.reference import Decomposition
from falsifiers.param_decomp.reference.drawing import Stream
from falsifiers.param_decomp.reference.target import Site
from falsifiers.param_decomp.subject import Masking
from harness import Setting

__all__ = [
    "BinarySources",
    "Blocks",
    "DeltaInterpolated",
    "DeltaIsOpen",
    "DeltaSquashed",
    "FairCoins",
    "FirstSites",
    "HalfRange",
    "KBelowN",
    "KFromZero",
    "MaskIsSource",
    "MaskTurned",
    "OnePositionForAll",
    "OneRowForAll",
    "ProductOfBoth",
    "ReversedChannels",
    "RouteInverted",
    "RoutedEverywhere",
    "SameEachStep",
    "SameSourceForRows",
]


class ProductOfBoth(Decomposition):
    """importance * source: an important component is masked, too."""

    def masking(self, lower: Tensor, source: Tensor, route: Tensor | None = None) -> Masking:
        """Without the importance's own share."""
        return replace(super().masking(lower, source, route), mask=lower * source[..., :-1])


class MaskIsSource(Decomposition):
    """The importance is left out."""

    def masking(self, lower: Tensor, source: Tensor, route: Tensor | None = None) -> Masking:
        """The source alone."""
        return super().masking(torch.zeros_like(lower), source, route)


class ReversedChannels(Decomposition):
    """The residual's channel is taken to be the first: every component has its neighbour's source."""

    def masking(self, lower: Tensor, source: Tensor, route: Tensor | None = None) -> Masking:
        """One channel off."""
        return super().masking(lower, source.roll(-1, dims=-1), route)


class DeltaSquashed(Decomposition):
    """The residual's channel passes a gate, as an importance does."""

    def masking(self, lower: Tensor, source: Tensor, route: Tensor | None = None) -> Masking:
        """A sigmoid of it."""
        found = super().masking(lower, source, route)
        return replace(found, delta=found.delta.sigmoid())


class DeltaInterpolated(Decomposition):
    """The residual's channel is interpolated with the mean importance."""

    def masking(self, lower: Tensor, source: Tensor, route: Tensor | None = None) -> Masking:
        """As a component's mask is."""
        found, importance = super().masking(lower, source, route), lower.mean(dim=-1)
        return replace(found, delta=importance + (1 - importance) * found.delta)


class DeltaIsOpen(Decomposition):
    """The residual is never masked."""

    def masking(self, lower: Tensor, source: Tensor, route: Tensor | None = None) -> Masking:
        """1."""
        found = super().masking(lower, source, route)
        return replace(found, delta=torch.ones_like(found.delta))


class RouteInverted(Decomposition):
    """Routed positions stay frozen, and the others are masked."""

    def masking(self, lower: Tensor, source: Tensor, route: Tensor | None = None) -> Masking:
        """The opposite."""
        return super().masking(lower, source, None if route is None else ~route)


class _Mismasked(Site):
    """A site whose mask meets the components in the wrong order."""

    def forward(self, x: Tensor, masking: Masking | None = None) -> Tensor:
        """With the mask reversed."""
        return super().forward(x, None if masking is None else replace(masking, mask=masking.mask.flip(-1)))


class MaskTurned(Decomposition):
    """The mask is applied along the wrong axis: each component has another one's mask."""

    def __init__(self, setting: Setting) -> None:
        """Exchange the sites' code."""
        super().__init__(setting)
        for site in self.sites.values():
            site.__class__ = _Mismasked


class _OtherDraws(Decomposition):
    """Sources and routes are drawn in another way."""

    def drawn_source(self, stream: Stream, place: int, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """The source of a site, [rows, sequence, C + 1]."""
        return stream.source(place, *shape, dtype)

    def drawn_routes(self, stream: Stream, sites: int, sequence: int) -> Tensor:
        """The routes of a chunk, bool [sites, rows, sequence]."""
        return stream.uniform_k(sites, sequence)

    def stochastic_maskings(
        self, chunk: list[str], lower: Mapping[str, Tensor], stream: Stream
    ) -> Callable[[str], Masking | None]:
        """As the reference's, of these draws."""
        routes = dict(zip(chunk, self.drawn_routes(stream, len(chunk), self.config.sequence), strict=True))
        places = {name: place for place, name in enumerate(self.sites)}
        shape = (self.config.sequence, self.config.components + 1)

        def masking(name: str) -> Masking | None:
            if name not in routes:
                return None
            source = self.drawn_source(stream, places[name], shape, lower[name].dtype)
            return self.masking(lower[name], source, routes[name])

        return masking


class SameSourceForRows(_OtherDraws):
    """All rows of a batch have one source."""

    def drawn_source(self, stream: Stream, place: int, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """The first row's."""
        return super().drawn_source(stream, place, shape, dtype)[:1].expand(len(stream.rows), -1, -1)


class BinarySources(_OtherDraws):
    """Sources are 0 or 1: the binomial variant."""

    def drawn_source(self, stream: Stream, place: int, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """Rounded."""
        return super().drawn_source(stream, place, shape, dtype).round()


class HalfRange(_OtherDraws):
    """Sources are never below one half."""

    def drawn_source(self, stream: Stream, place: int, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """In [0.5, 1]."""
        return super().drawn_source(stream, place, shape, dtype) / 2 + 0.5


class SameEachStep(_OtherDraws):
    """The step is left out of the seed: every step draws the same."""

    def stochastic_maskings(
        self, chunk: list[str], lower: Mapping[str, Tensor], stream: Stream
    ) -> Callable[[str], Masking | None]:
        """With the stream of step 0."""
        same = Stream(stream.key[0], 0, stream.key[2], stream.rows, stream.device)
        return super().stochastic_maskings(chunk, lower, same)


class FairCoins(_OtherDraws):
    """Each site is routed by a fair coin: k is binomial, and can be 0."""

    def drawn_routes(self, stream: Stream, sites: int, sequence: int) -> Tensor:
        """Of uniform numbers."""
        return stream.source(-1, sequence, sites, torch.float64).permute(2, 0, 1) < 0.5


class KFromZero(_OtherDraws):
    """k is uniform in 0 to n."""

    def drawn_routes(self, stream: Stream, sites: int, sequence: int) -> Tensor:
        """None at one position of n + 1."""
        some = stream.source(-2, sequence, 1, torch.float64).squeeze(-1) * (sites + 1) >= 1
        return super().drawn_routes(stream, sites, sequence) & some


class KBelowN(_OtherDraws):
    """k is uniform in 1 to n - 1: the end of a range is excluded."""

    def drawn_routes(self, stream: Stream, sites: int, sequence: int) -> Tensor:
        """Where all are routed, the first is not."""
        routes = super().drawn_routes(stream, sites, sequence)
        routes[0] &= ~routes.all(dim=0)
        return routes


class _OfK(_OtherDraws):
    """A subset of the right size, chosen otherwise."""

    def chosen(self, k: Tensor, sites: int) -> Tensor:
        """For k [rows, sequence], the routes [sites, rows, sequence]."""
        raise NotImplementedError

    def drawn_routes(self, stream: Stream, sites: int, sequence: int) -> Tensor:
        """k as it should be."""
        return self.chosen(super().drawn_routes(stream, sites, sequence).sum(dim=0), sites)


class FirstSites(_OfK):
    """The first k sites are routed."""

    def chosen(self, k: Tensor, sites: int) -> Tensor:
        """No subset is drawn."""
        return torch.arange(sites, device=k.device).reshape(-1, 1, 1) < k


class Blocks(_OfK):
    """k sites in a row are routed: each as often as it should be, but together with its neighbours."""

    def chosen(self, k: Tensor, sites: int) -> Tensor:
        """From a place on that differs between positions."""
        start = torch.arange(k.numel(), device=k.device).reshape(k.shape) * 5
        return (torch.arange(sites, device=k.device).reshape(-1, 1, 1) - start) % sites < k


class OnePositionForAll(_OtherDraws):
    """One draw a row, for all its positions."""

    def drawn_routes(self, stream: Stream, sites: int, sequence: int) -> Tensor:
        """The first position's."""
        return super().drawn_routes(stream, sites, sequence)[..., :1].expand(-1, -1, sequence)


class OneRowForAll(_OtherDraws):
    """One draw a batch, for all its rows."""

    def drawn_routes(self, stream: Stream, sites: int, sequence: int) -> Tensor:
        """The first row's."""
        return super().drawn_routes(stream, sites, sequence)[:, :1].expand(-1, len(stream.rows), -1)


class RoutedEverywhere(_OtherDraws):
    """The routing is drawn and dropped."""

    def drawn_routes(self, stream: Stream, sites: int, sequence: int) -> Tensor:
        """True."""
        return torch.ones_like(super().drawn_routes(stream, sites, sequence))
