"""The device as CuPy gives it: memory of its pool, streams, events and graphs. The only file that imports CuPy."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.ops.cuda.cudnn.graph import Cudnn, Missing, Run
from brickrt.ops.cuda.kernel import THREADS
from brickrt.ops.types import TensorType
from brickrt.runtime.cuda.driver.cudnn_plans import Plans
from brickrt.runtime.cuda.driver.device_spec import LEAST, Properties, spec_of
from brickrt.runtime.cuda.driver.protocol import CaptureRefused, Numbers
from brickrt.runtime.cuda.kernels.compile import compile_modules
from brickrt.runtime.cuda.kernels.kernel_sources import KernelSource
from brickrt.runtime.cuda.kernels.packages import load_library
from brickrt.runtime.progress import KernelProgress

try:
    import cupy
    from cupy.cuda import driver as cu
    from cupy.cuda import runtime as cudart
except ImportError as e:
    reason = " ".join(str(e).split())[:200]
    raise BrickError(
        f"device 'cuda' needs CuPy ({reason}): pip install 'brickrt[cuda13]' (or [cuda12]), or use --device cpu"
    ) from None

FAILURES = (cudart.CUDARuntimeError, cu.CUDADriverError)
CAREFREE_SHARED = 48 << 10  # bytes of shared memory that no function has to ask for
STREAMS = tuple(getattr(cupy.cuda, name) for name in ("Stream", "ExternalStream") if hasattr(cupy.cuda, name))
ALIGNMENT = 16  # bytes that vector loads need
WINDOWS, REPEATS = 3, 5  # of measuring a plan of cuDNN
LIBRARIES = "cudart", "cublasLt", "cudnn"  # that cuDNN and its frontend look for


class CupyMemory:
    """Zeros from CuPy's pool."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._pointer = cupy.cuda.alloc(max(nbytes, 1))
        self._pointer.memset_async(0, nbytes, cupy.cuda.get_current_stream())
        cupy.cuda.get_current_stream().synchronize()
        self.address: int = self._pointer.ptr


class CupyPinned:
    """Zeros from CuPy's pool of pinned memory, which has one address for host and device."""

    def __init__(self, nbytes: int) -> None:
        pointer = cupy.cuda.alloc_pinned_memory(max(nbytes, 8))
        self.array = np.frombuffer(pointer, np.uint8, max(nbytes, 8))[:nbytes]  # holds the memory
        self.array[:] = 0
        self.address: int = pointer.ptr


class CupyEvent:
    def __init__(self) -> None:
        self._event = cupy.cuda.Event(disable_timing=True)
        self.address: int = self._event.ptr

    def record(self, stream: CupyStream) -> None:
        cudart.eventRecord(self.address, stream.address)

    def synchronize(self) -> None:
        cudart.eventSynchronize(self.address)


class CupyStream:
    def __init__(self, stream: Any) -> None:
        self.cupy = stream
        self.address: int = stream.ptr

    def wait(self, event: CupyEvent) -> None:
        cudart.streamWaitEvent(self.address, event.address)

    def synchronize(self) -> None:
        cudart.streamSynchronize(self.address)


class CupyGraph:
    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def launch(self, stream: CupyStream) -> None:
        self._graph.launch(stream.cupy)


class _Current:
    """Makes a device the calling thread's, and its context with it: calls of the driver's own interface need one."""

    def __init__(self, device: int) -> None:
        self._device = self._before = device

    def __enter__(self) -> None:
        self._before = cudart.getDevice()
        cudart.setDevice(self._device)

    def __exit__(self, *exc: object) -> None:
        if self._before != self._device:
            cudart.setDevice(self._before)


class CupyFunction:
    """A function of a module of its own; it is loaded at once, since nothing may be while a graph is captured."""

    def __init__(self, source: KernelSource, cubin: bytes, most_shared: int, together: bool) -> None:
        """`together`: whether the device starts blocks such that all run at once; tickets need it not."""
        self.source, self._together = source, together
        self._module = cupy.cuda.function.Module()
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
        values = [ctypes.c_int(number) for number in numbers]
        addresses = context.ctypes.data, *(ctypes.addressof(value) for value in values)
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)  # the arguments are copied from there by the call
        shape = (grid, 1, 1, self.source.threads, 1, 1, self.source.shared, stream.address)
        if together and self._together:
            cu.launchCooperativeKernel(self._address, *shape, ctypes.addressof(pointers))
        else:
            cu.launchKernel(self._address, *shape, ctypes.addressof(pointers), 0)


