"""Mutants of F-BLACKWELL-ARCHIVE-001: archives with missing or forged images, and engines that compile kernels."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from falsifiers.blackwell.reference.block import Block
from falsifiers.blackwell.reference.engine import Engine
from falsifiers.blackwell.reference.kernel_archive import Archive, ArchiveEntry, build, write_index
from falsifiers.blackwell.reference.kernel_cache import CompilerSource, Source
from falsifiers.blackwell.reference.kernels.catalogue import add, block_kernels
from falsifiers.blackwell.reference.kernels.nvrtc import Form, Image, compile_kernel
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.model import LanguageModel
from falsifiers.blackwell.reference.ptx_backend import PtxBackend
from falsifiers.blackwell.reference.torch_backend import TorchBackend

__all__ = [
    "AlteredBytes",
    "AnotherKernel",
    "ClaimsLaunches",
    "CompilesInAChild",
    "CompilesLate",
    "CompilesUncounted",
    "ForgedForOneTarget",
    "ForgedSource",
    "ForgedTarget",
    "JitFromPtx",
    "MissingKernel",
    "MissingTarget",
    "OldAssembler",
    "OtherTarget",
    "PtxInDisguise",
    "RunsOutAtUpload",
    "StaleSource",
    "TakesTooMuchMemory",
    "TorchInstead",
]

_KERNEL = add().key


class _Damaged(Engine):
    """An engine whose archive is a copy, changed by `entries`. It need not run on the GPU of the machine."""

    def archive(self) -> Path:
        """The damaged copy, made once."""
        folder = self.setting.workspace / "archive"
        if not folder.exists():
            shutil.copytree(super().archive(), folder)
            archive = Archive.open(folder)
            write_index(folder, archive.compiler, [*self.entries(archive)])
        return folder

    def entries(self, archive: Archive) -> Iterable[ArchiveEntry]:
        """The entries of the index. An override may change files as well."""
        return archive.entries.values()

    def rewritten(self, archive: Archive, entry: ArchiveEntry, data: bytes) -> ArchiveEntry:
        """The entry with other bytes, and with their digest in the index."""
        (archive.folder / entry.file).write_bytes(data)
        return replace(entry, sha256=hashlib.sha256(data).hexdigest())


class MissingTarget(_Damaged):
    """No image for the newest target, so the driver would have to compile."""

    def entries(self, archive: Archive) -> Iterable[ArchiveEntry]:
        """See `_Damaged`."""
        return [entry for entry in archive.entries.values() if entry.sm != max(self.targets)]


class MissingKernel(_Damaged):
    """One kernel is missing."""

    def entries(self, archive: Archive) -> Iterable[ArchiveEntry]:
        """See `_Damaged`."""
        return [entry for entry in archive.entries.values() if entry.kernel != _KERNEL]


class PtxInDisguise(_Damaged):
    """PTX under the name of machine code: it loads wherever the driver may compile, and costs time and memory there."""

    def entries(self, archive: Archive) -> Iterable[ArchiveEntry]:
        """See `_Damaged`."""
        for entry in archive.entries.values():
            if entry.kernel == _KERNEL:
                yield self.rewritten(archive, entry, compile_kernel(add(), entry.sm, Form.PTX).data)
            else:
                yield entry


class OtherTarget(_Damaged):
    """Machine code of the second newest target under the name of the newest, as sm_120 for sm_121."""

    def entries(self, archive: Archive) -> Iterable[ArchiveEntry]:
        """See `_Damaged`."""
        before, last = sorted(self.targets)[-2:]
        for entry in archive.entries.values():
            if entry.sm == last:
                theirs = archive.entries[entry.kernel, before]
                yield self.rewritten(archive, entry, self.disguised((archive.folder / theirs.file).read_bytes(), last))
            else:
                yield entry

    def disguised(self, data: bytes, target: int) -> bytes:
        """The bytes that are stored."""
        return data


class ForgedTarget(OtherTarget):
    """As OtherTarget, and the ELF header names the requested target."""

    def disguised(self, data: bytes, target: int) -> bytes:
        """Replace bits 8 to 15 of e_flags, at byte 49, which hold the compute capability."""
        return data[:49] + bytes([target]) + data[50:]


class AlteredBytes(_Damaged):
    """One bit of an instruction differs from what was built. Header and index name the right target and source."""

    def entries(self, archive: Archive) -> Iterable[ArchiveEntry]:
        """See `_Damaged`."""
        for entry in archive.entries.values():
            if entry.kernel == _KERNEL:
                path = archive.folder / entry.file
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 1
                path.write_bytes(data)
            yield entry


class AnotherKernel(_Damaged):
    """Two kernels for the same target are exchanged, with files and digests."""

    def entries(self, archive: Archive) -> Iterable[ArchiveEntry]:
        """See `_Damaged`."""
        swapped = {_KERNEL: "silu_gate", "silu_gate": _KERNEL}
        for entry in archive.entries.values():
            theirs = archive.entries[swapped.get(entry.kernel, entry.kernel), entry.sm]
            yield replace(entry, file=theirs.file, sha256=theirs.sha256)


class StaleSource(_Damaged):
    """The source changed after the archive was built."""

    def entries(self, archive: Archive) -> Iterable[ArchiveEntry]:
        """See `_Damaged`."""
        older = hashlib.sha256(b"the source of last week").hexdigest()
        return [
            replace(entry, source=older) if entry.kernel == _KERNEL else entry for entry in archive.entries.values()
        ]


class ForgedSource(_Damaged):
    """Code of an older source, a norm with eps 1e-5, under the digest of the present one."""

    def entries(self, archive: Archive) -> Iterable[ArchiveEntry]:
        """See `_Damaged`."""
        (norm,) = [spec for spec in block_kernels(self.shape) if spec.name == "rms_norm"]
        older = _Older(norm.name, norm.source, (norm.constants[0], ("EPS", 1e-5)))
        for entry in archive.entries.values():
            if entry.kernel == norm.key and self.is_forged(entry.sm):
                yield self.rewritten(archive, entry, compile_kernel(older, entry.sm).data)
            else:
                yield entry

    def is_forged(self, sm: int) -> bool:
        """Whether the image for this target is forged."""
        return True


class ForgedForOneTarget(ForgedSource):
    """As ForgedSource, for the newest target alone, which the machine that built the archive never runs."""

    def is_forged(self, sm: int) -> bool:
        """See `ForgedSource`."""
        return sm == max(self.targets)


class _Older(KernelSpec):
    """A kernel with the key of another eps."""

    @property
    def key(self) -> str:
        """The key for an eps of 1e-6."""
        return KernelSpec(self.name, self.source, (self.constants[0], ("EPS", 1e-6))).key


class OldAssembler(Engine):
    """The compiler does not know the newest target, as no compiler before CUDA 12.9 knew sm_121."""

    def archive(self) -> Path:
        """Build with a target number that the compiler really does not know."""

        def compiled(spec: KernelSpec, sm: int) -> Image:
            return compile_kernel(spec, sm + 800 if sm == max(self.targets) else sm)

        folder = self.setting.workspace / "archive"
        build(folder, [add()], self.targets, compiled=compiled)
        return folder


class _Fallback:
    """Takes images from the archive, and compiles one kernel."""

    def __init__(self, source: Source, kernel: str, form: Form) -> None:
        self.source, self.kernel, self.compiler = source, kernel, CompilerSource(form)

    def image(self, spec: KernelSpec, sm: int) -> tuple[Image, str | None]:
        """See `Source`."""
        return (self.compiler if spec.key == self.kernel else self.source).image(spec, sm)


class CompilesLate(Engine):
    """The warm-up omits one kernel, which is compiled during a step."""

    def source(self) -> Source:
        """See `Engine`."""
        return _Fallback(super().source(), _KERNEL, Form.CUBIN)

    def prewarm(self, backend: PtxBackend) -> None:
        """Load all kernels but one."""
        backend.cache.prewarm(spec for spec in block_kernels(self.shape) if spec.key != _KERNEL)


class CompilesUncounted(CompilesLate):
    """As CompilesLate, and its own counter omits the compilation."""

    def compilations(self) -> int:
        """Always 0."""
        return 0


class CompilesInAChild(Engine):
    """A child process compiles a kernel that the warm-up omitted, as Triton calls ptxas. It is not counted."""

    def source(self) -> Source:
        """See `Engine`."""
        return _ChildCompiler(super().source())

    def prewarm(self, backend: PtxBackend) -> None:
        """Load all kernels but one."""
        backend.cache.prewarm(spec for spec in block_kernels(self.shape) if spec.key != _KERNEL)


class _ChildCompiler:
    """Takes images from the archive, and lets a child process compile one kernel."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def image(self, spec: KernelSpec, sm: int) -> tuple[Image, str | None]:
        """See `Source`."""
        if spec.key != _KERNEL:
            return self.source.image(spec, sm)
        child = (
            "import sys; from falsifiers.blackwell.reference.kernels.catalogue import add; "
            "from falsifiers.blackwell.reference.kernels.nvrtc import compile_kernel; "
            f"sys.stdout.buffer.write(compile_kernel(add(), {sm}).data)"
        )
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-c", child], capture_output=True, env={**os.environ, **path}, check=True
        )
        return Image(Form.CUBIN, done.stdout), None


