"""A bundle whose record is dated in the future."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.evidence.findings import Code
from harness.evidence.staleness import clock_ahead
from harness.evidence.verification import verify
from tests.evidence.factory import claim_result, rewrite, sealed, set_at

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_it_is_sound_and_says_so(tmp_path: Path) -> None:
    """The bundle is sound with a remark, because the files do not show which clock was wrong."""
    bundle = sealed(tmp_path)
    assert Code.CLOCK_AHEAD not in {one.code for one in verify(bundle).remarks}
    rewrite(bundle, "record.json", set_at("started", (datetime.now(UTC) + timedelta(days=3650)).isoformat()))
    verification = verify(bundle)
    assert verification.sound, verification.findings
    (remark,) = (one for one in verification.remarks if one.code is Code.CLOCK_AHEAD)
    assert (remark.file, remark.pointer) == ("record.json", "/started")


@pytest.mark.parametrize(
    ("started", "ahead"),
    [
        ("2026-11-21T12:59:59+00:00", False),
        ("2026-11-21T13:00:00+00:00", False),
        ("2026-11-21T13:00:01+00:00", True),
        ("2026-11-21T13:00:01Z", True),
        ("9999-12-31T23:59:59Z", True),
        ("2026-11-20T12:00:00+00:00", False),
        ("2036-99-99T99:99:99Z", False),  # not a time: that has its own finding
    ],
)
def test_clocks_may_differ_by_an_hour(tmp_path: Path, started: str, ahead: bool) -> None:
    """A smaller difference gives no remark."""
    record = replace(claim_result(tmp_path).record, started=started, seconds=0.0)
    assert [one.code for one in clock_ahead(record, NOW)] == [Code.CLOCK_AHEAD] * ahead
