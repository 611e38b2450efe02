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
from brickrt.runtime.cuda.kernels.kernel_sources import KernelSource


class NullArray:
    """An array on the device."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.__cuda_array_interface__: dict[str, Any] = {}


class NullMemory:
    def __init__(self, nbytes: int) -> None:
        self.address, self.nbytes, self.array = 1 << 20, nbytes, np.zeros(nbytes, np.uint8)


class NullQueue:
    """Streams, events, functions and graphs."""

    address, resident = 0, 1

    def __init__(self, source: KernelSource | None = None) -> None:
        self.source = source

    def wait(self, event: Any) -> None: ...

    def record(self, stream: Any) -> None: ...

    def synchronize(self) -> None: ...

    def launch(self, *_: Any) -> None: ...


class NullDriver:
    threads, no_library = THREADS, "a device that does nothing"

    def __init__(self, device: str = "h200") -> None:
        self.spec: DeviceSpec = PRESETS[device]
        self.current, self.queue = nullcontext(), NullQueue()

    def allocate(self, nbytes: int) -> NullMemory:
        return NullMemory(0)

    def pinned(self, nbytes: int) -> NullMemory:
        return NullMemory(nbytes)

    def copy(self, to: int, start: int, nbytes: int, stream: Any) -> None: ...

    def upload(self, address: int, array: np.ndarray, stream: Any) -> None: ...

    def download(self, array: np.ndarray, address: int, stream: Any) -> None: ...

    def functions(self, sources: Sequence[KernelSource], progress: Any) -> list[NullQueue]:
        return [NullQueue(source) for source in sources]

    def library(self) -> None: ...

    def stream(self) -> NullQueue:
        return self.queue

    def event(self) -> NullQueue:
        return self.queue

    def seconds(self, work: Any, stream: Any) -> float:
        return 0.0

    @contextmanager
    def capture(self, stream: Any) -> Iterator[Callable[[], NullQueue]]:
        yield lambda: self.queue

    def view(self, value: Any, stream: Any) -> Any:
        return value

    def empty(self, kind: TensorType, stream: Any) -> NullArray:
        return NullArray(kind.shape, kind.dtype)

    def host(self, array: NullArray, stream: Any) -> np.ndarray:
        return np.zeros(array.shape, array.dtype)

    def address(self, array: NullArray) -> int:
        return id(array)

    def stream_of(self, stream: Any) -> NullQueue:
        return self.queue
