"""The healthy world gives the verdicts that the hostile ones must not."""

from __future__ import annotations

from harness.base.vocabulary import ExitStatus
from tests.hostile.world import World


def test_the_healthy_world(world: World) -> None:
    """Every command of these tests succeeds."""
    assert world.run("verify", "evidence").returncode == ExitStatus.PASS
    for arguments in (
        ("lint",), ("list",), ("show", "F-DEMO-SORT-001"), ("status",), ("report", "evidence", "--markdown", "-"),
        ("merge", "evidence", "--into", "merged"),
    ):  # fmt: skip
        assert world.run(*arguments).returncode == ExitStatus.PASS, arguments
