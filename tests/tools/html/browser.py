"""A real browser, and accessibility rules for pages."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["SCREENS", "axe_source", "browser", "violations"]

SCREENS = [(1280, "light"), (360, "dark")]
"""A desktop and a phone, each in one theme."""

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_AXE, _AXE_SHA256 = "axe-core-4.14.1", "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
_OF_A_SCREEN = ["color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size"]
"""The rules of axe that depend on width and theme. The other rules find the same on every screen."""
_RUN = "async asked => (await axe.run(asked)).violations.map(one => [one.id, one.nodes.map(node => node.html)])"


@contextmanager
def browser() -> Iterator[Any]:
    """Headless Chromium. Without it, the test is skipped with the reason."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip(f"needs a browser; none of {', '.join(_NAMES)} is on PATH (apt-get install chromium)")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        try:
            running = driver.chromium.launch(executable_path=found, args=arguments)
        except playwright.Error as error:
            pytest.skip(f"{found} does not start: {str(error).splitlines()[0]}")
        yield running
        running.close()


def axe_source(cache: Path) -> str:
    """axe-core, which npm fetches at the first call. If npm cannot fetch it, the test is skipped with the reason."""
    package = cache / f"{_AXE}.tgz"
    if not package.exists():
        command = ["npm", "pack", _AXE.replace("core-", "core@"), "--silent", "--pack-destination", str(cache)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"needs axe-core, which npm cannot fetch here: {error}")
    if hashlib.sha256(package.read_bytes()).hexdigest() != _AXE_SHA256:
        package.unlink()
        pytest.fail(f"{_AXE} is not what it was; it was removed")
    with tarfile.open(package) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode("utf-8")


def violations(page: Any, address: str, axe: str) -> dict[str, Any]:
    """Return axe's findings on each screen with everything unfolded, by rule, and the excess width of the page.

    Args:
        page: of a context that bypasses the page's policy, which forbids to bring in axe.
    """
    page.goto(address)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.evaluate(axe)
    found: dict[str, Any] = {}
    for (width, theme), options in zip(SCREENS, ({}, {"runOnly": _OF_A_SCREEN}), strict=True):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
            found[f"width at {width}"] = wide
        for rule, elements in page.evaluate(_RUN, options):
            found[f"{rule} at {width} in {theme}"] = elements
    return found
