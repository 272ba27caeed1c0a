"""Files of every format, written by each format's own library, are read correctly."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
import safetensors
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from safetensors.torch import save_file
from syrupy.assertion import SnapshotAssertion

from harness.tools.inspect.checkpoint import Kind, Refused, inspect
from tests.tools.inspect.checkpoint.files import FORMATS, apr, npz, safetensors_bytes, with_apr_header, zero_tensors

DTYPES = {"float32": "F32", "float16": "F16", "float64": "F64", "int32": "I32", "int64": "I64", "int8": "I8"}
NAMES = {"PyTorch zip": "model."}


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, np.ndarray[Any, Any]]:
    """One to four tensors of all dtypes that every format has, with one to three dimensions."""
    names = draw(
        st.lists(st.from_regex(r"[a-zé]{1,8}(\.weight)?", fullmatch=True), min_size=1, max_size=4, unique=True)
    )
    shape = arrays_of.array_shapes(max_dims=3, max_side=5)
    return {name: draw(arrays_of.arrays(draw(st.sampled_from(sorted(DTYPES))), shape)) for name in names}


@pytest.mark.parametrize("format_name", FORMATS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arrays=tensors())
def test_what_was_written_is_seen(format_name: str, arrays: dict[str, Any], tmp_path: Path) -> None:
    """Names, shapes, dtypes, bytes and statistics are those of the arrays."""
    path = tmp_path / "file"
    path.write_bytes(FORMATS[format_name](arrays, tmp_path))
    seen = inspect(path)
    assert (seen.format, seen.file_bytes) == (format_name, path.stat().st_size)
    prefix = NAMES.get(format_name, "")
    assert set(seen.tensors) == {prefix + name for name in arrays}
    for name, array in arrays.items():
        tensor = seen.tensors[prefix + name]
        assert (tensor.dtype, tensor.shape, tensor.size) == (DTYPES[array.dtype.name], array.shape, array.nbytes)
        assert tensor.digest == hashlib.sha256(array.tobytes()).hexdigest()
        statistics = tensor.statistics
        assert statistics is not None
        wide = array.astype(np.float64)
        assert statistics.nan == np.isnan(wide).sum()
        assert statistics.infinite == np.isinf(wide).sum()
        assert statistics.zeros == (wide == 0).sum()
        finite = wide[np.isfinite(wide)]
        if finite.size:
            assert (statistics.minimum, statistics.maximum) == (finite.min(), finite.max())
            with np.errstate(over="ignore"):
                assert statistics.mean == pytest.approx(finite.mean(), rel=1e-6, abs=1e-6 * np.abs(finite).max())
        else:
            assert statistics.minimum is None


def test_metadata_of_every_format(tmp_path: Path) -> None:
    """Metadata are read. Long arrays are counted, not kept."""
    arrays = {"w": np.arange(4, dtype=np.float32)}
    seen = {}
    for name, write in FORMATS.items():
        (tmp_path / "file").write_bytes(write(arrays, tmp_path))
        seen[name] = inspect(tmp_path / "file").metadata
    assert seen["safetensors"] == {"format": "np"}
    assert seen["PyTorch zip"] == {"step": 7}
    assert seen["APR v2"] == {"model_type": "test"}
    assert seen["GGUF"]["llama.block_count"] == 2
    assert seen["GGUF"]["tokenizer.ggml.tokens"] == "array of 40"
    assert seen["GGUF"]["some.numbers"] == [1, 2, 3]


def test_the_200_bytes_that_were_published(tmp_path: Path) -> None:
    """The file is valid safetensors, which every loader opens, and the finding says that it has no weights."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(zero_tensors())
    assert path.stat().st_size == 200
    with safetensors.safe_open(path, "np") as file:
        assert list(file.keys()) == []
    (finding,) = inspect(path).findings
    assert (finding.kind, finding.tensors) == (Kind.NO_WEIGHTS, ())


@pytest.mark.parametrize(
    ("dtype", "name", "values"),
    [
        (torch.bfloat16, "BF16", [1.5, -2.0]),
        (torch.float8_e4m3fn, "F8_E4M3", [448.0, 0.0]),
        (torch.float8_e5m2, "F8_E5M2", [57344.0, 1.0]),
        (torch.float8_e8m0fnu, "F8_E8M0", [2.0**127, 0.5]),
        (torch.uint16, "U16", [65535, 1]),
        (torch.bool, "BOOL", [True, False]),
        (torch.complex64, "C64", [1 + 2j, -3j]),
    ],
)
@pytest.mark.parametrize("container", ["file.safetensors", "file.pt"])
def test_dtypes_that_numpy_lacks(
    tmp_path: Path, dtype: torch.dtype, name: str, values: list[Any], container: str
) -> None:
    """Both of PyTorch's containers are read, with the numbers that torch reads."""
    tensor = torch.tensor(values).to(dtype)
    path = tmp_path / container
    if container.endswith(".pt"):
        torch.save({"t": tensor}, path)
    else:
        save_file({"t": tensor}, path)
    seen = inspect(path).tensors["t"]
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    assert (seen.dtype, seen.elements) == (name, 2)
    assert seen.statistics is not None
    assert (seen.statistics.minimum, seen.statistics.maximum) == (real.double().min(), real.double().max())


