"""The device as CuPy gives it. Only files named cupy_… import CuPy, and none of them is imported without need."""

from __future__ import annotations

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
from brickrt.runtime.after_fork import tell_children
from brickrt.runtime.cuda.driver.cudnn_plans import Plans
from brickrt.runtime.cuda.driver.cupy_errors import TOLD, Telling, device_error, taking
from brickrt.runtime.cuda.driver.cupy_import import FAILURES, cudart, cupy
from brickrt.runtime.cuda.driver.cupy_objects import (
    CupyEvent,
    CupyFunction,
    CupyGraph,
    CupyMemory,
    CupyPinned,
    CupyStream,
    CurrentDevice,
    seconds_of,
)
from brickrt.runtime.cuda.driver.device_errors import FORKED, DeviceError, after, in_mib
from brickrt.runtime.cuda.driver.device_spec import LEAST_CAPABILITY, Properties, spec_of
from brickrt.runtime.cuda.driver.protocol import CaptureRefused
from brickrt.runtime.cuda.kernels.compile import compile_modules
from brickrt.runtime.cuda.kernels.kernel_sources import KernelSource
from brickrt.runtime.cuda.kernels.packages import load_library
from brickrt.runtime.progress import KernelProgress

STREAMS = tuple(getattr(cupy.cuda, name) for name in ("Stream", "ExternalStream") if hasattr(cupy.cuda, name))
ALIGNMENT = 16  # bytes that vector loads need
LIBRARIES = "cudart", "cublasLt", "cudnn"  # that cuDNN and its frontend look for
COPYING, VIEWING = Telling("copying memory"), Telling("taking an input", "a copy of an input")


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
        self.fault: str | None = None
        tell_children(self)

    def after_fork(self) -> None:
        """See `Forked`."""
        self._starting, self.fault = threading.Lock(), FORKED

    def check_alive(self) -> None:
        """See `Driver`. The question costs little and CUDA answers it while a stream is captured too."""
        with Telling("using the device"):
            cudart.memGetInfo()

    def allocate(self, nbytes: int, purpose: str = "a program") -> CupyMemory:
        """Memory of zeros."""
        return CupyMemory(nbytes, purpose)

    @property
    def current(self) -> CurrentDevice:
        """See `Driver`."""
        return CurrentDevice(self._id)

    def pinned(self, nbytes: int, purpose: str = "a program") -> CupyPinned:
        """Memory of zeros on the host that the device reads and writes too."""
        return CupyPinned(nbytes, purpose)

    def copy(self, to: int, start: int, nbytes: int, stream: CupyStream) -> None:
        """Copies between pinned memory and the device's."""
        with COPYING:
            cudart.memcpyAsync(to, start, nbytes, cudart.memcpyDefault, stream.address)

    def upload(self, address: int, array: np.ndarray, stream: CupyStream) -> None:
        """Copies to the device, from memory that is not pinned: CUDA takes the array before the call returns."""
        kind = cudart.memcpyHostToDevice
        with COPYING:
            cudart.memcpyAsync(address, array.ctypes.data, array.nbytes, kind, stream.address)

    def download(self, array: np.ndarray, address: int, stream: CupyStream) -> None:
        """Copies from the device; `array` is filled in when the stream is synchronized."""
        kind = cudart.memcpyDeviceToHost
        with COPYING:
            cudart.memcpyAsync(array.ctypes.data, address, array.nbytes, kind, stream.address)

    def functions(self, sources: Sequence[KernelSource], progress: KernelProgress | None) -> list[CupyFunction]:
        """Compiles what no cache has, and loads all."""
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
        """A new stream, which does not wait for the default one."""
        with Telling("making a stream"):
            return CupyStream(cupy.cuda.Stream(non_blocking=True))

    def event(self) -> CupyEvent:
        """A new event."""
        return CupyEvent()

    def seconds(self, work: Callable[[], None], stream: CupyStream) -> float:
        """See `Driver`."""
        return seconds_of(work, stream.cupy)

    @contextmanager
    def capture(self, stream: CupyStream) -> Iterator[Callable[[], CupyGraph]]:
        """See `Driver`."""
        graphs: list[CupyGraph] = []
        try:
            stream.cupy.begin_capture()  # relaxed: other threads may allocate meanwhile
            try:
                yield lambda: graphs[0]
            except BaseException:
                with suppress(*FAILURES):
                    stream.cupy.end_capture()  # its own error would hide the reason
                raise
            with Telling("making the CUDA graph"):
                graph = stream.cupy.end_capture()
                graph.upload(stream.cupy)
            graphs.append(CupyGraph(graph))
        except DeviceError as e:
            if e.fatal:
                raise
            raise CaptureRefused(str(e)) from e
        except BrickError:
            raise
        except Exception as e:  # libraries have errors of their own for what they cannot do while captured
            raise CaptureRefused(" ".join(str(e).split()) or type(e).__name__) from e

    # ---- the caller's arrays

    def view(self, value: Any, stream: Any) -> Any:
        """An array of any library on this GPU as CuPy's, which kernels can read: copied only where that must be."""
        self._check_fault()
        if isinstance(value, cupy.ndarray) and self._usable(value):
            return value
        with VIEWING:
            where = self._device_of(value)
        if where != self._id:  # CuPy would copy it
            raise BrickError(f"an input lies on GPU {where}, the model runs on GPU {self._id}: copy it there")
        with VIEWING, self.current, self.stream_of(stream).cupy:
            array = cupy.ascontiguousarray(_taken(value))
            return array if self._usable(array) else array.copy()

    def _check_fault(self) -> None:
        if self.fault is not None:
            raise after(self.fault)

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
        """An array of CuPy's for an output, in the order of a stream."""
        self._check_fault()
        try:
            with self.current:
                if stream is None:
                    return cupy.empty(kind.shape, kind.dtype)
                with self.stream_of(stream).cupy:
                    return cupy.empty(kind.shape, kind.dtype)
        except TOLD as e:
            what = f"an output, {kind}"
            raise device_error(e, f"taking memory for {what}", f"the {in_mib(kind.nbytes)} of {what}") from None

    def host(self, array: Any, stream: Any) -> np.ndarray:
        """A copy in NumPy, once the stream, or without one the device, is done."""
        self._check_fault()
        with Telling("copying an array to the host"), self.current:
            if stream is None:
                cudart.deviceSynchronize()
            return array.get(stream=self.stream_of(stream).cupy)

    def address(self, array: Any) -> int:
        """Where an array of CuPy's lies."""
        return array.data.ptr

    def stream_of(self, stream: Any) -> CupyStream:
        """The caller's stream, of any library; None is CuPy's current one."""
        return CupyStream(_stream(stream))


_DRIVERS: dict[int, CupyDriver] = {}


def current_driver() -> CupyDriver:
    """That of the current device, which has one in a process: cuDNN's handles and plans are its own."""
    if fault := next((driver.fault for driver in _DRIVERS.values() if driver.fault), None):
        raise after(fault)
    device = _device()
    if device not in _DRIVERS:
        _DRIVERS[device] = CupyDriver()
    return _DRIVERS[device]


def _measured(cudnn: Cudnn, stream: Any, run: Run, sizes: Sequence[int], workspace: int) -> float:
    """Seconds of one run of a plan on a stream."""
    with taking(sum(sizes) + workspace, f"measuring a plan of cuDNN's, with a workspace of {in_mib(workspace)}"):
        memory = [cupy.cuda.alloc(max(n, 1)) for n in (*sizes, workspace)]
        addresses = [held.ptr for held in memory[:-1]]
        cupy.cuda.get_current_stream().synchronize()  # what the memory was used for is done
    cudnn.use(stream.ptr)
    return seconds_of(lambda: run(addresses, memory[-1].ptr), stream)


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
    if capability < LEAST_CAPABILITY:
        least = "{}.{}".format(*LEAST_CAPABILITY)
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