class JitFromPtx(Engine):
    """One kernel is shipped as PTX, which the driver compiles."""

    def source(self) -> Source:
        """See `Engine`."""
        return _Fallback(super().source(), _KERNEL, Form.PTX)


class TorchInstead(Engine):
    """The archive is perfect, but training runs on torch's kernels."""

    def block(self, backend: PtxBackend) -> Block:
        """See `Engine`."""
        return Block(self.shape, TorchBackend())


class ClaimsLaunches(TorchInstead):
    """As TorchInstead, and it reports launches of every kernel."""

    def launched(self) -> Mapping[str, int]:
        """A million launches of every kernel."""
        return dict.fromkeys((spec.key for spec in block_kernels(self.shape)), 1_000_000)


class TakesTooMuchMemory(Engine):
    """Allocates a tenth more than the cap from the driver, past torch's allocator, as modules do."""

    def start(self) -> LanguageModel:
        """See `Engine`."""
        from cuda.bindings import driver

        model = super().start()
        status, _address = driver.cuMemAlloc(int(1.1 * self.setting.parameters["memory_cap_gib"] * 2**30))
        if status.value != 0:
            raise MemoryError(status.name)
        return model


class RunsOutAtUpload(Engine):
    """Allocates 56 GiB for the first block's score workspace, for a context that no step uses."""

    def block(self, backend: PtxBackend) -> Block:
        """See `Engine`. On a CPU, which has no GPU memory, it only raises the error."""
        shape = (14, 32768, 32768)
        if self.setting.device.startswith("cuda"):
            self.workspace = torch.empty(shape, device=self.setting.device)
            return super().block(backend)
        raise torch.OutOfMemoryError(f"block 0: {4 * torch.Size(shape).numel()} bytes for attention scores")