class CupyDriver:
    """The current device. Raises BrickError, with what is missing and how to get it, where there is none."""

    threads = THREADS

    def __init__(self) -> None:
        self._id, self._starting = _device(), threading.Lock()
        self._properties = _properties(self._id)
        self.spec = spec_of(self._properties)
        self._together = bool(cudart.deviceGetAttribute(cudart.cudaDevAttrCooperativeLaunch, self._id))
        self._library: Plans | None = None
        self.no_library: str | None = None

    def allocate(self, nbytes: int) -> CupyMemory:
        try:
            return CupyMemory(nbytes)
        except cupy.cuda.memory.OutOfMemoryError:
            raise BrickError(f"the GPU has no {nbytes / 2**20:.0f} MiB of memory left for this program") from None

    @property
    def current(self) -> _Current:
        return _Current(self._id)

    def pinned(self, nbytes: int) -> CupyPinned:
        return CupyPinned(nbytes)

    def copy(self, to: int, start: int, nbytes: int, stream: CupyStream) -> None:
        cudart.memcpyAsync(to, start, nbytes, cudart.memcpyDefault, stream.address)

    def upload(self, address: int, array: np.ndarray, stream: CupyStream) -> None:
        kind = cudart.memcpyHostToDevice
        cudart.memcpyAsync(address, array.ctypes.data, array.nbytes, kind, stream.address)

    def download(self, array: np.ndarray, address: int, stream: CupyStream) -> None:
        kind = cudart.memcpyDeviceToHost
        cudart.memcpyAsync(array.ctypes.data, address, array.nbytes, kind, stream.address)

    def functions(self, sources: Sequence[KernelSource], progress: KernelProgress | None) -> list[CupyFunction]:
        modules = compile_modules([source.text for source in sources], self.spec.isa, progress)
        pairs, limits = zip(sources, modules, strict=True), (self._properties.shared, self._together)
        return [CupyFunction(source, module.image, *limits) for source, module in pairs]

    def library(self) -> Plans | None:
        """cuDNN; `no_library` says why there is none."""
        with self._starting, self.current:
            if self._library is None and self.no_library is None:
                for name in LIBRARIES:
                    load_library(name)
                try:
                    cudnn = Cudnn()
                    measure = partial(_measured, cudnn, cupy.cuda.Stream(non_blocking=True))
                    self._library = Plans(cudnn, f"{self.spec.name} {self.spec.isa}", measure)
                except Missing as e:
                    self.no_library = str(e)
            return self._library

    def stream(self) -> CupyStream:
        return CupyStream(cupy.cuda.Stream(non_blocking=True))

    def event(self) -> CupyEvent:
        return CupyEvent()

    def seconds(self, work: Callable[[], None], stream: CupyStream) -> float:
        return _seconds(work, stream.cupy)

    @contextmanager
    def capture(self, stream: CupyStream) -> Iterator[Callable[[], CupyGraph]]:
        graphs: list[CupyGraph] = []
        try:
            stream.cupy.begin_capture()  # relaxed: other threads may allocate meanwhile
            try:
                yield lambda: graphs[0]
            except BaseException:
                with suppress(*FAILURES):
                    stream.cupy.end_capture()  # its own error would hide the reason
                raise
            graph = stream.cupy.end_capture()
            graph.upload(stream.cupy)
            graphs.append(CupyGraph(graph))
        except BrickError:
            raise
        except Exception as e:  # libraries have errors of their own for what they cannot do while captured
            raise CaptureRefused(" ".join(str(e).split()) or type(e).__name__) from e

    # ---- the caller's arrays

    def view(self, value: Any, stream: Any) -> Any:
        if isinstance(value, cupy.ndarray) and self._usable(value):
            return value
        if (where := self._device_of(value)) != self._id:  # CuPy would copy it
            raise BrickError(f"an input lies on GPU {where}, the model runs on GPU {self._id}: copy it there")
        with self.current, self.stream_of(stream).cupy:
            array = cupy.ascontiguousarray(_taken(value))
            return array if self._usable(array) else array.copy()

    def _device_of(self, value: Any) -> int:
        """The GPU that has an array of CuPy, DLPack or the CUDA array interface."""
        if isinstance(value, cupy.ndarray):
            return value.data.device_id
        if hasattr(value, "__dlpack_device__"):
            return value.__dlpack_device__()[1]
        address = value.__cuda_array_interface__["data"][0]
        return cudart.pointerGetAttributes(address).device if address else self._id  # empty ones lie nowhere

    def _usable(self, array: Any) -> bool:
        """Whether kernels can read an array of CuPy where it lies."""
        data = array.data
        return data.device_id == self._id and data.ptr % ALIGNMENT == 0 and array.flags.c_contiguous

    def empty(self, kind: TensorType, stream: Any) -> Any:
        with self.current:
            if stream is None:
                return cupy.empty(kind.shape, kind.dtype)
            with self.stream_of(stream).cupy:
                return cupy.empty(kind.shape, kind.dtype)

    def host(self, array: Any, stream: Any) -> np.ndarray:
        with self.current:
            if stream is None:
                cudart.deviceSynchronize()
            return array.get(stream=self.stream_of(stream).cupy)

    def address(self, array: Any) -> int:
        return array.data.ptr

    def stream_of(self, stream: Any) -> CupyStream:
        return CupyStream(_stream(stream))


