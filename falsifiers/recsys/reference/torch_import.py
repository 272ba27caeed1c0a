"""An import of a name of torch."""

from harness import Setting


class FromModule:
    """One statement."""

    def __init__(self, setting: Setting) -> None: ...

    def program(self, module: str, name: str) -> str:
        """See `Import`."""
        return f"from {module} import {name}"
