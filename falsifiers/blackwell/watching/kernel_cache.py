"""Records the kernels that a cache looks up, compiles, loads, logs and runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from falsifiers.blackwell.reference.kernels.nvrtc import Image
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.subjects.prewarm_keys import Cache, Launch, Source

_NOBODYS = "an image from another source"


@dataclass
class CacheWatch:
    """Digests of kernels, in the order in which they were seen.

    A digest stands for the machine code. Keys of the subject are not trusted: two kernels under one key are as wrong as
    one kernel under two keys.
    """

    requested: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    """The kernel that the loaded image was made for, whichever kernel it was loaded as."""
    compiled: list[str] = field(default_factory=list)
    """Names of the compiled kernels."""
    counts: list[int] = field(default_factory=list)
    """The subject's counter before each compilation."""
    constants: list[tuple[str, int | float]] = field(default_factory=list)
    """Names and values of the constants of every launched kernel."""

    @classmethod
    def on(cls, cache: Cache) -> CacheWatch:
        """Start to watch a cache."""
        watch, launch, load = cls(), cache.launch, cache.device.load
        source = _Watched(cache.source, cache, watch)

        def launched(spec: KernelSpec, grid: tuple[int, int, int], threads: int, *arguments: object) -> None:
            watch.requested.append(spec.digest)
            watch.constants.extend(spec.constants)
            launch(spec, grid, threads, *arguments)

        def loading(spec: KernelSpec, image: Image) -> Launch:
            watch.loaded.append(spec.digest)
            made_for = source.made_for(image)
            run = load(spec, image)

            def running(grid: tuple[int, int, int], threads: int, *arguments: object) -> None:
                watch.ran.append(made_for)
                run(grid, threads, *arguments)

            return running

        cache.source = source
        cache.launch = launched  # type: ignore[method-assign]
        cache.device.load = loading  # type: ignore[method-assign]
        return watch

    @property
    def fetched(self) -> int:
        """Kernels loaded or compiled so far: the larger of the two counts, because either can happen alone."""
        return max(len(self.loaded), len(self.compiled))

    def miscounted(self, count: int) -> int:
        """The difference of the subject's counter, now `count`, from one increment for each compilation."""
        steps = [after - before for before, after in zip(self.counts, self.counts[1:], strict=False)]
        return abs(count - len(self.compiled)) + sum(abs(step - 1) for step in steps)


class _Watched:
    """A source of images that records what it makes. See `Source`."""

    def __init__(self, source: Source, cache: Cache, watch: CacheWatch) -> None:
        self._source, self._cache, self._watch = source, cache, watch
        self._made: dict[int, tuple[Image, str]] = {}  # by identity, because in a rehearsal all images are equal

    def image(self, spec: KernelSpec, sm: int) -> tuple[Image, str | None]:
        self._watch.counts.append(self._cache.compilations)
        image, compiler = self._source.image(spec, sm)
        self._made.setdefault(id(image), (image, spec.digest))  # the first kernel counts
        if compiler is None:
            self._watch.counts.pop()
        else:
            self._watch.compiled.append(spec.name)
        return image, compiler

    def made_for(self, image: Image) -> str:
        """The digest of the kernel that an image was first made for."""
        return self._made[id(image)][1] if id(image) in self._made else _NOBODYS


class LogLines(logging.Handler):
    """Collects the log lines about compilations instead of printing thousands of them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._logger = logging.getLogger("falsifiers.blackwell.reference.kernel_cache")

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line if it reports a compilation."""
        line = record.getMessage()
        if line.startswith("compiled "):
            self.lines.append(line)

    def differ_from(self, compiled: Sequence[str]) -> int:
        """The number of compilations without a log line of their own, plus that of lines without a compilation."""
        left = list(self.lines)
        without = 0
        for name in sorted(compiled, key=len, reverse=True):  # longest first: rms_norm is part of rms_norm_backward
            line = next((line for line in left if name in line), None)
            if line is None:
                without += 1
            else:
                left.remove(line)
        return without + len(left)

    def __enter__(self) -> LogLines:
        self._logger.addHandler(self)
        self._logger.propagate = False
        return self

    def __exit__(self, *error: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = True
