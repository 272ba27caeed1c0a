"""Makes torch's allocator use expandable segments."""

from collections.abc import Mapping

from harness import Setting


class GrowingSegments:
    """Sets the variable that torch 2.9 and later read, before the process starts. See `AllocatorSetting`."""

    def __init__(self, setting: Setting) -> None: ...

    def environment(self) -> Mapping[str, str]:
        return {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}

    def late(self) -> Mapping[str, str]:
        return {}
