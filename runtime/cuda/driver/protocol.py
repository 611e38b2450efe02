"""What the CUDA engine needs of a device. `cupy_driver.py` is the real one; tests have one that runs on the host.

Addresses are integers. Work on a stream is done in order, and later than these calls return unless they say otherwise.
Streams and events given are the driver's own. All calls raise DeviceError where they fail, or where a kernel has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from brickrt.ops.cuda.cudnn.form import Form
from brickrt.ops.cuda.cudnn.graph import CudnnPlan
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.runtime.arrays import DeviceArrays
from brickrt.runtime.cuda.kernels.kernel_sources import KernelSource
from brickrt.runtime.progress import KernelProgress

Numbers = tuple[int, int, int, int]  # first task, tasks, which launch, first slot of scratch


class CaptureRefused(Exception):
    """The work on a stream could not be captured into a graph; the message is the reason, in one line."""


class DeviceMemory(Protocol):
    """Device memory, given back when nobody refers to it; it begins at a multiple of 256 bytes."""

    address: int
    nbytes: int


class Pinned(Protocol):
    """Memory of zeros on the host that the device reads and writes too, at the same address."""

    address: int
    array: np.ndarray  # its bytes


class Stream(Protocol):
    """A queue of work."""

    address: int  # as libraries know it

    def wait(self, event: Any) -> None:
        """What comes later on the stream runs after what the event marks."""
        ...

    def synchronize(self) -> None:
        """Returns when all work so far is done."""
        ...


class Event(Protocol):
    """A mark in a stream."""

    def record(self, stream: Any) -> None:
        """Marks what is on the stream so far."""
        ...

    def query(self) -> bool:
        """Whether the work before the mark is done, without waiting for it; if it is not, a later call may tell."""
        ...

    def synchronize(self) -> None:
        """Returns when the work before the mark is done."""
        ...


class DeviceFunction(Protocol):
    """A compiled kernel function on the device."""

    source: KernelSource

    @property
    def resident(self) -> int:
        """Blocks that run on one multiprocessor at the same time."""
        ...

    def launch(self, grid: int, context: np.ndarray, numbers: Numbers, stream: Any, together: bool) -> None:
        """Starts `grid` blocks. The arguments are those of BRICK_KERNEL: the context's words and four numbers; all may
        be changed when the call returns. `together`: all blocks must run at once."""
        ...


class CapturedGraph(Protocol):
    """Captured work."""

    def launch(self, stream: Any) -> None:
        """Puts the graph on a stream."""
        ...


class ProductLibrary(Protocol):
    """Products of whole layers, computed by others."""

    def plan(self, form: Form) -> CudnnPlan:
        """Raises Unfit."""
        ...

    def run(self, plan: CudnnPlan, addresses: Sequence[int], workspace: int, stream: Any) -> None:
        """Puts a plan on a stream: addresses of its form's tensors."""
        ...


class Driver(DeviceArrays, Protocol):
    """One device."""

    spec: DeviceSpec
    threads: int  # of a block
    no_library: str | None  # why there is none, once it was asked for
    fault: str | None  # what a kernel did, in one line, after which the device cannot be used any more

    @property
    def current(self) -> AbstractContextManager[Any]:
        """Inside of it the calling thread works on this device; all else here is called there."""
        ...

    def check_alive(self) -> None:
        """Raises DeviceError where the device took a fault."""
        ...

    def allocate(self, nbytes: int, purpose: str = ...) -> DeviceMemory:
        """Memory of zeros; errors tell its purpose."""
        ...

    def pinned(self, nbytes: int, purpose: str = ...) -> Pinned:
        """Pinned memory of zeros; likewise."""
        ...

    def copy(self, to: int, start: int, nbytes: int, stream: Any) -> None:
        """Copies between pinned memory and the device's; what is copied must stay until the stream is there."""
        ...

    def upload(self, address: int, array: np.ndarray, stream: Any) -> None:
        """Copies a C-contiguous array to the device. The array may be changed when the call returns."""
        ...

    def download(self, array: np.ndarray, address: int, stream: Any) -> None:
        """Copies from the device; `array` is filled in when the stream is synchronized."""
        ...

    def functions(self, sources: Sequence[KernelSource], progress: KernelProgress | None) -> Sequence[DeviceFunction]:
        """Compiles what no cache has."""
        ...

    def library(self) -> ProductLibrary | None:
        """None where there is none that computes products."""
        ...

    def stream(self) -> Stream:
        """A new stream."""
        ...

    def event(self) -> Event:
        """A new event, which marks nothing yet."""
        ...

    def seconds(self, work: Callable[[], None], stream: Any) -> float:
        """How long what `work` puts on the stream takes; it is called several times."""
        ...

    def capture(self, stream: Any) -> AbstractContextManager[Callable[[], CapturedGraph]]:
        """What is put on the stream, and on streams that wait for it, inside the context becomes a graph, given by the
        function afterwards. Raises CaptureRefused."""
        ...

    # ---- the caller's arrays

    def address(self, array: Any) -> int:
        """Where an array of the driver's kind lies."""
        ...

    def stream_of(self, stream: Any) -> Stream:
        """The caller's stream; None is the one that the driver's arrays are made on."""
        ...
