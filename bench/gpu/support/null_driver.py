"""A device that does nothing, at once: what is left of a run's time is the host's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from brickrt.ops.cuda.kernel import THREADS
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import PRESETS, DeviceSpec
from brickrt.runtime.cuda.kernels.compile import compile_modules
from brickrt.runtime.cuda.kernels.kernel_sources import KernelSource


class NullArray:
    """An array on the device."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.__cuda_array_interface__: dict[str, Any] = {}


class NullMemory:
    """Memory of the device or, with an array of bytes, of the host."""

    def __init__(self, nbytes: int) -> None:
        self.address, self.nbytes, self.array = 1 << 20, nbytes, np.zeros(nbytes, np.uint8)


class NullQueue:
    """Streams, events, functions and graphs."""

    address, resident = 0, 1

    def __init__(self, source: KernelSource | None = None) -> None:
        self.source = source

    def wait(self, event: Any) -> None:
        """Nothing to wait for."""

    def record(self, stream: Any) -> None:
        """Nothing to record."""

    def query(self) -> bool:
        """Everything is done."""
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def launch(self, *_: Any) -> None:
        """Launches nothing."""


class NullDriver:
    """What a program asks of a driver (runtime/cuda/driver/protocol.py); everything is done at once. With `compiles`,
    kernels are compiled for the device, and kept on disk."""

    threads, no_library, fault = THREADS, "a device that does nothing", None

    def __init__(self, spec: DeviceSpec = PRESETS["h200"], compiles: bool = False) -> None:
        self.spec, self._compiles = spec, compiles
        self.current, self.queue = nullcontext(), NullQueue()

    def check_alive(self) -> None:
        """Nothing fails."""

    def allocate(self, nbytes: int, purpose: str = "") -> NullMemory:
        """Memory of the device."""
        return NullMemory(0)

    def pinned(self, nbytes: int, purpose: str = "") -> NullMemory:
        """Memory of the host."""
        return NullMemory(nbytes)

    def copy(self, to: int, start: int, nbytes: int, stream: Any) -> None:
        """Copies nothing."""

    def upload(self, address: int, array: np.ndarray, stream: Any) -> None:
        """Copies nothing."""

    def download(self, array: np.ndarray, address: int, stream: Any) -> None:
        """Copies nothing."""

    def functions(self, sources: Sequence[KernelSource], progress: Any) -> list[NullQueue]:
        """A function for each source, none of which runs."""
        if self._compiles:
            compile_modules([source.text for source in sources], self.spec.isa, progress)
        return [NullQueue(source) for source in sources]

    def library(self) -> None:
        """There is no cuDNN."""

    def stream(self) -> NullQueue:
        """The only stream."""
        return self.queue

    def event(self) -> NullQueue:
        """The only event."""
        return self.queue

    def seconds(self, work: Any, stream: Any) -> float:
        """No time: `work` is not done."""
        return 0.0

    @contextmanager
    def capture(self, stream: Any) -> Iterator[Callable[[], NullQueue]]:
        """Gives a graph of nothing."""
        yield lambda: self.queue

    def view(self, value: Any, stream: Any) -> Any:
        """The value itself."""
        return value

    def empty(self, kind: TensorType, stream: Any) -> NullArray:
        """A new array of the device."""
        return NullArray(kind.shape, kind.dtype)

    def host(self, array: NullArray, stream: Any) -> np.ndarray:
        """Zeros."""
        return np.zeros(array.shape, array.dtype)

    def address(self, array: NullArray) -> int:
        """A number that no other array has."""
        return id(array)

    def stream_of(self, stream: Any) -> NullQueue:
        """The only stream."""
        return self.queue
