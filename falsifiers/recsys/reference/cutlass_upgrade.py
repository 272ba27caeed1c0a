"""How the image of the source goes from one version of cutlass-dsl to the next."""

from __future__ import annotations

from collections.abc import Sequence

from harness import Setting


class RemovedFirst:
    """The old version is removed before the new one is installed. See `Upgrade`."""

    def __init__(self, setting: Setting) -> None: ...

    def steps(self, package: str, version: str) -> Sequence[Sequence[str]]:
        return [["uninstall", "--yes", package], ["install", f"{package}=={version}"]]
