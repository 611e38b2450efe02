"""What the driver hands out: CuPy's memory, streams, events and graphs, and kernel functions in modules of CUDA's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.runtime.cuda.driver.cupy_errors import Telling, taking, taking_pinned
from brickrt.runtime.cuda.driver.cupy_import import cu, cudart, cupy
from brickrt.runtime.cuda.driver.protocol import Numbers
from brickrt.runtime.cuda.kernels.kernel_sources import KernelSource

NOT_READY = 600  # cudaErrorNotReady, which is no error
CAREFREE_SHARED = 48 << 10  # bytes of shared memory that no function has to ask for
WINDOWS, REPEATS = 3, 5  # of measuring
WAITING, ORDERING, CHOOSING = map(Telling, ("waiting for work", "ordering streams", "choosing the device"))


class CupyMemory:
    """Zeros from CuPy's pool."""

    def __init__(self, nbytes: int, purpose: str) -> None:
        self.nbytes = nbytes
        with taking(nbytes, purpose):
            self._pointer = cupy.cuda.alloc(max(nbytes, 1))
            self._pointer.memset_async(0, nbytes, cupy.cuda.get_current_stream())
            cupy.cuda.get_current_stream().synchronize()
        self.address: int = self._pointer.ptr


class CupyPinned:
    """Zeros from CuPy's pool of pinned memory, which has one address for host and device."""

    def __init__(self, nbytes: int, purpose: str) -> None:
        with taking_pinned(nbytes, purpose):
            pointer = cupy.cuda.alloc_pinned_memory(max(nbytes, 8))
        self.array = np.frombuffer(pointer, np.uint8, max(nbytes, 8))[:nbytes]  # holds the memory
        self.array[:] = 0
        self.address: int = pointer.ptr


class CupyEvent:
    """A mark in a stream; see `Event`."""

    def __init__(self) -> None:
        with Telling("making an event"):
            self._event = cupy.cuda.Event(disable_timing=True)
        self.address: int = self._event.ptr

    def record(self, stream: CupyStream) -> None:
        """Marks what is on the stream so far."""
        with ORDERING:
            cudart.eventRecord(self.address, stream.address)

    def query(self) -> bool:
        """See `Event`. That an event is not ready CUDA keeps as the thread's last
        error, which other libraries would take for theirs; `check_status` takes it away."""
        with WAITING:
            try:
                cudart.check_status(cudart.eventQuery(self.address))
            except cudart.CUDARuntimeError as e:
                if e.status != NOT_READY:
                    raise
                return False
        return True

    def synchronize(self) -> None:
        """Returns when the work before the mark is done."""
        with WAITING:
            cudart.eventSynchronize(self.address)


class CupyStream:
    """A stream of CuPy's; calls go to CUDA itself, which takes less time."""

    def __init__(self, stream: Any) -> None:
        self.cupy = stream
        self.address: int = stream.ptr

    def wait(self, event: CupyEvent) -> None:
        """What comes later on the stream runs after what the event marks."""
        with ORDERING:
            cudart.streamWaitEvent(self.address, event.address)

    def synchronize(self) -> None:
        """Returns when all work so far is done."""
        with WAITING:
            cudart.streamSynchronize(self.address)


class CupyGraph:
    """A captured graph of CuPy's."""

    _LAUNCHING = Telling("launching the CUDA graph")

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def launch(self, stream: CupyStream) -> None:
        """Puts the graph on a stream."""
        with self._LAUNCHING:
            self._graph.launch(stream.cupy)


class CurrentDevice:
    """Makes a device the calling thread's, and its context with it: calls of the driver's own interface need one."""

    def __init__(self, device: int) -> None:
        self._device = self._before = device

    def __enter__(self) -> None:
        with CHOOSING:
            self._before = cudart.getDevice()
            cudart.setDevice(self._device)

    def __exit__(self, *exc: object) -> None:
        if self._before != self._device:
            with CHOOSING:
                cudart.setDevice(self._before)


class CupyFunction:
    """A function of a module of its own; it is loaded at once, since nothing may be while a graph is captured."""

    def __init__(self, source: KernelSource, cubin: bytes, most_shared: int, together: bool) -> None:
        """`together`: whether the device starts blocks such that all run at once; tickets need it not."""
        self.source, self._together = source, together
        self._launching = Telling(f"launching kernel {source.name}")
        with Telling(f"loading kernel {source.name}"):
            self._load(cubin, most_shared)

    def _load(self, cubin: bytes, most_shared: int) -> None:
        source, self._module = self.source, cupy.cuda.function.Module()
        self._module.load(cubin)
        self._address: int = self._module.get_function(source.name).ptr
        needed = source.shared + cu.funcGetAttribute(cu.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, self._address)
        if needed > most_shared:
            raise BrickError(
                f"kernel {source.name} needs {needed} bytes of shared memory, the device has {most_shared}"
            )
        if needed > CAREFREE_SHARED:
            cu.funcSetAttribute(self._address, cu.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, source.shared)
        self.resident: int = cu.occupancyMaxActiveBlocksPerMultiprocessor(self._address, source.threads, source.shared)

    def launch(self, grid: int, context: np.ndarray, numbers: Numbers, stream: CupyStream, together: bool) -> None:
        """See `DeviceFunction`; all blocks start together only where the device can do that."""
        values = [ctypes.c_int(number) for number in numbers]
        addresses = context.ctypes.data, *(ctypes.addressof(value) for value in values)
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)  # the arguments are copied from there by the call
        shape = (grid, 1, 1, self.source.threads, 1, 1, self.source.shared, stream.address)
        with self._launching:
            if together and self._together:
                cu.launchCooperativeKernel(self._address, *shape, ctypes.addressof(pointers))
            else:
                cu.launchKernel(self._address, *shape, ctypes.addressof(pointers), 0)


def seconds_of(work: Callable[[], None], stream: Any) -> float:
    """Seconds that the work which `work` puts on a stream of CuPy's takes: the least of some averages."""
    with Telling("measuring"):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        seconds = []
        for _ in range(WINDOWS + 1):  # the first one warms up
            begin.record(stream)
            for _ in range(REPEATS):
                work()
            end.record(stream)
            end.synchronize()
            seconds.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3 / REPEATS)
        return min(seconds[1:])
