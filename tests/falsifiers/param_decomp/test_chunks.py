"""Which sites a forward masks, seen without numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from falsifiers.param_decomp.chunk_forwards import chunks_of_first_step
from falsifiers.param_decomp.reference.trainer import Decomposition
from harness import Setting


class LastAlways(Decomposition):
    """Masks the last chunk in each forward."""

    def stochastic_maskings(self, chunk: list[str], *rest: Any) -> Any:
        """Take other names."""
        return super().stochastic_maskings(list(self.sites)[-len(chunk) :], *rest)


class Whole(Decomposition):
    """Masks all sites in each forward, each routed at some positions."""

    def stochastic_maskings(self, chunk: list[str], *rest: Any) -> Any:
        """Take all names."""
        return super().stochastic_maskings(list(self.sites), *rest)


def chunks(subject: type[Decomposition], folder: Path, **changes: Any) -> dict[str, Any]:
    parameters = {"configuration": "nine-layers-toy", "samples": 2, "adversarial": 0.0, **changes}
    return chunks_of_first_step(subject(Setting(parameters, "cpu", 0, folder, folder)), parameters)


@pytest.mark.parametrize("storage", ["real", "meta"])
@pytest.mark.parametrize("remat", [False, True])
def test_stochastic_forwards_are_seen(storage: str, remat: bool, tmp_path: Path) -> None:
    """The step has a clean forward too, and a backward pass that computes layers again."""
    found = chunks(Decomposition, tmp_path, storage=storage, remat=remat)
    assert found == {"components_at_size": [4], "sites_at_size": [9] * 6, "wrong_chunks_at_size": []}


@pytest.mark.parametrize(("subject", "sites", "wrong"), [(LastAlways, 9, 4), (Whole, 27, 6)])
def test_other_chunks_are_found(subject: type[Decomposition], sites: int, wrong: int, tmp_path: Path) -> None:
    found = chunks(subject, tmp_path, storage="meta")
    assert (found["sites_at_size"], len(found["wrong_chunks_at_size"])) == ([sites] * 6, wrong)
