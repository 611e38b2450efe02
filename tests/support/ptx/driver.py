"""The device of `host_driver`, whose kernels are PTX: they may touch its allocations, and arrays it was given."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from brickrt.ops.types import TensorType
from brickrt.runtime.cuda.kernels.kernel_sources import KernelSource
from tests.support.cuda.host_driver import HostDriver, HostFunction
from tests.support.cuda.host_memory import HostArray
from tests.support.ptx.build import PtxLibrary, compiled


@dataclass
class PtxDriver(HostDriver):
    """The device on the host whose kernels are compiled to PTX for `arch`."""

    arch: str = "sm_90"
    arrays: weakref.WeakSet[HostArray] = field(default_factory=weakref.WeakSet)

    def functions(self, sources: Sequence[KernelSource], progress: Any) -> list[HostFunction]:
        with ThreadPoolExecutor(2) as pool:
            libraries = list(pool.map(lambda source: compiled(source.text, self.arch), sources))
        if progress:
            progress(len(sources), len(sources))
        return [self._function(source, library) for source, library in zip(sources, libraries, strict=True)]

    def _function(self, source: KernelSource, library: PtxLibrary) -> HostFunction:
        kernels = SimpleNamespace(**{source.name: library.kernel(source.name, self.ranges)})
        return HostFunction(self, source, kernels, source.name)  # type: ignore[arg-type]

    def ranges(self, *_: Any) -> Iterator[tuple[int, int]]:
        yield from ((m.address, m.nbytes) for m in self.memory)
        yield from ((self.address(a), a.nbytes) for a in self.arrays)

    def view(self, value: Any, stream: Any) -> HostArray:
        self.arrays.add(array := super().view(value, stream))
        return array

    def empty(self, kind: TensorType, stream: Any) -> HostArray:
        self.arrays.add(array := super().empty(kind, stream))
        return array
