"""A sound bundle, sealed once, and copies of it to change."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.evidence.factory import copy_of, sealed

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound bundle with every kind of file. A test that changes it must restore it."""
    folder = tmp_path_factory.mktemp("pristine")
    left = folder / "left"
    (left / "deep").mkdir(parents=True)
    (left / "deep" / "header.bin").write_bytes(b"\0" * 64)
    return sealed(folder, artifacts=left)


@pytest.fixture(scope="session")
def archive(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zip file of the bundle."""
    folder = tmp_path_factory.mktemp("archive")
    return Path(shutil.make_archive(str(folder / "one"), "zip", pristine.parents[2], Path(*pristine.parts[-3:])))


@pytest.fixture
def bundle(pristine: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return copy_of(pristine, tmp_path)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify in the test's process, which takes a seventh of the time. test_hostile.py tests the forks."""
    monkeypatch.setattr("harness.evidence.verification.isolated_all", lambda works, *_: (work() for work in works))


@pytest.fixture
def not_root(pristine: Path) -> Iterator[Path]:
    """A folder with a copy of the bundle. During the test this process runs as a user without root's permissions."""
    folder = Path(tempfile.mkdtemp())
    copy_of(pristine, folder / "copy")
    nobody = 65534
    was = os.geteuid()
    if was == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, nobody, nobody)
        os.seteuid(nobody)
    try:
        yield folder
    finally:
        os.seteuid(was)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def signer() -> CryptoSigner:
    """The trusted signer."""
    from securesystemslib.signer import CryptoSigner  # not everything here needs the extra `sign`

    return CryptoSigner.generate_ed25519()


@pytest.fixture
def attested(bundle: Path, signer: CryptoSigner) -> Path:
    """A bundle with a signature by the trusted signer."""
    from harness.tools.sign.signing import sign

    sign(bundle, signer)
    return bundle
