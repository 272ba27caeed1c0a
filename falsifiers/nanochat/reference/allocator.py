"""How a trainer asks torch for segments that can grow."""

from __future__ import annotations

from collections.abc import Mapping

from harness import Setting

__all__ = ["GrowingSegments"]


class GrowingSegments:
    """Sets the variable that torch 2.9 and later read, before the process begins."""

    def __init__(self, setting: Setting) -> None:
        """Nothing depends on the setting."""

    def environment(self) -> Mapping[str, str]:
        """See `AllocatorSetting`."""
        return {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}

    def late(self) -> Mapping[str, str]:
        """See `AllocatorSetting`."""
        return {}
