"""Limits that every version of the harness must share, so that each version reads the bundles of the others."""

from __future__ import annotations

import pytest

from harness.evidence import bundle_layout
from harness.evidence.bundle_layout import is_folder_name


def test_the_limits_are_part_of_the_format() -> None:
    """A smaller limit would make sealed evidence unsound. Older readers would refuse bundles within a larger one."""
    limits = {name: value for name, value in vars(bundle_layout).items() if type(value) is int}
    assert limits == {
        "MOST_FILES": 15,
        "MOST_ARTIFACTS": 3,
        "LARGEST_DOCUMENT": 16 * 1024 * 1024,
        "LARGEST_BUNDLE": 128 * 1024 * 1024,
        "MOST_ENTRIES": 256,
        "DEEPEST": 12,
    }


@pytest.mark.parametrize("name", ["a", "F-A-001", "2026-11-20T201503Z-cpu-3f2a9c", "a" * 120])
def test_names_of_folders(name: str) -> None:
    assert is_folder_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", ".a", "-a", "a/b", "a\n", "\u00e9", "a" * 121])
def test_what_is_no_name_of_a_folder(name: str) -> None:
    assert not is_folder_name(name)
