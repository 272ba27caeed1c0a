"""Masks: the shapes of secrets, texts that must stay readable, and unusual input."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.redaction import MASK, Redactor, allowed_environment, looks_secret
from harness.evidence.findings import Detail
from tests.strategies import json_values

# Made up while the tests run, so that no scanner of repositories takes one for real.
BODY = "".join(random.Random(0).choices("ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789", k=40))
REDACTOR = Redactor({"DEPLOY_TOKEN": "correct horse battery", "SHORT_TOKEN": "short"})

SHAPES = {
    "github": f"ghp_{BODY}",
    "hugging face": f"hf_{BODY}",
    "hugging face, after an escaped newline": f"'line\\nhf_{BODY}'",
    "jwt, after an escaped newline": f"'line\\neyJ{BODY}.{BODY}.{BODY}'",
    "openai, after an escaped newline": f"'line\\nsk-proj-{BODY}'",
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
    "age": f"# created: today\nAGE-SECRET-KEY-1{BODY.upper()}ABCDEFGHJKLMNPQRST",
    "telegram": f"https://api.telegram.org/bot123456789:AA{BODY[:33]}/getMe",
    "wandb login": f"wandb login --relogin {BODY.encode().hex()[:40]}",
    "wandb in netrc": f"machine api.wandb.ai\n  login user\n  password {BODY.encode().hex()[:40]}",
    "wandb, new": f"wandb_v1_{BODY}",
    "groq": f"gsk_{BODY}",
    "tgp": f"tgp_v1_{BODY}",
    "shopify": f"shpat_{BODY.encode().hex()[:40]}",
    "langsmith": f"lsv2_pt_{BODY.encode().hex()[:40]}",
    "slack app": f"xapp-1-A0B1-123-{BODY.encode().hex()[:40]}",
    "discord webhook": f"https://discord.com/api/webhooks/123456789/{BODY}",
    "terraform": f"abcdefghijklmn.atlasv1.{BODY}",
    "a token of letters": f"token={'geheim' * 3}{BODY}",
    "pgp": f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{BODY}\n-----END PGP PRIVATE KEY BLOCK-----",
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES.keys())
def test_shapes(text: str) -> None:
    """No part of the secret remains."""
    masked = REDACTOR.mask(text)
    assert not any(form in masked for form in (BODY, BODY.upper(), BODY[:33], BODY.encode().hex()[:40]))
    assert MASK in REDACTOR.mask(text)


HEX = "0123456789abcdef" * 4
UPPER = "ABCDEFGH12345678"

# The beginning of a token, the letters after it, and the least number of these.
TOKENS = [
    *((prefix, UPPER, 16) for prefix in ("AKIA", "ASIA")),
    *((f"gh{kind}_", BODY, 20) for kind in "pousr"),
    *(
        (prefix, BODY, 20)
        for prefix in ("github_pat_", "hf_", "api_org_", "nvapi-", "ya29.", "GOCSPX-", "dckr_pat_", "hvs.")
    ),
    *(
        (prefix, BODY, 16)
        for prefix in ("glpat-", "gldt-", "glrt-", "sk-", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_")
    ),
    *((prefix, BODY, 16) for prefix in ("pypi-", "hooks.slack.com/services/", f"SG.{BODY}.", "bearer ", "Bearer  ")),
    *((prefix, BODY, 30) for prefix in ("r8_", "AIza", "npm_")),
    *((f"xox{kind}-", BODY, 10) for kind in "abeoprs"),
    ("dapi", HEX, 32),
    *((f"do{kind}_v1_", HEX, 64) for kind in "opr"),
    *((f"{name}=", BODY, 6) for name in ("password", "PASSWD", "passphrase", "my_secret", "hf_token", "signature")),
    *(
        (f"{name} : ", BODY, 6)
        for name in ("api_key", "apikey", "access-key", "AccountKey", "private_key", "sig", "pwd")
    ),
    *((f"run --{name} ", BODY, 6) for name in ("password", "passwd", "db-passphrase", "my-own-secret", "token", "Key")),
]


@pytest.mark.parametrize(("prefix", "letters", "fewest"), TOKENS, ids=[prefix for prefix, _, _ in TOKENS])
def test_how_long_a_token_is(prefix: str, letters: str, fewest: int) -> None:
    """The shortest token is masked to its end. A token with one letter less is an ordinary word."""
    masked = REDACTOR.mask(f"so {prefix}{letters[:fewest]}, it said")
    assert masked in (f"so {MASK}, it said", f"so {prefix}{MASK}, it said", f"so {prefix}{MASK} it said")
    shorter = f"so {prefix}{letters[: fewest - 1]} it said"
    assert REDACTOR.mask(shorter) == shorter


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"SG.{BODY[:16]}.{BODY[:16]}", MASK),
        (f"SG.{BODY[:15]}.{BODY}", f"SG.{BODY[:15]}.{BODY}"),
        (f"eyJ{BODY[:8]}.{BODY[:8]}.", MASK),
        (f"eyJ{BODY[:7]}.{BODY}.{BODY}", f"eyJ{BODY[:7]}.{BODY}.{BODY}"),
        (f"eyJ{BODY}.{BODY[:7]}.{BODY}", f"eyJ{BODY}.{BODY[:7]}.{BODY}"),
        (f"theyJ{BODY}.{BODY}.{BODY}", f"theyJ{BODY}.{BODY}.{BODY}"),
        (f"1sk-{BODY}", f"1{MASK}"),
        (f"https://{BODY[:16]}@host", f"https://{MASK}@host"),
        (f"https://{BODY[:15]}@host", f"https://{BODY[:15]}@host"),
        ("https://u:p@host", f"https://{MASK}@host"),
        ("Authorization: x", f"Authorization: {MASK}"),
        ("authorization = Token abc", f"authorization = Token {MASK}"),
        ('{"Authorization": "Digest abc"}', f'{{"Authorization": "Digest {MASK}"}}'),
        ("password='a b', c", f"password={MASK}, c"),
        ('token: "a"; c', f"token: {MASK}; c"),
        ("a-----END PRIVATE KEY-----", "a-----END PRIVATE KEY-----"),
        ("-----BEGIN PRIVATE KEY-----\na\n-----END PRIVATE KEY-----\nb", f"{MASK}\nb"),
        ("a\nb\n-----END EC PRIVATE KEY-----\nc", f"{MASK}\nc"),
        ("a\nb\n-----END PGP PRIVATE KEY BLOCK-----\nc", f"{MASK}\nc"),
        ("-----BEGIN PUBLIC KEY-----\na\n", "-----BEGIN PUBLIC KEY-----\na\n"),
    ],
)
def test_what_is_left_of_a_text(text: str, masked: str) -> None:
    """Everything except the secret stays."""
    assert REDACTOR.mask(text) == masked


HARMLESS = [
    "disk-usage-of-the-machine-in-bytes",
    "mask-rcnn-resnet50-fpn-v2",
    "tokens_per_second=128000.0 tokens: 1000000",
    "basic training of the student",
    "key: value, --steps 50000 --keep latest",
    "https://github.com/owner/repository",
    "2026-11-20T20:15:03 step 50/50 loss=4.1",
    "measured loss_per_token = 5.16042, flops_per_token: 3491758080, error_per_token=1.5e-07",
    "pad_token='<|endoftext|>', bos_token: <|startoftext|>, 'tiktoken': '0.14.0'",
    "harness verify evidence --trusted-key /home/user/ci.key.pub; harness attest --key ~/ci.key",
    f"sha256-{'Ab1' * 14} cache-{'0a' * 32} model.layers.31.mlp.gate_up_proj.lora_A.default.weight",
    "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEENS1_10collective",
    "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NTT triton_poi_fused__to_copy_add_mul_silu_0",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    """These texts contain no secret."""
    assert REDACTOR.mask(text) == text


def test_values_of_secret_variables() -> None:
    """The values of this process's secrets are masked everywhere, except those that are too short."""
    assert REDACTOR.mask("correct horse battery, short") == "[masked], short"
    assert REDACTOR.mask_json({"correct horse battery": ["correct horse battery", 1]}) == {MASK: [MASK, 1]}


