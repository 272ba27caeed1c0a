"""The interface of signing. The entry point `dsse` of the group `harness.signing` names the module that implements it.

The default is `harness.tools.sign.attestation`. It is imported if a key is given or a bundle has an attestation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.base.plugins import plugins

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.evidence.findings import Finding
    from harness.judging.record import Record

__all__ = ["Checked", "Key", "KeyRefused", "Signing", "signing"]


class KeyRefused(ValueError):
    """A key cannot be created, read or used. The text states the reason and the remedy; it never quotes the file."""


class Key(Protocol):
    """A public key."""

    keyid: str


@dataclass(frozen=True)
class Checked:
    """The result of checking an attestation."""

    findings: tuple[Finding, ...]
    signed_by: tuple[str, ...] = ()
    """Ids of the trusted keys that signed this bundle; empty if there is any finding."""


class Signing(Protocol):
    """The functions of the module. Those that read a key raise KeyRefused."""

    def load_private(self, path: Path) -> Any:
        """Return the signer of a private key's file."""

    def load_public(self, path: Path) -> Key:
        """Read a public key's file."""

    def exposure(self, path: Path) -> str:
        """Return a warning if others can read a private key; empty if only its owner can."""

    def attest(self, record: Record, contract_subject: str, manifest: bytes, signer: Any) -> bytes:
        """Return the content of a bundle's attestation."""

    def check(
        self, content: bytes, record: Record, contract_subject: str, manifest: bytes, trusted: Mapping[str, Any]
    ) -> Checked:
        """Compare an attestation with its bundle."""


@cache
def signing() -> Signing:
    """Return the module.

    Raises:
        PluginError: it cannot be imported.
    """
    module: Signing = plugins("harness.signing")["dsse"].load()
    return module