_DRIVERS: dict[int, CupyDriver] = {}


def current_driver() -> CupyDriver:
    """That of the current device, which has one in a process: cuDNN's handles and plans are its own."""
    device = _device()
    if device not in _DRIVERS:
        _DRIVERS[device] = CupyDriver()
    return _DRIVERS[device]


def _measured(cudnn: Cudnn, stream: Any, run: Run, sizes: Sequence[int], workspace: int) -> float:
    """Seconds of one run of a plan on a stream."""
    memory = [cupy.cuda.alloc(max(n, 1)) for n in (*sizes, workspace)]
    addresses = [held.ptr for held in memory[:-1]]
    cupy.cuda.get_current_stream().synchronize()  # what the memory was used for is done
    cudnn.use(stream.ptr)
    return _seconds(lambda: run(addresses, memory[-1].ptr), stream)


def _seconds(work: Callable[[], None], stream: Any) -> float:
    """See `Driver.seconds`: the least of some averages."""
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


def _taken(value: Any) -> Any:
    """An array of another library as one of CuPy, on the current stream. By DLPack, where it can: then the library lets
    that stream wait for what it has under way on others; by the CUDA array interface PyTorch, for one, does not."""
    if isinstance(value, cupy.ndarray) or not hasattr(value, "__dlpack__"):
        return cupy.asarray(value)
    return cupy.from_dlpack(value)


class _Foreign:
    """A stream of another library by its address, for what follows the CUDA stream protocol; `held` stays alive."""

    def __init__(self, address: int, held: Any) -> None:
        self._address, self._held = address, held

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


def _stream(stream: Any) -> Any:
    """CuPy's stream for one of CuPy, PyTorch or what has `__cuda_stream__`, or for an address."""
    if stream is None:
        return cupy.cuda.get_current_stream()
    if isinstance(stream, STREAMS):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    address = protocol()[1] if protocol else getattr(stream, "cuda_stream", stream)
    if not isinstance(address, int):
        raise BrickError(f"a {type(stream).__name__} is no CUDA stream: give CuPy's, PyTorch's, or an address")
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(_Foreign(address, stream))
    return cupy.cuda.ExternalStream(address)


def _device() -> int:
    try:
        count = cudart.getDeviceCount()
    except FAILURES as e:
        reason = " ".join(str(e).split())
        raise BrickError(
            f"device 'cuda': no usable NVIDIA driver ({reason}): install one, or use --device cpu"
        ) from None
    if not count:
        raise BrickError("device 'cuda': the driver finds no GPU; use --device cpu")
    device = cudart.getDevice()
    try:
        cudart.setDevice(device)  # takes the GPU, which another process may have to itself
    except FAILURES as e:
        reason = " ".join(str(e).split())
        raise BrickError(f"device 'cuda': GPU {device} cannot be used ({reason}); use --device cpu") from None
    return device


def _properties(device: int) -> Properties:
    known = cudart.getDeviceProperties(device)
    capability = known["major"], known["minor"]
    name = known["name"].decode()
    if capability < LEAST:
        least = "{}.{}".format(*LEAST)
        raise BrickError(
            f"device 'cuda': the {name} is too old, compute capability {least} is needed; use --device cpu"
        )
    return Properties(
        name,
        capability,
        known["multiProcessorCount"],
        known["sharedMemPerBlockOptin"],
        known["l2CacheSize"],
        known["totalGlobalMem"],
        cudart.deviceGetAttribute(cudart.cudaDevAttrClockRate, device),
        cudart.deviceGetAttribute(cudart.cudaDevAttrMemoryClockRate, device),
        cudart.deviceGetAttribute(cudart.cudaDevAttrGlobalMemoryBusWidth, device),
    )
