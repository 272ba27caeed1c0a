"""Evaluates the models of an external trainer with the tokenizer and the text that its TOML file names."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from falsifiers.distill.measuring.held_out import HeldOut
from falsifiers.distill.measuring.weight_files import Unreadable
from falsifiers.distill.measuring.weight_formats import read_weights
from falsifiers.distill.oracle.corpus import Tokens, draw
from falsifiers.distill.oracle.qwen2 import SHAPES, new_model
from harness import NotObserved, Setting

_SEED = 20_201
_BLOCKS = 20
_EVERY = 10
"""Every tenth block is evaluated; the others give the token frequencies."""
_LARGEST_TEXT = 64 << 20


def held_out_of(text: str, tokenizer: str, setting: Setting) -> tuple[HeldOut, int]:
    """Sequences of a tenth of a text, spread over it, and the tokenizer's number of tokens.

    Args:
        text: a file in UTF-8.
        tokenizer: a `tokenizer.json` or its folder, or "bytes".

    Raises:
        NotObserved: one of them cannot be read, or the text is too short.
    """
    parameters = setting.parameters
    content = _content(Path(text))
    tokens, vocabulary = _tokens(content, tokenizer)
    length = max(parameters["sequence"] + 1, len(tokens) // (_BLOCKS * _EVERY))
    blocks = [tokens[start : start + length] for start in range(0, len(tokens) - length + 1, length)]
    if len(blocks) < _EVERY:
        needed = _EVERY * (parameters["sequence"] + 1)
        raise NotObserved(f"{text} has {len(tokens)} tokens; {needed} are needed to evaluate a tenth of it")
    held_out = blocks[_EVERY - 1 :: _EVERY]
    counts = torch.ones(vocabulary, dtype=torch.float64)
    for number, block in enumerate(blocks, start=1):
        if number % _EVERY:
            counts += torch.from_numpy(np.bincount(block, minlength=vocabulary))
    drawn = [
        draw(held_out, (_SEED, index), parameters["batch"], parameters["sequence"])
        for index in range(parameters["held_out_batches"])
    ]
    blind = (counts / counts.sum()).log()[torch.cat([labels.flatten() for _, labels in drawn])]
    batches = tuple((inputs.to(setting.device), labels.to(setting.device)) for inputs, labels in drawn)
    return HeldOut(batches, -blind.mean().item(), hashlib.sha256(content).hexdigest()), vocabulary


class NamedText:
    """A text and its tokenizer. Rows of tokens are searched by their bytes.

    So a row is found wherever the trainer cut the text before it tokenised it.

    Attributes:
        tokens: the number of tokens of the text.
    """

    def __init__(self, text: str, tokenizer: str) -> None:
        """Args:
        text, tokenizer: see `held_out_of`.

        Raises:
            NotObserved: one of them cannot be read.
        """
        self._content = _content(Path(text))
        self._ids, self._vocabulary = _tokens(self._content, tokenizer)
        self._tokenizer = None if tokenizer == "bytes" else _tokenizer(tokenizer)
        added = {} if self._tokenizer is None else self._tokenizer.get_added_tokens_decoder()
        self._special = {number for number, token in added.items() if token.special}
        self.tokens = len(self._ids)

    def find(self, row: Sequence[int]) -> int | None:
        """The index of a row's first byte; None if the row is not in this text. Special tokens split it into pieces."""
        pieces: list[list[int]] = [[]]
        for token in row:
            if token in self._special:
                pieces.append([])
            else:
                pieces[-1].append(token)
        starts = [self._find(piece) for piece in pieces if piece]
        return None if not starts or min(starts) < 0 else starts[0]

    def stretch(self, begin: int, length: int) -> tuple[int, ...]:
        """`length` tokens of the text from one of them on."""
        return tuple(self._ids[begin : begin + length].tolist())

    def _find(self, piece: Sequence[int]) -> int:
        if not all(0 <= token < self._vocabulary for token in piece):
            return -1
        if self._tokenizer is None:
            return self._content.find(bytes(piece))
        decoded = self._tokenizer.decode(list(piece), skip_special_tokens=False)
        return self._content.find(decoded.strip("\ufffd").encode())  # a token may be a part of a character


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_TEXT)
    except OSError as error:
        raise NotObserved(f"the text {path} cannot be read: {error.strerror}") from error