def test_four_bit_floats_of_safetensors(tmp_path: Path) -> None:
    """Each byte has two elements, the low one first."""
    header = json.dumps({"t": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}}).encode()
    codes = np.arange(4, dtype=np.uint8) + 4
    path = tmp_path / "file"
    packed = bytes([codes[0] | codes[1] << 4, codes[2] | codes[3] << 4])
    path.write_bytes(struct.pack("<Q", len(header)) + header + packed)
    statistics = inspect(path).tensors["t"].statistics
    values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    assert statistics is not None
    assert (statistics.minimum, statistics.maximum, statistics.mean) == (values.min(), values.max(), values.mean())


def test_views_of_storages(tmp_path: Path) -> None:
    """Transposed, sliced, expanded and tied tensors have the digest of torch's contiguous copy."""
    base = torch.randn(6, 5)
    given_ = {
        "base": base,
        "transposed": base.t(),
        "sliced": base[1:4, ::2],
        "expanded": torch.tensor([1.0, 2.0]).expand(3, 2),
        "scalar": torch.tensor(3.0),
        "parameter": torch.nn.Parameter(base),
        "empty": torch.empty(0, 4),
    }
    torch.save(given_, tmp_path / "file.pt")
    seen = inspect(tmp_path / "file.pt")
    for name, tensor in given_.items():
        expected = tensor.detach().contiguous().numpy()
        assert seen.tensors[name].shape == expected.shape
        assert seen.tensors[name].digest == hashlib.sha256(expected.tobytes()).hexdigest(), name
        if expected.size:
            assert seen.tensors[name].statistics.mean == pytest.approx(expected.astype(np.float64).mean())  # type: ignore[union-attr]
    duplicates = [set(finding.tensors) for finding in seen.findings if finding.kind is Kind.DUPLICATE]
    assert duplicates == [{"base", "parameter"}]