def test_which_values_of_variables_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of eight letters or more, the longest first. The default is this process's environment."""
    redactor = Redactor(
        {"A_TOKEN": "eight(.)", "B_TOKEN": "eight(.) and more", "C_TOKEN": "seven()", "HOME": "/home/somebody"}
    )
    text = "eight(.) and more; eight(.); seven(); eightxxx; /home/somebody"
    assert redactor.mask(text) == f"{MASK}; {MASK}; seven(); eightxxx; /home/somebody"
    assert redactor.mask_json({"a": ("eight(.)", None, 1.5)}) == {"a": [MASK, None, 1.5]}
    assert Redactor({}).mask(text) == text
    monkeypatch.setenv("DEPLOY_TOKEN", "correct horse")
    assert Redactor().mask("correct horse") == MASK
    assert "DEPLOY_TOKEN" not in allowed_environment()
    assert "PATH" in allowed_environment()


@given(json_values)
def test_numbers_and_shapes_of_json_survive(value: Any) -> None:
    """Masking accepts any document and changes only its texts."""

    def blank(item: Any) -> Any:
        if isinstance(item, str):
            return ""
        if isinstance(item, dict):
            return [blank(inner) for inner in item.values()]
        return [blank(inner) for inner in item] if isinstance(item, (list, tuple)) else repr(item)

    assert blank(REDACTOR.mask_json(value)) == blank(value)