def _tokens(content: bytes, tokenizer: str) -> tuple[Tokens, int]:
    if tokenizer == "bytes":
        return np.frombuffer(content, dtype=np.uint8), 256
    read = _tokenizer(tokenizer)
    lines = content.decode(errors="replace").splitlines(keepends=True)
    encodings = read.encode_batch(lines, add_special_tokens=False)
    return np.array([token for encoding in encodings for token in encoding.ids], dtype=np.int64), read.get_vocab_size()


def _tokenizer(named: str) -> tokenizers.Tokenizer:
    place = Path(named)
    place = place / "tokenizer.json" if place.is_dir() else place
    try:
        return tokenizers.Tokenizer.from_file(str(place))
    except Exception as error:  # the library raises no narrower type
        raise NotObserved(f"the tokenizer {place} cannot be read: {error}") from error


class NamedModel:
    """A model of a run, loaded from a file or folder, and kept until another one is requested."""

    def __init__(self, setting: Setting, vocabulary: int) -> None:
        """Args:
        vocabulary: the tokenizer's number of tokens. Models round it up in different ways.
        """
        self._setting = setting
        self._vocabulary = vocabulary
        self._model: Any = None
        self._loaded: tuple[Path, str] | None = None

    @torch.no_grad()
    def answer(self, place: Path, prefix: str, config: str, tokens: Tensor) -> Tensor:
        """The logits [batch, sequence, vocabulary] of the weights at a path, computed in float32.

        Raises:
            NotObserved: they cannot be read, fit no architecture, have fewer tokens, or need more memory than there is.
        """
        if self._model is None or self._loaded != (place, prefix):
            if not place.exists():
                raise NotObserved(f"there is no model {place}")
            try:
                weights, _ = read_weights(place, prefix)
            except (OSError, Unreadable) as error:
                raise NotObserved(f"the model {place} cannot be read: {error}") from error
            self._model = built(place, config, weights, self._setting)
            if (size := self._model.get_output_embeddings().out_features) < self._vocabulary:
                raise NotObserved(f"the tokenizer knows {self._vocabulary} tokens, and the model {place} knows {size}")
            self._loaded = (place, prefix)
        try:
            logits: Tensor = self._model(input_ids=tokens, use_cache=False).logits
        except torch.OutOfMemoryError as error:
            raise NotObserved(f"the memory of {self._setting.device} is too small to evaluate {place}") from error
        return logits[..., : self._vocabulary]


def built(place: Path, config: str, weights: Mapping[str, Tensor], setting: Setting) -> Any:
    """The model in evaluation mode: by its config.json, else the one that the claim names, if the weights fit it.

    Raises:
        NotObserved: the weights do not fit, or transformers knows no model of the config.json.
    """
    device, named = torch.device(setting.device), setting.parameters.get("model")
    file = _config_file(Path(config) if config else place)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if file is not None:
            model = _of_config(file)
        elif isinstance(named, str) and named in SHAPES:
            model = new_model(named, torch.device("cpu"), torch.float32)
        else:
            raise NotObserved(f"there is no config.json beside {place}; name one as /models/config")
    model.tie_weights()
    parameters = dict(model.named_parameters())
    if strange := sorted(
        name for name, weight in parameters.items() if name not in weights or weights[name].shape != weight.shape
    ):
        raise NotObserved(
            f"the weights {place} do not fit {file or named}: {strange[0]} is missing or has another shape"
        )
    for name, weight in parameters.items():
        weight.copy_(weights[name])
    return model.to(device).eval()


def _config_file(place: Path) -> Path | None:
    folder = place if place.is_dir() else place.parent
    file = place if place.suffix == ".json" else folder / "config.json"
    return file if file.is_file() else None


def _of_config(file: Path) -> Any:
    """The architecture of a config.json; no code of the folder runs."""
    try:
        config = AutoConfig.from_pretrained(str(file), local_files_only=True, trust_remote_code=False)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds of errors for a configuration that it does not know
        raise NotObserved(f"{file} describes no language model that transformers knows: {error}") from error
