"""Lets `run_on_host` and `run_in_scratch` run a kernel's PTX."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from brickrt.ops.cuda.kernel import THREADS
from tests.support.cuda import host_kernels, host_scratch
from tests.support.ptx.build import PtxLibrary, Ranges, compiled


class Single:
    """In place of what compiles and what gives arrays their place: a launch may touch its arrays alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, arch: str) -> None:
        self.arch = arch
        self.launches = 0
        self._arrays: list[np.ndarray] = []
        self._aligned, self._place = host_kernels._aligned, host_scratch._Place
        monkeypatch.setattr(host_kernels, "_aligned", self.aligned)
        monkeypatch.setattr(host_kernels, "compiled", self.compiled)
        monkeypatch.setattr(host_scratch, "compiled", self.compiled)
        monkeypatch.setattr(host_scratch, "_Place", self.place)

    def aligned(self, array: np.ndarray) -> np.ndarray:
        self._arrays.append(self._aligned(array))
        return self._arrays[-1]

    def place(self, array: np.ndarray, off: int) -> host_scratch._Place:
        place = self._place(array, off)
        self._arrays.append(place.array)
        return place

    def compiled(self, source: str, *_: str) -> _Runner:
        text = source.replace("(run, Boxes, 64, 1)", f"(run, Boxes, {THREADS}, 1)")
        return _Runner(compiled(text, self.arch), self.ranges)

    def ranges(self, blocks: int, threads: int, shared: Any, context: Any, first: int, count: int, *_: int) -> Ranges:
        """The arrays since the last launch, and the struct Boxes that `context` is."""
        self.launches += 1
        arrays, self._arrays = self._arrays, []
        boxes, addresses, rank = ctypes.cast(context, ctypes.POINTER(ctypes.c_int64))[:3]
        yield boxes, (first + count) * 2 * rank * 4
        yield addresses, len(arrays) * 8
        yield from ((a.ctypes.data, a.nbytes) for a in arrays)


class _Runner:
    def __init__(self, library: PtxLibrary, ranges: Callable[..., Ranges]) -> None:
        self.run = library.kernel("run", ranges)
