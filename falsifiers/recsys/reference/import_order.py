"""Imports that resolve a cycle: the module that needs the wanted one comes first."""

from harness import Setting


class FirstThenWanted:
    """Two statements. See `ImportOrder`."""

    def __init__(self, setting: Setting) -> None: ...

    def program(self, first: str, wanted: str) -> str:
        return f"import {first}\nimport {wanted}\n"
