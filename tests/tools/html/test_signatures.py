"""Signers and remarks of a bundle, on its page and in the index."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.evidence.findings import Code, Severity
from harness.evidence.verification import Against, verify_all
from harness.report.messages import finding_text
from harness.tools.ci_reports import markdown
from harness.tools.html import site
from harness.tools.report_text import asked
from harness.tools.sign.signing import sign
from harness.tools.text_report import bundle_results
from tests.evidence.attested import forge, statement_of
from tests.evidence.factory import sealed
from tests.tools.html.browser import axe_source, browser, violations

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

SIGNATURES = frozenset({Code.UNSIGNED, Code.UNKNOWN_KEY})


@pytest.fixture(scope="module")
def signers() -> tuple[CryptoSigner, CryptoSigner]:
    """A trusted signer and a stranger."""
    signer = pytest.importorskip("securesystemslib.signer", reason="needs the extra `sign`").CryptoSigner
    return signer.generate_ed25519(), signer.generate_ed25519()


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory, signers: tuple[CryptoSigner, CryptoSigner]) -> Path:
    """A bundle by a trusted signer, one by a stranger, an unsigned one, and one with a forged statement."""
    ours, theirs = signers
    folder = tmp_path_factory.mktemp("signed")
    sign(sealed(folder, run="ours"), ours)
    sign(sealed(folder, run="theirs"), theirs)
    sealed(folder, run="nobodys")
    forged = sealed(folder, run="forged")
    sign(forged, ours)
    forge(forged, {**statement_of(forged), "predicateType": "https://example.org/better"}, ours)
    return folder / "evidence" / "DEMO-1" / "F-DEMO-SORT-001"


def written(evidence: Path, folder: Path, *trusted: CryptoSigner, refused: frozenset[Code] = frozenset()) -> Path:
    against = Against({signer.public_key.keyid: signer.public_key for signer in trusted}, refused=refused)
    site.pages(list(verify_all(sorted(evidence.iterdir()), against=against)), folder, against)
    return folder


def text(page: Path) -> str:
    """The text of a page with single spaces, and without spaces before punctuation."""
    plain = re.sub(r"<style>.*?</style>|<script>.*?</script>|<[^>]*>", " ", page.read_text(), flags=re.DOTALL)
    return re.sub(r" (?=[,.:;])", "", " ".join(plain.split()))


def test_without_a_key_pages_say_who_claims_to_have_signed(
    evidence: Path, tmp_path: Path, signers: tuple[CryptoSigner, CryptoSigner]
) -> None:
    """The page says that nothing was checked. An unsigned bundle has no warning."""
    folder = written(evidence, tmp_path / "site") / "F-DEMO-SORT-001"
    named = text(folder / "theirs.html")
    assert f"Signed in the name of {signers[1].public_key.keyid}; --trusted-key says which key you trust" in named
    unsigned = (folder / "nobodys.html").read_text()
    assert "UNSIGNED" in text(folder / "nobodys.html")
    assert "<title>PASS " in unsigned
    assert 'class="alarm"' not in unsigned
    assert '<a class="chip" href="#caveats">Unsigned' not in unsigned
    *_, on_keys = asked(Against())
    assert on_keys in named


def test_what_was_changed_after_it_was_signed_is_signed_by_nobody(
    tmp_path: Path, signers: tuple[CryptoSigner, CryptoSigner]
) -> None:
    """Page, comment and `harness verify` name no signer, because the key signed another file."""
    bundle = sealed(tmp_path)
    sign(bundle, signers[0])
    record = bundle / "record.json"
    record.write_bytes(record.read_bytes().replace(b'"seconds"', b' "seconds"', 1))
    against = Against({signers[0].public_key.keyid: signers[0].public_key})
    [verification] = verify_all([bundle], against=against)
    site.pages([verification], tmp_path / "site", against)
    page = text(next((tmp_path / "site" / "F-DEMO-SORT-001").iterdir()))
    assert (verification.standing, verification.signed_by) == ("UNSOUND", ())
    (wrong,) = [finding for finding in verification.findings if finding.code is Code.TAMPERED]
    assert wrong.file == "record.json"
    assert "TAMPERED record.json" in page
    for said in (page, markdown.render(bundle_results([verification]))):
        assert "igned by a trusted key" not in said
        assert f"igned by {signers[0].public_key.keyid[:12]}" not in said


def test_with_a_key_only_what_it_signed_is_accepted(
    evidence: Path, tmp_path: Path, signers: tuple[CryptoSigner, CryptoSigner]
) -> None:
    """Other bundles keep a page with another word than their verdict, and do not count in the index."""
    folder = written(evidence, tmp_path / "site", signers[0], refused=SIGNATURES)
    ours, theirs = signers[0].public_key.keyid, signers[1].public_key.keyid
    titles = {
        page.stem: re.findall("<title>([A-Z_]+) F-DEMO", page.read_text())[0] for page in folder.glob("F-*/*.html")
    }
    assert titles.pop("index") == "PARTIAL"
    assert titles == {"ours": "PASS", "theirs": "NOT_ACCEPTED", "nobodys": "NOT_ACCEPTED", "forged": "UNSOUND"}
    pages = {name: text(folder / "F-DEMO-SORT-001" / f"{name}.html") for name in titles}
    assert f"The signatures of trusted keys verify, over every file: {ours}." in pages["ours"]
    assert f"It is not accepted: signed in the name of {theirs}; none of them was named as trusted." in pages["theirs"]
    assert "Sound, with the verdict PASS. These remarks are not accepted: UNSIGNED." in pages["nobodys"]
    assert "FORGED attestation.intoto.jsonl/payload/predicateType: its statement: has" in pages["forged"]
    assert "Forged attestation" in pages["forged"]
    index = text(folder / "index.html")
    assert "4 bundles: 1 UNSOUND, 2 NOT_ACCEPTED, 1 PASS." in index
    (told,) = re.findall(r"Signatures: ([^.]*)\.", index)
    signatures = ["forged attestation", f"signed by {ours[:12]}", "signed by an unknown key", "unsigned"]
    assert told.split(", ") == [f"1 {word}" for word in sorted(signatures)]
    assert f"Trusted keys: {ours};" in index
    matrix = (folder / "index.html").read_text().split('<table class="matrix"')[1].split("</table>")[0]
    claim = "F-DEMO-SORT-001/index.html"
    assert re.findall(r'href="([^"]*)"', matrix) == [claim, claim, "F-DEMO-SORT-001/ours.html"]


def test_a_page_says_all_that_verifying_remarks(tmp_path: Path) -> None:
    """Each remark has one line with its code."""
    bundle = sealed(
        tmp_path, skipped=True, overrides={"steps": 5}, commit={"revision": None, "dirty": None, "reason": "x"}
    )
    against = Against()
    (verification,) = verify_all([bundle], against=against)
    site.pages([verification], tmp_path / "site", against)
    page = text(next((tmp_path / "site").glob("F-*/*.html")))
    said = page[page.index("Result of harness verify") :]
    assert {remark.code for remark in verification.remarks} >= {Code.MUTANTS_SKIPPED, Code.OVERRIDDEN, Code.DIRTY_TREE}
    for remark in verification.remarks:
        assert remark.code.severity is Severity.REMARK
        assert page.count(f" {remark.code}") == 1
        assert f"{remark.code}: {finding_text.message(remark)}." in said.replace("&#39;", "'")
        assert f"{remark.code}" in text(tmp_path / "site" / "index.html") or remark.code in SIGNATURES


def test_every_kind_of_page_can_be_read_by_everybody(
    evidence: Path, tmp_path: Path, signers: tuple[CryptoSigner, CryptoSigner], pytestconfig: pytest.Config
) -> None:
    """axe-core finds nothing in either theme, and no page is wider than a phone's screen."""
    source = axe_source(pytestconfig.cache.mkdir("axe"))
    folder = written(evidence, tmp_path / "site", signers[0], refused=SIGNATURES)
    with browser() as chromium:
        page = chromium.new_context(bypass_csp=True).new_page()
        for path in sorted(folder.rglob("*.html")):
            assert violations(page, path.as_uri(), source) == {}, path.name
