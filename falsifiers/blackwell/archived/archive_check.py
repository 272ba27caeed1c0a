"""What an archive of kernels holds, read from the images themselves and not from its index or file names."""

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from falsifiers.blackwell.reference.kernel_archive import Archive, ArchiveEntry
from falsifiers.blackwell.reference.kernels.nvrtc import compile_kernel, compiler_version
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from harness.tools.inspect.device_code import Form, inspect

NOT_IN_INDEX: Final = "not in the index"


@dataclass(frozen=True)
class ArchiveCheck:
    """The faults of every cell (kernel and target), each as a line `kernel for sm_121: reason`.

    Attributes:
        cells: cells checked: kernels times targets.
        absent: not in the index, or without a file.
        not_machine_code: the file holds no ELF image with machine code, or PTX under such a name.
        other_target: the image is for another compute capability.
        other_kernel: the image does not hold exactly the kernel of the cell.
        stale: the source digest of the index is not that of the present source.
        altered: the bytes do not have the digest of the index.
    """

    cells: int
    absent: tuple[str, ...]
    not_machine_code: tuple[str, ...]
    other_target: tuple[str, ...]
    other_kernel: tuple[str, ...]
    stale: tuple[str, ...]
    altered: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether there is at least one cell and no fault."""
        faults = (self.absent, self.not_machine_code, self.other_target, self.other_kernel, self.stale, self.altered)
        return self.cells > 0 and not any(faults)


def check(archive: Archive, kernels: Iterable[KernelSpec], targets: Iterable[int]) -> ArchiveCheck:
    """Check every cell of kernels x targets."""
    specs, capabilities = list(kernels), list(targets)
    faults: dict[str, list[str]] = {}
    for sm in capabilities:
        for spec in specs:
            for kind, why in _faults(archive, spec, sm):
                faults.setdefault(kind, []).append(f"{spec.key} for sm_{sm}: {why}")
    kinds = ("absent", "not_machine_code", "other_target", "other_kernel", "stale", "altered")
    return ArchiveCheck(len(specs) * len(capabilities), *(tuple(faults.get(kind, ())) for kind in kinds))


def _faults(archive: Archive, spec: KernelSpec, sm: int) -> Iterator[tuple[str, str]]:
    entry = archive.entries.get((spec.key, sm))
    if entry is None:
        yield "absent", NOT_IN_INDEX
        return
    if entry.source != spec.digest:
        yield "stale", "compiled from another source or with other options"
    try:
        path = archive.file(entry)
        data, inspection = path.read_bytes(), inspect(path)
    except OSError as error:
        yield "absent", f"{entry.file}: {error.strerror}"
        return
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        yield "altered", f"{entry.file} has other bytes than were built"
    codes = inspection.codes
    if len(codes) != 1 or codes[0].form is not Form.MACHINE_CODE or codes[0].offset != 0:
        forms = ", ".join(code.form.value for code in codes) or "no device code"
        yield "not_machine_code", f"{entry.file} holds {forms}"
        return
    (code,) = codes
    # Three places of the image name the target; a forged image must agree in all of them.
    named = {code.sm, code.noted_sm, None if code.target is None else int(code.target.removeprefix("sm_").rstrip("af"))}
    if named - {None} != {sm}:
        yield "other_target", f"{entry.file} is for {', '.join(f'sm_{target}' for target in sorted(named - {None}))}"
    if code.kernels != (spec.key,):
        yield "other_kernel", f"{entry.file} holds {', '.join(code.kernels) or 'no kernel'}"


def not_reproduced(archive: Archive, cells: Iterable[tuple[KernelSpec, int]]) -> list[str]:
    """The cells that compile to other bytes than the archive holds. A forged index cannot hide these.

    Raises:
        ValueError: the archive was built with another compiler than this machine has, so bytes cannot be compared.
    """
    here = f"nvrtc {compiler_version()}"
    if archive.compiler != here:
        raise ValueError(
            f"the archive was built with {archive.compiler}; this machine has {here}: use the same compiler"
        )
    cells = list(cells)
    with ThreadPoolExecutor() as pool:
        equal = pool.map(lambda cell: _reproduces(archive, *cell), cells)
        return [f"{spec.key} for sm_{sm}" for (spec, sm), is_equal in zip(cells, equal, strict=True) if not is_equal]


def _reproduces(archive: Archive, spec: KernelSpec, sm: int) -> bool:
    entry: ArchiveEntry | None = archive.entries.get((spec.key, sm))
    try:
        return entry is not None and archive.file(entry).read_bytes() == compile_kernel(spec, sm).data
    except OSError:
        return False
