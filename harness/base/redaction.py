"""Keeps secrets out of bundles: an allowlist of environment variables, and masking of text.

Three kinds of text are masked: values of this process's variables with secret-looking names, also encoded or split
(see `known_values`); published formats of credentials; and text in the position of a credential, such as after
`password=`. Issuers document the formats of their tokens. RFC 7519 (JWT), RFC 7468 (PEM) and RFC 3986 (credentials in
a URL) define the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from harness.base.known_values import KnownValues

__all__ = ["Redactor", "allowed_environment", "looks_secret", "redactor"]

_ALLOWED = re.compile(
    r"(PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TEMP|TMP|SHELL|TERM|HOSTNAME|VIRTUAL_ENV|LD_LIBRARY_PATH|LD_PRELOAD"
    r"|XDG_\w+|PYTHON\w*|OMP_\w+|MKL_\w+|OPENBLAS_\w+|CUDA_\w+|NVIDIA_\w+|CUBLAS\w*|CUDNN\w*|NCCL_\w+|TORCH\w*|PYTORCH_\w+"
    r"|TRITON_\w+|VK_\w+|WGPU_\w+|MESA_\w+|LIBGL_\w+|HF_HOME|HF_HUB_OFFLINE|TRANSFORMERS_\w+|TOKENIZERS_\w+|SLURMD?_\w+|HARNESS_\w+)"
)
_SECRET_NAME = re.compile(
    r"(TOKEN(?!IZ)|JWT|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|SIGNING_?KEY|_KEY$|_PAT$"
    r"|_PWD$|COOKIE|WEBHOOK|_DSN$|AUTH(?!OR(?!IZ)))",  # not GIT_AUTHOR_NAME and XAUTHORITY
    re.I,
)
_ISSUED = r"""
      (?:AKIA|ASIA)[0-9A-Z]{16}
    | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,} | gl(?:pat|dt|rt)-[A-Za-z0-9_-]{16,}
    | (?:hf|api_org)_[A-Za-z0-9]{20,} | nvapi-[A-Za-z0-9_-]{20,} | r8_[A-Za-z0-9]{30,}
    | (?<![A-Za-z]{2})sk-[A-Za-z0-9_-]{16,}  # not the end of "disk-" or "mask-"
    | [sr]k_(?:live|test)_[A-Za-z0-9]{16,} | whsec_[A-Za-z0-9]{16,} | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
    | xox[abeoprs]-[A-Za-z0-9-]{10,} | xapp-[0-9]-[A-Z0-9]+-[0-9]+-[0-9a-f]{32,}
    | (?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{16,} | (?<=discord\.com/api/webhooks/)[0-9]+/[A-Za-z0-9_-]{32,}
    | AIza[0-9A-Za-z_-]{30,} | ya29\.[A-Za-z0-9_-]{20,} | GOCSPX-[A-Za-z0-9_-]{20,}
    | npm_[A-Za-z0-9]{30,} | pypi-[A-Za-z0-9_-]{16,} | dckr_pat_[A-Za-z0-9_-]{20,} | dapi[0-9a-f]{32}
    | do[opr]_v1_[0-9a-f]{64} | hvs\.[A-Za-z0-9_-]{20,} | (?<=\.atlasv1\.)[A-Za-z0-9_-]{32,}
    | (?:shp(?:at|ca|pa|ss)|sbp|pul|rubygems|lsv2_[ps][tk])[_-][0-9a-f]{32,} | ATATT3[A-Za-z0-9_=-]{50,}
    | (?<![A-Za-z0-9_-])(?!sha[0-9])[a-z][a-z0-9]{1,9}(?:[_-][a-z0-9]{1,5}){0,2}[_-]  # as most issuers build theirs
      (?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{32,}
    | (?<![A-Za-z_-]{2})eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*
    | AGE-SECRET-KEY-(?:PQ-)?1[0-9A-Z]{40,} | (?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])  # Telegram
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY(?:\ BLOCK)?-----(?:.|\n)*?
      (?:-----END\ [A-Z ]*PRIVATE\ KEY(?:\ BLOCK)?-----|\Z)
    | \A(?:[A-Za-z0-9+/=]+\s+)+-----END\ [A-Z ]*PRIVATE\ KEY(?:\ BLOCK)?-----  # a key without its beginning
"""
_PLACED = r"""
      (?i:\b(?:wandb\s+login|password)\s+(?:--[a-z-]+\s+)*)(?P<netrc>[0-9a-f]{40})(?![0-9a-f])
    | (?<=://)(?:[^\s/:@]*:[^\s/]+|[^\s/:@]{16,})(?=@)
    | (?i:authorization\\*["']?\s*[:=]\s*\\*["']?(?:(?:bearer|basic|token|digest)\s+)?) (?P<header>[^\s"'\\]+)
    | (?i:\bbearer\s+)(?P<bearer>[A-Za-z0-9._~+/=-]{16,})
    | (?i:(?:password|passwd|passphrase|secret|(?:api|access|account|private)[_-]?key|signature|\bsig|\bpwd
      # not "loss_per_token: 4.0312" or "pad_token=<|end|>"
      |token(?!\\*["']?\s*[=:]\s*\\*["']?(?:-?[0-9.,]+(?:e[+-]?[0-9]+)?(?![\w.])|<\|)))
      \\*["']?\s*[=:]\s*)
      (?P<assigned>\\*"[^"\n]+"|\\*'[^'\n]+'|[^\s"',;&]{6,})
    | (?i:--(?:[a-z]+-)*(?:password|passwd|passphrase|secret|token|key)\s+)
      (?P<option>(?!\S*\.(?:key|pub|pem)\b)[^\s"'-][^\s"']{5,})  # not the name of a file
"""
_SHAPES = f"{_ISSUED}|{_PLACED}"
"""Of these long patterns, `re` keeps the compiled form after the first use, which most commands never come to."""
MASK = "[masked]"


def allowed_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that are passed to a trial and recorded in a bundle: the allowlist, without secrets."""
    source = os.environ if environment is None else environment
    return {name: source[name] for name in sorted(source) if _ALLOWED.fullmatch(name) and not _SECRET_NAME.search(name)}


def looks_secret(name: str) -> bool:
    """Whether the name of a variable suggests that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


class Redactor:
    """Masks secrets in text and in JSON values."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        source = os.environ if environment is None else environment
        self._known = KnownValues(value for name, value in source.items() if _SECRET_NAME.search(name))

    def mask(self, text: str, start: int = 0, end: int | None = None) -> str:
        """Return text[start:end] with every recognized secret replaced by `[masked]`.

        Known values are searched in the whole text. A value that crosses an end of the slice is masked as well.
        """
        end = len(text) if end is None else end
        pieces, done = [], start
        for first, last in self._known.spans(text):
            if first < end and last > start:
                pieces += [text[done : max(first, start)], MASK]
                done = min(last, end)
        return re.compile(_SHAPES, re.X).sub(_masked, "".join([*pieces, text[done:end]]))

    def credentials(self, value: Any, place: str = "") -> Iterator[str]:
        """Yield JSON pointers to the strings of a JSON value that contain a known value or a published format.

        Text in the position of a credential does not count, because prose contains "one token: greedy" too.
        """
        if isinstance(value, str):
            if self._known.spans(value) or re.search(_ISSUED, value, re.X):
                yield place
        elif isinstance(value, Mapping):
            for key, item in value.items():
                yield from self.credentials(key, f"{place}, a key")
                for pointer in self.credentials(item):
                    yield f"{place}/{self.mask(str(key))}{pointer}"
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                yield from self.credentials(item, f"{place}/{index}")

    def mask_json(self, value: Any) -> Any:
        """Return a JSON value with every text masked, including keys."""
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {self.mask(str(key)): self.mask_json(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.mask_json(item) for item in value]
        return value


@cache
def redactor() -> Redactor:
    """Return the redactor for this process's environment, as it was at the first call."""
    return Redactor()


def _masked(match: re.Match[str]) -> str:
    """Replace the secret of a match, and keep the text that introduces it."""
    secret = next((value for value in match.groupdict().values() if value is not None), None)
    return MASK if secret is None else match[0][: -len(secret)] + MASK
