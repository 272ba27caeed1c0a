"""The extras of the harness: optional packages that some of its commands need."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any
from urllib.request import url2pathname

from harness.base import strictjson

__all__ = ["NAME", "installation"]

NAME = "falsifier-harness"


def installation(extra: str) -> str:
    """Return the command that installs an extra of the harness from where the harness itself came."""
    return f"pip install {shlex.quote(_requirement(extra))}"


def _requirement(extra: str) -> str:
    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").is_file():
        return f"{checkout}[{extra}]"
    origin = _origin()
    url: str = origin.get("url", "")
    if url.startswith("file://"):
        return f"{url2pathname(url.removeprefix('file://'))}[{extra}]"
    scheme = f"{origin['vcs_info']['vcs']}+" if "vcs_info" in origin else ""
    return f"{NAME}[{extra}] @ {scheme}{url}" if url else f"{NAME}[{extra}]"


def _origin() -> dict[str, Any]:
    """Return where pip installed the harness from, by PEP 610; empty if it came from an index."""
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import

    try:
        text = distribution(NAME).read_text("direct_url.json")
    except PackageNotFoundError:
        text = None
    return dict(strictjson.loads(text)) if text else {}
