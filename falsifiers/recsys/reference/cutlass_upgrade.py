"""How the source's image upgrades cutlass-dsl."""

from collections.abc import Sequence

from harness import Setting


class RemovedFirst:
    """Removes the old version before it installs the new one."""

    def __init__(self, setting: Setting) -> None: ...

    def steps(self, package: str, version: str) -> Sequence[Sequence[str]]:
        return [["uninstall", "--yes", package], ["install", f"{package}=={version}"]]
