"""Mutants of F-BLACKWELL-ARCHIVE-001: archives with missing or forged images."""

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from falsifiers.blackwell.reference.engine import Engine
from falsifiers.blackwell.reference.kernel_archive import Archive, ArchiveEntry, write_index
from falsifiers.blackwell.reference.kernels.catalogue import add, block_kernels
from falsifiers.blackwell.reference.kernels.nvrtc import Form, compile_kernel
from falsifiers.blackwell.reference.kernels.spec import KernelSpec

_KERNEL = add().key


class _Damaged(Engine):
    """An engine whose archive is a copy, changed by `entries`. It need not run on the GPU of the machine."""

    def archive(self) -> Path:
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
        return [entry for entry in archive.entries.values() if entry.sm != max(self.targets)]


class MissingKernel(_Damaged):
    """One kernel is missing."""

    def entries(self, archive: Archive) -> Iterable[ArchiveEntry]:
        return [entry for entry in archive.entries.values() if entry.kernel != _KERNEL]


class PtxInDisguise(_Damaged):
    """PTX under the name of machine code: it loads wherever the driver may compile, and costs time and memory there."""

    def entries(self, archive: Archive) -> Iterable[ArchiveEntry]:
        for entry in archive.entries.values():
            if entry.kernel == _KERNEL:
                yield self.rewritten(archive, entry, compile_kernel(add(), entry.sm, Form.PTX).data)
            else:
                yield entry


class OtherTarget(_Damaged):
    """Machine code of the second newest target under the name of the newest, as sm_120 for sm_121."""

    def entries(self, archive: Archive) -> Iterable[ArchiveEntry]:
        before, last = sorted(self.targets)[-2:]
        for entry in archive.entries.values():
            if entry.sm == last:
                other = archive.entries[entry.kernel, before]
                yield self.rewritten(archive, entry, self.disguised((archive.folder / other.file).read_bytes(), last))
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
        swapped = {_KERNEL: "silu_gate", "silu_gate": _KERNEL}
        for entry in archive.entries.values():
            other = archive.entries[swapped.get(entry.kernel, entry.kernel), entry.sm]
            yield replace(entry, file=other.file, sha256=other.sha256)


class StaleSource(_Damaged):
    """The source changed after the archive was built."""

    def entries(self, archive: Archive) -> Iterable[ArchiveEntry]:
        older = hashlib.sha256(b"the source of last week").hexdigest()
        return [
            replace(entry, source=older) if entry.kernel == _KERNEL else entry for entry in archive.entries.values()
        ]


class ForgedSource(_Damaged):
    """Code of an older source, a norm with eps 1e-5, under the digest of the present one."""

    def entries(self, archive: Archive) -> Iterable[ArchiveEntry]:
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
    """As ForgedSource, but only for the newest target. The machine that built the archive never runs it."""

    def is_forged(self, sm: int) -> bool:
        return sm == max(self.targets)


class _Older(KernelSpec):
    """A kernel with the key of another eps."""

    @property
    def key(self) -> str:
        return KernelSpec(self.name, self.source, (self.constants[0], ("EPS", 1e-6))).key
