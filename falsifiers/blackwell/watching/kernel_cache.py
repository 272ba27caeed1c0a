"""What is asked of a kernel cache, what it compiles, loads and says, and what then runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from falsifiers.blackwell.reference.kernel_cache import KernelCache, Launch, Source
from falsifiers.blackwell.reference.kernels.nvrtc import Image
from falsifiers.blackwell.reference.kernels.spec import KernelSpec

__all__ = ["CacheWatch", "LogLines"]

_NOBODYS = "an image that the source never made"


@dataclass
class CacheWatch:
    """Digests, in the order in which they were seen, of what the machine code follows from.

    Keys are the subject's own affair: two kernels under one key are as wrong as one kernel under two.
    """

    asked: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    """Of the image that was loaded, whatever it was loaded for."""
    compiled: list[str] = field(default_factory=list)
    """Names of the kernels that were compiled."""
    counts: list[int] = field(default_factory=list)
    """The subject's counter, at each compilation."""

    @classmethod
    def on(cls, cache: KernelCache) -> CacheWatch:
        """Look on from now on."""
        watch, launch, load = cls(), cache.launch, cache.device.load
        source = _Watched(cache.source, cache, watch)

        def launched(spec: KernelSpec, grid: tuple[int, int, int], threads: int, *arguments: object) -> None:
            watch.asked.append(spec.digest)
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
        """Kernels that were loaded or compiled until now: what is compiled need not be loaded, nor the other way."""
        return max(len(self.loaded), len(self.compiled))

    def miscounted(self, count: int) -> int:
        """By how many the subject's counter, now at `count`, went another way than one up for each compilation."""
        steps = [after - before for before, after in zip(self.counts, self.counts[1:], strict=False)]
        return abs(count - len(self.compiled)) + sum(abs(step - 1) for step in steps)


class _Watched:
    """A source of images, looked at."""

    def __init__(self, source: Source, cache: KernelCache, watch: CacheWatch) -> None:
        self._source, self._cache, self._watch = source, cache, watch
        self._made: dict[int, tuple[Image, str]] = {}  # by identity: in rehearsal all images are equal

    def image(self, spec: KernelSpec, sm: int) -> tuple[Image, str | None]:
        """See `Source`."""
        self._watch.counts.append(self._cache.compilations)
        image, compiler = self._source.image(spec, sm)
        self._made.setdefault(id(image), (image, spec.digest))  # what it was made for first, it is
        if compiler is None:
            self._watch.counts.pop()
        else:
            self._watch.compiled.append(spec.name)
        return image, compiler

    def made_for(self, image: Image) -> str:
        """The digest of what an image was made for."""
        return self._made[id(image)][1] if id(image) in self._made else _NOBODYS


class LogLines(logging.Handler):
    """Keeps the lines that the subject logs of compilations, instead of printing them a thousand times."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._logger = logging.getLogger("falsifiers.blackwell.reference.kernel_cache")

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        line = record.getMessage()
        if line.startswith("compiled "):
            self.lines.append(line)

    def differ_from(self, compiled: Sequence[str]) -> int:
        """How many compilations, by their kernels' names, have no line of their own, and lines no compilation."""
        left = list(self.lines)
        without = 0
        for name in sorted(compiled, key=len, reverse=True):  # rms_norm_backward before rms_norm, which is in it
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
