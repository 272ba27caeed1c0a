"""The pytest plugin: `pytest --claims` runs claims as tests, and `pytest.mark.claim("F-…")` ties a test to a claim.

Every pytest run in an environment with the harness imports this module, so it imports nothing of the harness. The rest
is in `contract_items.py` and `tied_tests.py`. It has no assertions: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

_MARKERS = (
    "claim(id): the test belongs to a claim of the project; a claim that does not exist is an error",
    "issue_ISSUE: (pytest --claims) the claim's issue, such as issue_PMAT-697",
    "spec_SPEC: (pytest --claims) the claim's spec, such as spec_SPEC-DISTILL-001",
    "device_DEVICE: (pytest --claims) what the claim runs on here: device_cpu or device_cuda",
    "profile_PROFILE: (pytest --claims) the profile that runs here: profile_full or profile_reduced",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options. They are those of `harness run`, with --claims in front of each name."""
    group = parser.getgroup("claims", "claims (falsifier-harness)")
    group.addoption(
        "--claims",
        action="store_true",
        help="Collect contracts as tests: those at or below each PATH, those of claims named by id (globs too), or "
        "without either, all of the project.",
    )
    group.addoption("--claims-strict", action="store_true", help="NOT_MEASURED fails instead of being skipped.")
    group.addoption(
        "--claims-profile",
        choices=("auto", "full", "reduced"),
        default="auto",
        help="auto (default) takes full if this machine meets its requirements, else reduced.",
    )
    group.addoption("--claims-device", default="auto", metavar="auto|cpu|cuda:N", help="What to run on.")
    group.addoption("--claims-no-mutants", action="store_true", help="Skip the mutants; a PASS is then unproven.")
    group.addoption("--claims-evidence", metavar="DIR", help="Where bundles go, instead of the project's evidence/.")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers and, with --claims, the plugin that collects and runs contracts."""
    for line in _MARKERS:
        config.addinivalue_line("markers", line)
    if config.getoption("claims"):
        from harness.pytest_plugin.contract_items import Claims

        config.pluginmanager.register(Claims.of(config), "harness.claims")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Refuse a test that is tied to a claim that does not exist."""
    items = yield
    for item in items if isinstance(items, list) else [items]:
        if isinstance(item, pytest.Item) and item.get_closest_marker("claim") is not None:
            from harness.pytest_plugin.tied_tests import tie

            tie(item)
    return items
