"""Layers beyond linear ones and attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from benchmarks.various_steps.training import Step, block, made, training


def lstm() -> Step:
    """Two layers of LSTM by cuDNN."""
    model = nn.LSTM(512, 1024, 2, batch_first=True).cuda()
    x = made(64, 128, 512)
    return training(model, lambda: model(x)[0].square().mean())


def gru() -> Step:
    """A bidirectional GRU by cuDNN."""
    model = nn.GRU(512, 512, bidirectional=True).cuda()
    x = made(128, 64, 512)
    return training(model, lambda: model(x)[0].square().mean())


def lstm_cells() -> Step:
    """An LSTM cell in a loop."""
    cell = nn.LSTMCell(1024, 1024).cuda()
    x = made(48, 256, 1024)

    def loss() -> Tensor:
        state = (torch.zeros(256, 1024, device="cuda"), torch.zeros(256, 1024, device="cuda"))
        kept = []
        for row in x:
            state = cell(row, state)
            kept.append(state[0])
        return torch.stack(kept).square().mean()

    return training(cell, loss)


def hand_written_rnn() -> Step:
    """A recurrence of plain operators over many positions."""
    inner, outer = nn.Linear(1024, 1024).cuda(), nn.Linear(1024, 1024).cuda()
    x = made(64, 512, 1024)

    def loss() -> Tensor:
        state = torch.zeros(512, 1024, device="cuda")
        for row in x:
            state = torch.tanh(inner(state) + outer(row))
        return state.square().mean()

    return training([*inner.parameters(), *outer.parameters()], loss)


def channels_last() -> Step:
    """Convolutions in channels_last with batch normalization."""
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.Conv2d(64, 64, 3, padding=1)
    ).cuda()
    model = model.to(memory_format=torch.channels_last)
    x = made(32, 3, 128, 128).to(memory_format=torch.channels_last)
    return training(model, lambda: model(x).square().mean())


def grouped_convolution() -> Step:
    """Convolutions of groups and of single channels."""
    model = nn.Sequential(nn.Conv2d(64, 128, 3, groups=8), nn.SiLU(), nn.Conv2d(128, 128, 5, groups=128)).cuda()
    x = made(16, 64, 64, 64)
    return training(model, lambda: model(x).square().mean())


def pooling_with_indices() -> Step:
    """Pooling that keeps the places of its maxima, and its inverse."""
    weight = made(1, 64, 1, 1, grad=True)
    x = made(16, 64, 256, 256)

    def loss() -> Tensor:
        found, places = F.max_pool2d(x * weight, 2, return_indices=True)
        return F.max_unpool2d(found.tanh(), places, [2, 2]).square().mean()

    return training([weight], loss)


def averaged_pooling() -> Step:
    """Average and adaptive pooling in two and three dimensions."""
    weight = made(1, 32, 1, 1, 1, grad=True)
    x = made(8, 32, 32, 64, 64)

    def loss() -> Tensor:
        hidden = F.avg_pool3d(x * weight, 2)
        flat = F.adaptive_avg_pool2d(hidden.flatten(0, 1), 16)
        return flat.square().mean() + F.adaptive_max_pool2d(hidden.flatten(0, 1), 8).square().mean()

    return training([weight], loss)


def normalizations() -> Step:
    """Normalization over groups, over instances and over the batch, without convolutions."""
    layers = nn.Sequential(nn.GroupNorm(8, 64), nn.InstanceNorm2d(64, affine=True), nn.BatchNorm2d(64)).cuda()
    x = made(32, 64, 128, 128)
    return training(layers, lambda: layers(x).square().mean())


def sampled_grid() -> Step:
    """Values of an image at learned places, and resampling."""
    places = nn.Parameter(torch.rand(8, 256, 256, 2, device="cuda") * 2 - 1)
    image = nn.Parameter(made(8, 32, 256, 256))

    def loss() -> Tensor:
        found = F.grid_sample(image, places, align_corners=False)
        found = F.interpolate(found, scale_factor=2.0, mode="bilinear")
        return F.interpolate(found, size=128, mode="bicubic").square().mean()

    return training([places, image], loss)


def shuffled_pixels() -> Step:
    """Pixels shuffled into channels and back, with reflected and circular borders."""
    mix = nn.Linear(256, 256).cuda()
    x = made(16, 64, 128, 128)

    def loss() -> Tensor:
        hidden = F.pixel_unshuffle(x, 2).movedim(1, -1)
        hidden = F.pixel_shuffle(mix(hidden).movedim(-1, 1), 2)
        hidden = F.pad(hidden, (2, 2, 2, 2), mode="reflect")
        return F.pad(hidden, (1, 1, 1, 1), mode="circular").square().mean()

    return training(mix, loss)


def unfolded() -> Step:
    """Patches taken by unfold and added again by fold."""
    mix = nn.Linear(32 * 9, 32 * 9).cuda()
    x = made(4, 32, 96, 96)

    def loss() -> Tensor:
        patches = F.unfold(x, 3, padding=1)
        return F.fold(mix(patches.mT).mT, (96, 96), 3, padding=1).square().mean()

    return training(mix, loss)


def fourier() -> Step:
    """Products of learned weights with Fourier coefficients."""
    weight = nn.Parameter(made(64, 64, dtype=torch.complex64))
    x = made(16, 64, 128, 128)

    def loss() -> Tensor:
        found = torch.einsum("bixy,io->boxy", torch.fft.rfft2(x), weight)
        return torch.fft.irfft2(found).square().mean()

    return training([weight], loss)


def einsum_attention() -> Step:
    """Heads of attention by einsum, with relative distances."""
    wq, wk, wv, wo = (nn.Parameter(made(1024, 16, 64) / 32) for _ in range(4))
    bias = nn.Parameter(made(16, 512, 512))
    x = made(8, 512, 1024)

    def loss() -> Tensor:
        q, k, v = (torch.einsum("btd,dhe->bhte", x, weight) for weight in (wq, wk, wv))
        shares = (torch.einsum("bhqe,bhke->bhqk", q, k) / 8 + bias).softmax(-1)
        return torch.einsum("bhqk,bhke,dhe->bqd", shares, v, wo).square().mean()

    return training([wq, wk, wv, wo, bias], loss)


def rotated_complex() -> Step:
    """Rotary positions by complex numbers, and root mean square normalization, in bfloat16."""
    project = nn.Linear(2048, 3 * 2048, bias=False, dtype=torch.bfloat16).cuda()
    norm = nn.RMSNorm(2048, dtype=torch.bfloat16).cuda()
    angles = torch.outer(torch.arange(1024.0), 1e4 ** (-torch.arange(0.0, 128, 2) / 128)).cuda()
    turn = torch.polar(torch.ones_like(angles), angles)
    x = made(4, 1024, 2048, dtype=torch.bfloat16)

    def turned(tensor: Tensor) -> Tensor:
        pairs = torch.view_as_complex(tensor.float().unflatten(-1, (64, 2)))
        return torch.view_as_real(pairs * turn).flatten(-2).to(tensor.dtype)

    def loss() -> Tensor:
        q, k, v = (part.unflatten(-1, (16, 128)).transpose(1, 2) for part in project(norm(x)).chunk(3, -1))
        return F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True).float().square().mean()

    return training([*project.parameters(), *norm.parameters()], loss)


def weights_from_others() -> Step:
    """Weights that are computed: normalized, orthogonal in one step of power iteration, and with a mask."""
    first = parametrizations.weight_norm(nn.Linear(2048, 2048))
    second = parametrizations.spectral_norm(nn.Linear(2048, 2048))
    model = nn.Sequential(first, nn.GELU(), second).cuda()
    x = made(8192, 2048)
    return training(model, lambda: model(x).square().mean())


def in_place() -> Step:
    """Activations and sums that are computed in place."""
    layers = nn.ModuleList(nn.Linear(2048, 2048) for _ in range(8)).cuda()
    x = made(8192, 2048)

    def loss() -> Tensor:
        hidden = x.clone()
        for layer in layers:
            hidden = layer(hidden).mul_(0.5).add_(1.0).relu_()
        hidden = hidden * 2
        hidden[:, :16].zero_()
        hidden[:, 16:32] = 1.0
        return hidden.sigmoid_().mean()

    return training(layers, loss)


def dropouts() -> Step:
    """Several kinds of dropout between linear layers in half precision."""
    kinds = (nn.Dropout(0.1), nn.AlphaDropout(0.1), nn.Dropout1d(0.1), nn.FeatureAlphaDropout(0.1))
    model = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.SELU(), kind) for kind in kinds)).cuda().bfloat16()
    x = made(32, 512, 1024, dtype=torch.bfloat16)
    return training(model, lambda: model(x).float().square().mean())


def transformer_float16() -> Step:
    """torch's own encoder layers under autocast to float16, with a GradScaler."""
    layer = nn.TransformerEncoderLayer(1024, 16, batch_first=True, norm_first=True, activation="gelu")
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
    x = made(8, 512, 1024)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = model(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def decoder_with_memory() -> Step:
    """A decoder layer that attends to another sequence, and biases in float32 under autocast to bfloat16."""
    layer = nn.TransformerDecoderLayer(1024, 16, batch_first=True, dropout=0.0)
    model = nn.TransformerDecoder(layer, 4).cuda()
    x, memory = made(8, 256, 1024), made(8, 384, 1024)
    mask = nn.Transformer.generate_square_subsequent_mask(256, device=torch.device("cuda"))

    def loss() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return model(x, memory, tgt_mask=mask, tgt_is_causal=True).float().square().mean()

    return training(model, loss)


def deep_residual() -> Step:
    """Forty blocks of small width with clipping of each gradient's values."""
    model = nn.ModuleList(block(512, 0.1) for _ in range(40)).cuda()
    x = made(8192, 512)

    def loss() -> Tensor:
        hidden = x
        for each in model:
            hidden = hidden + each(hidden)
        return hidden.square().mean()

    return training(model, loss)