@given(st.text())
def test_masking_is_idempotent_on_texts_without_secrets(text: str) -> None:
    assert isinstance(REDACTOR.mask(text), str)


@pytest.mark.parametrize(
    "piece", ["eyJ", "a", "://", "://a:", "-----BEGIN PRIVATE KEY----- ", "A\n", "--a-", "token=", "\\"]
)
def test_no_text_takes_long(piece: str) -> None:
    """Masking a full log takes little time, whatever it contains."""
    text = piece * ((64 << 10) // len(piece))
    before = time.process_time()
    REDACTOR.mask(text)
    assert time.process_time() - before < 2


def test_the_environment_of_trials() -> None:
    """Variables whose names only resemble a secret's are passed.

    Other names are not, even if they begin like an allowed one.
    """
    given = {"TOKENIZERS_PARALLELISM": "false", "HF_TOKEN": "x", "TORCH_HUB_TOKEN": "x", "PATH": "/bin", "OTHER": "x"}
    assert allowed_environment(given) == {"PATH": "/bin", "TOKENIZERS_PARALLELISM": "false"}


SECRET = """
    HF_TOKEN TOKEN_OF JWT_OF A_SECRET_OF DB_PASSWORD_OF PASSWD PASSPHRASE_OF AWS_CREDENTIALS APIKEY_OF API_KEY_OF
    ACCESSKEY_OF ACCESS_KEY_ID PRIVATEKEY_OF PRIVATE_KEY_OF SIGNINGKEY_OF SIGNING_KEY_OF WANDB_KEY GITHUB_PAT DB_PWD
    COOKIES SLACK_WEBHOOK_URL SENTRY_DSN AUTH_HEADER PROXY_AUTHORIZATION hf_token
"""
ALLOWED = """
    PATH HOME USER LOGNAME LANG LANGUAGE LC_ALL TZ TMPDIR TEMP TMP SHELL TERM HOSTNAME VIRTUAL_ENV LD_LIBRARY_PATH
    LD_PRELOAD XDG_CACHE_HOME PYTHON PYTHONPATH OMP_NUM_THREADS MKL_X OPENBLAS_X CUDA_VISIBLE_DEVICES NVIDIA_X CUBLAS
    CUBLAS_WORKSPACE_CONFIG CUDNN_X NCCL_X TORCH TORCHINDUCTOR_X PYTORCH_X TRITON_X VK_ICD_FILENAMES WGPU_X MESA_X
    LIBGL_X HF_HOME HF_HUB_OFFLINE TRANSFORMERS_OFFLINE TOKENIZERS_X SLURM_JOB_ID SLURMD_NODENAME HARNESS_X
"""


@pytest.mark.parametrize("name", SECRET.split())
def test_names_of_secrets(name: str) -> None:
    """The values of these variables are masked, and no trial receives them."""
    assert looks_secret(name)
    assert allowed_environment({f"CUDA_{name}": "x"}) == {}


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "PATH",
        "PWD",
        "KEYBOARD",
        "HF_KEY_SIZE",
        "PAT",
        "CUDA_PATH",
        "XAUTHORITY",
        "GIT_AUTHOR_NAME",
    ],
)
def test_names_that_are_none(name: str) -> None:
    """A part of each of these names resembles a secret's, but none is masked."""
    assert not looks_secret(name)


def test_every_variable_that_decides_how_code_runs_is_passed() -> None:
    """The variables are sorted. A name that only begins or ends like one of them is not passed."""
    names = ALLOWED.split()
    others = [*(f"MY_{name}" for name in names), "HOMES", "LC_", "HF_HUB", "SLURM", "DISPLAY", "cuda_x"]
    assert list(allowed_environment(dict.fromkeys([*others, *reversed(names)], "x"))) == sorted(names)


def test_no_finding_reads_as_a_secret() -> None:
    """`harness verify` appends the claim's id in parentheses to each, also to one that names an option of a key."""
    for detail in Detail:
        text = f"{detail.template} (F-MINE-FIRST-001)"
        assert REDACTOR.mask(text) == text