def test_a_whole_training_state(tmp_path: Path) -> None:
    """A module, an optimizer and random numbers are read with their paths, in protocols 2 to 5."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state(), "step": 3}
    for protocol in (2, 3, 4, 5):
        torch.save(state, tmp_path / "file.pt", pickle_protocol=protocol)
        seen = inspect(tmp_path / "file.pt")
        assert {"model.weight", "model.bias", "optimizer.state.0.exp_avg", "rng"} <= set(seen.tensors)
        assert seen.metadata["step"] == 3
        assert seen.metadata["optimizer.param_groups.0.betas"] == [0.9, 0.999]


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_1", "Q8_0", "TQ1_0", "BF16"])
def test_quantised_gguf(tmp_path: Path, kind: str) -> None:
    """The numbers equal those of the package gguf."""
    quantisation = gguf.GGMLQuantizationType[kind]
    packed = gguf.quants.quantize(np.random.default_rng(0).standard_normal((4, 256), np.float32), quantisation)
    writer = gguf.GGUFWriter(tmp_path / "file.gguf", "llama")
    writer.add_tensor("t", packed, raw_dtype=quantisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    seen = inspect(tmp_path / "file.gguf").tensors["t"]
    values = gguf.quants.dequantize(packed, quantisation).astype(np.float64)
    assert (seen.dtype, seen.shape, seen.size) == (kind, (4, 256), packed.nbytes)
    assert seen.statistics is not None
    assert seen.statistics.maximum == values.max()
    assert seen.statistics.mean == pytest.approx(values.mean(), abs=1e-7)


def test_apr_departures_that_can_be_read(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """A missing flag for row-major, reserved bytes and unknown flags are findings."""
    path = tmp_path / "file.apr"
    good = apr({"a": np.ones(3, np.float32), "b": np.arange(3, dtype=np.int8)})
    path.write_bytes(good)
    assert [finding for finding in inspect(path).findings if finding.kind is Kind.LAYOUT] == []
    departures = {"flags": (6, struct.pack("<H", 1 << 15)), "reserved bytes": (50, b"\1")}
    remarks = {}
    for name, (offset, value) in departures.items():
        path.write_bytes(with_apr_header(good, offset, value))
        remarks[name] = [finding.text for finding in inspect(path).findings if finding.kind is Kind.LAYOUT]
    assert {name: len(texts) for name, texts in remarks.items()} == {"flags": 2, "reserved bytes": 1}
    assert remarks == snapshot


@pytest.mark.parametrize("bit", [11, 0, 1, 2], ids=["column-major", "LZ4", "Zstandard", "encrypted"])
def test_apr_flags_that_are_refused(tmp_path: Path, bit: int, snapshot: SnapshotAssertion) -> None:
    path = tmp_path / "file.apr"
    path.write_bytes(with_apr_header(apr({"a": np.ones(3, np.float32)}), 6, struct.pack("<H", 1 << 10 | 1 << bit)))
    with pytest.raises(Refused) as refused:
        inspect(path)
    assert refused.value.offset == 6
    assert refused.value.reason == snapshot


def test_a_placeholder_of_apr_is_empty_and_not_zero(tmp_path: Path) -> None:
    """A head tied to the embedding has its name and shape, and no bytes."""
    from falsifiers.apr.subject import AprFile, TensorRecord
    from tests.tools.inspect.checkpoint.files import SETTING, Reference

    records = [TensorRecord("embed", 0, (2, 2), bytes(range(16))), TensorRecord("lm_head", 0, (2, 2), b"")]
    path = tmp_path / "file.apr"
    path.write_bytes(Reference(SETTING).write(AprFile(records, {})))
    seen = inspect(path)
    assert [(finding.kind, finding.tensors) for finding in seen.findings] == [(Kind.EMPTY, ("lm_head",))]
    assert seen.elements == 4


def test_quantised_apr(tmp_path: Path) -> None:
    """Both kinds of quantisation are read, with a last block that is not full."""
    from falsifiers.apr.subject import AprFile, TensorRecord
    from tests.tools.inspect.checkpoint.files import SETTING, Reference

    eight = struct.pack("<f3b", 0.5, -4, 0, 6)
    four = np.float16(2.0).tobytes() + bytes([0x89, 0x0F]) + bytes(14)
    records = [TensorRecord("eight", 129, (3,), eight), TensorRecord("four", 128, (4,), four)]
    path = tmp_path / "file.apr"
    path.write_bytes(Reference(SETTING).write(AprFile(records, {})))
    seen = inspect(path).tensors
    assert seen["eight"].statistics is not None
    assert seen["four"].statistics is not None
    assert (seen["eight"].statistics.minimum, seen["eight"].statistics.maximum) == (-2.0, 3.0)
    # Nibbles 9, 8, 15 and 0, less 8, times 2.
    assert (seen["four"].statistics.minimum, seen["four"].statistics.maximum) == (-16.0, 14.0)
    assert seen["four"].statistics.mean == 0.0


def test_findings_are_about_what_they_say(tmp_path: Path) -> None:
    """There is one tensor of each kind, and one without a finding."""
    nan = np.ones(4, np.float32)
    nan[1:3] = np.nan, np.inf
    arrays = {
        "fine": np.arange(4, dtype=np.float32),
        "nan": nan,
        "zero": np.zeros(4, np.float32),
        "constant": np.ones(4, np.float32),
        "copy": np.arange(4, dtype=np.float32),
        "one": np.ones(1, np.float32),
        "empty": np.ones((0, 4), np.float32),
    }
    (tmp_path / "file").write_bytes(safetensors_bytes(arrays))
    found = {(finding.kind, finding.tensors) for finding in inspect(tmp_path / "file").findings}
    assert found == {
        (Kind.NOT_FINITE, ("nan",)),
        (Kind.ZERO, ("zero",)),
        (Kind.CONSTANT, ("constant",)),
        (Kind.DUPLICATE, ("copy", "fine")),
        (Kind.EMPTY, ("empty",)),
    }


def test_an_array_whose_first_dimension_is_the_fastest(tmp_path: Path) -> None:
    """NumPy saves what it calls Fortran order so; its digest is that of the rows."""
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    (tmp_path / "file").write_bytes(npz({"w": np.asfortranarray(array), "truth": np.array([True, False])}))
    seen = inspect(tmp_path / "file").tensors
    assert (seen["w"].shape, seen["w"].digest) == ((3, 4), hashlib.sha256(array.tobytes()).hexdigest())
    assert seen["truth"].dtype == "BOOL"


def test_deviation_of_numbers_far_from_zero(tmp_path: Path) -> None:
    """The numbers differ in the last bit of single precision, and the file is read in several pieces."""
    array = np.full(3 << 20, 16384.0, np.float32)
    array[::2] = np.nextafter(array[::2], np.float32(np.inf))
    (tmp_path / "file").write_bytes(safetensors_bytes({"t": array}))
    statistics = inspect(tmp_path / "file").tensors["t"].statistics
    wide = array.astype(np.float64)
    assert statistics is not None
    assert statistics.mean == pytest.approx(wide.mean(), rel=1e-12)
    assert statistics.deviation == pytest.approx(wide.std(), rel=1e-6)
