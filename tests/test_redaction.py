"""Masks: shapes of secrets in the forms in which they reach logs, what must stay readable, and odd input."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.redaction import MASK, Redactor, allowed_environment
from tests.strategies import json_values

# Made up while the tests run, so that no scanner of repositories takes one for real.
BODY = "".join(random.Random(0).choices("ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789", k=40))
REDACTOR = Redactor({"DEPLOY_TOKEN": "correct horse battery", "SHORT_TOKEN": "short"})

SHAPES = {
    "github": f"ghp_{BODY}",
    "hugging face": f"hf_{BODY}",
    "hugging face, after an escaped newline": f"'line\\nhf_{BODY}'",
    "nvidia": f"nvapi-{BODY}",
    "openai": f"sk-proj-{BODY}",
    "stripe": f"sk_live_{BODY}",
    "slack webhook": f"https://hooks.slack.com/services/T00/B00/{BODY}",
    "jwt": f"eyJ{BODY}.{BODY}.{BODY}",
    "jwt, percent-encoded": f"token%20eyJ{BODY}.{BODY}.{BODY}",
    "aws secret": f"aws_secret_access_key = {BODY}",
    "json": f'{{"password": "{BODY}"}}',
    "json in json": f'"{{\\"password\\": \\"{BODY}\\"}}"',
    "repr": f"{{'api_key': '{BODY}'}}",
    "keyword argument": f"Client(api_key='{BODY}')",
    "quoted with spaces": f'passphrase="my {BODY} words"',
    "header": f"Authorization: Basic {BODY}",
    "header in a dict": f"{{'Authorization': 'Bearer {BODY}'}}",
    "bearer alone": f"curl -H bearer {BODY}",
    "x-api-key": f"x-api-key: {BODY}",
    "url": f"https://user:p@{BODY}@host/path",
    "url without a user": f"redis://:{BODY}@host:6379/0",
    "url with a token": f"https://{BODY}@host/repository.git",
    "query": f"https://host/?a=1&sig={BODY}&b=2",
    "signed url": f"https://host/?X-Amz-Signature={BODY}",
    "option": f"train --hub-token {BODY} --steps 3",
    "azure": f"AccountKey={BODY}==;EndpointSuffix=core",
    "pem": f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----",
    "pem without an end": f"-----BEGIN PRIVATE KEY-----\n{BODY}\n",
    "pem without a beginning": f"{BODY}\n{BODY}\n-----END PRIVATE KEY-----",
    "pem in a repr": f"'-----BEGIN PRIVATE KEY-----\\n{BODY}\\n-----END PRIVATE KEY-----'",
    "pgp": f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{BODY}\n-----END PGP PRIVATE KEY BLOCK-----",
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES.keys())
def test_shapes(text: str) -> None:
    """Nothing of the secret remains."""
    assert BODY not in REDACTOR.mask(text)
    assert MASK in REDACTOR.mask(text)


HARMLESS = [
    "disk-usage-of-the-machine-in-bytes",
    "mask-rcnn-resnet50-fpn-v2",
    "tokens_per_second=128000.0 tokens: 1000000",
    "basic training of the student",
    "key: value, --steps 50000 --keep latest",
    "https://github.com/owner/repository",
    "2026-11-20T20:15:03 step 50/50 loss=4.1",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    """A log in which every other word is masked helps nobody."""
    assert REDACTOR.mask(text) == text


def test_values_of_secret_variables() -> None:
    """The exact values of this process's secrets are masked wherever they are; those too short to be any are not."""
    assert REDACTOR.mask("correct horse battery, short") == f"{MASK}, short"
    assert REDACTOR.mask_json({"correct horse battery": ["correct horse battery", 1]}) == {MASK: [MASK, 1]}


@given(json_values)
def test_numbers_and_shapes_of_json_survive(value: Any) -> None:
    """Masking is total, and changes texts only."""

    def blank(item: Any) -> Any:
        if isinstance(item, str):
            return ""
        if isinstance(item, dict):
            return [blank(inner) for inner in item.values()]
        return [blank(inner) for inner in item] if isinstance(item, (list, tuple)) else repr(item)

    assert blank(REDACTOR.mask_json(value)) == blank(value)


@given(st.text())
def test_masking_is_idempotent_on_texts_without_secrets(text: str) -> None:
    """Any text can be masked."""
    assert isinstance(REDACTOR.mask(text), str)


@pytest.mark.parametrize(
    "piece", ["eyJ", "a", "://", "://a:", "-----BEGIN PRIVATE KEY----- ", "A\n", "--a-", "token=", "\\"]
)
def test_no_text_takes_long(piece: str) -> None:
    """Masking a full log takes no more than a moment, whatever is in it: somebody waits for the verdict."""
    text = piece * ((64 << 10) // len(piece))
    before = time.perf_counter()
    REDACTOR.mask(text)
    assert time.perf_counter() - before < 2


def test_the_environment_of_trials() -> None:
    """Names that only look like a secret's pass; others do not, though their beginning is allowed."""
    given = {"TOKENIZERS_PARALLELISM": "false", "HF_TOKEN": "x", "TORCH_HUB_TOKEN": "x", "PATH": "/bin", "OTHER": "x"}
    assert allowed_environment(given) == {"PATH": "/bin", "TOKENIZERS_PARALLELISM": "false"}
