"""How NVIDIA's driver chooses code for a GPU, as the CUDA C++ Programming Guide states it.

- Machine code runs on its own major capability, at its own minor or a higher one (binary compatibility).
- PTX is compiled for its own capability or any higher one (PTX compatibility).
- A letter a ties both to exactly their capability; a letter f ties both to their major capability.
"""

import re
from collections.abc import Iterable


def chosen(architectures: Iterable[str], major: int, minor: int) -> str:
    """Return "machine code", "PTX" or "not at all" for a GPU of a capability.

    Args:
        architectures: such as "sm_120" and "compute_120", machine code and PTX.
    """
    choices = set()
    for architecture in architectures:
        form, number, letter = re.fullmatch(r"(sm|compute)_(\d+)([af]?)", architecture).groups()  # type: ignore[union-attr]
        of_major, of_minor = divmod(int(number), 10)
        same_family = of_major == major and of_minor <= minor
        older = (of_major, of_minor) <= (major, minor)
        runs = {
            "a": (of_major, of_minor) == (major, minor),
            "f": same_family,
            "": same_family if form == "sm" else older,
        }
        if runs[letter]:
            choices.add(form)
    return "machine code" if "sm" in choices else "PTX" if "compute" in choices else "not at all"
