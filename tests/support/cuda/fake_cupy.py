"""What the driver uses of CuPy, on the host: calls fit the signatures of the real ones, and do at once what they say.

Kernels are host functions behind the addresses of the driver's own interface, with arguments as CUDA is given them.
"""

from __future__ import annotations

import ctypes
import operator
from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import cupy as real
import numpy as np
from cupy.cuda import driver as real_cu
from cupy.cuda import runtime as real_cudart

from brickrt.runtime.cuda.kernels.compile import CompiledModule
from tests.support.cuda.host_kernels import compiled
from tests.support.cuda.host_memory import HostMemory

BITS = {"intptr_t": (64, True), "int": (32, True), "unsigned int": (32, False), "size_t": (64, False)}
PROPERTIES = {
    "name": b"a fake",
    "major": 9,
    "minor": 0,
    "multiProcessorCount": 3,
    "sharedMemPerBlockOptin": 227 << 10,
    "l2CacheSize": 60 << 20,
    "totalGlobalMem": 1 << 30,
}
NUMBERS = 4  # arguments of a kernel after its context
CONTEXT_ROOM = 256  # bytes that are copied of an argument whose size nobody tells


class Refused(real_cudart.CUDARuntimeError):
    """An error of CUDA's; the real one asks the driver for its text."""

    def __init__(self, text: str, status: int = 0) -> None:
        RuntimeError.__init__(self, text)
        self.status = status


def fits(function: Any, args: Sequence[Any]) -> None:
    """Raises AssertionError where a call does not fit the first line of the real function's documentation."""
    line = function.__doc__.splitlines()[0]
    inside = line[line.index("(") + 1 : line.rindex(")")]
    wanted = [one.strip() for one in inside.split(",") if one.strip()]
    least = sum("=" not in one for one in wanted)
    assert least <= len(args) <= len(wanted), f"{line}: {len(args)} arguments"
    for one, value in zip(wanted, args, strict=False):
        kind = one.split("=")[0].rpartition(" ")[0]
        if kind in BITS:
            bits, signed = BITS[kind]
            low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
            assert low <= operator.index(value) < high, f"{line}: {one} is {value}"


class FakeCupy:
    """`cupy`, `cudart` and `cu` are what the driver knows by these names."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.statuses = deque([0])  # what looks at events find, in turns
        self.capturing: list[Callable[[], None]] | None = None
        self.functions: list[Any] = []
        self.memory: list[HostMemory] = []
        self.device = 0
        self.fails: dict[
            str, Exception
        ] = {}  # by names of calls, "alloc", "alloc_pinned", "load", "upload" and "launch"
        self.places: dict[int, int] = {}  # devices of addresses, where it is not the first
        self.cudart, self.cu = self._checked(real_cudart, self._runtime()), self._checked(real_cu, self._driver())
        self.default = self.current = FakeStream(self, 0)
        self.cupy = SimpleNamespace(
            ndarray=Array,
            empty=lambda shape, dtype: Array(self, np.empty(shape, dtype)),
            asarray=self.asarray,
            from_dlpack=lambda value: value.__dlpack__(stream=self.current.ptr),
            ascontiguousarray=lambda value: value,
            cuda=SimpleNamespace(
                alloc=self.alloc,
                alloc_pinned_memory=self.alloc_pinned,
                get_current_stream=lambda: self.default,
                Stream=type("Made", (), {"__new__": lambda cls, non_blocking: FakeStream(self, 99)}),
                Event=lambda disable_timing: SimpleNamespace(ptr=7),
                function=SimpleNamespace(Module=lambda: LoadedModule(self)),
                memory=real.cuda.memory,
            ),
        )
        self.cupy.cuda.Stream.from_external = lambda stream: FakeStream(self, stream.__cuda_stream__()[1])

    def asarray(self, value: Any) -> Any:
        """As the real one: what lies on another device is copied to the current one."""
        if isinstance(value, Array) and value.data.device_id == self.device:
            return value
        address = value.__cuda_array_interface__["data"][0]
        nbytes = int(np.prod(value.shape)) * value.dtype.itemsize
        return Array(self, np.frombuffer(ctypes.string_at(address, nbytes), value.dtype).reshape(value.shape))

    def fail(self, name: str) -> None:
        """Raises what a call is to raise."""
        if name in self.fails:
            raise self.fails[name]

    def alloc(self, nbytes: int) -> Pointer:
        self.fail("alloc")
        assert self.capturing is None, "memory was taken during a capture"
        memory = HostMemory(nbytes)
        memory._room[memory._start : memory._start + nbytes] = 77
        self.memory.append(memory)
        return Pointer(memory)

    def place_of(self, address: int) -> int:
        """The device that an address belongs to."""
        return self.places.get(address, 0)

    def alloc_pinned(self, nbytes: int) -> Any:
        self.fail("alloc_pinned")
        pointer = self.alloc(nbytes)
        room = (ctypes.c_char * nbytes).from_address(pointer.ptr)
        room.ptr, room.held = pointer.ptr, pointer
        return room

    def compile_modules(self, texts: Sequence[str], arch: str, progress: Any) -> list[CompiledModule]:
        """Takes the place of NVRTC."""
        self.library = compiled("\n".join(texts))
        return [CompiledModule(b"\x7fELF", ()) for _ in texts]

    def _checked(self, module: Any, does: dict[str, Callable]) -> Any:
        def made(name: str) -> Callable:
            def call(*args: Any) -> Any:
                fits(getattr(module, name), args)
                self.calls.append(name)
                self.fail(name)
                return does[name](*args)

            return call

        numbers = {name: value for name, value in vars(module).items() if isinstance(value, int | type)}
        return SimpleNamespace(**numbers, **{name: made(name) for name in does})

    def _runtime(self) -> dict[str, Callable]:
        return {
            "memGetInfo": lambda: (100 << 20, 80 << 30),
            "getDeviceCount": lambda: 2,
            "getDevice": lambda: self.device,
            "setDevice": lambda device: setattr(self, "device", device),
            "getDeviceProperties": lambda device: PROPERTIES,
            "deviceGetAttribute": lambda which, device: 1_000_000,
            "deviceSynchronize": self._wait,
            "check_status": real_cudart.check_status,
            "eventQuery": lambda event: self._looked(),
            "eventRecord": lambda event, stream: None,
            "eventSynchronize": self._wait,
            "streamWaitEvent": lambda stream, event, flags=0: None,
            "streamSynchronize": self._wait,
            "memcpyAsync": self._copy,
            "pointerGetAttributes": lambda address: SimpleNamespace(device=self.place_of(address)),
        }

    def _driver(self) -> dict[str, Callable]:
        return {
            "funcGetAttribute": lambda which, function: 0,
            "funcSetAttribute": lambda function, which, value: None,
            "occupancyMaxActiveBlocksPerMultiprocessor": lambda function, threads, shared: 1,
            "launchKernel": lambda f, *rest: self._launch(f, *rest[:-1]),
            "launchCooperativeKernel": self._launch,
        }

    def _looked(self) -> int:
        self.statuses.rotate()
        return self.statuses[0]

    def _wait(self, *_: int) -> None:
        if self.capturing is not None:
            raise Refused("cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing")

    def _copy(self, to: int, start: int, nbytes: int, kind: int, stream: int) -> None:
        assert self.capturing is None, "what is copied in a graph is copied each time"
        ctypes.memmove(to, start, nbytes)

    def _launch(self, f: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, at: int):
        assert gy == gz == by == bz == 1
        places = (ctypes.c_void_p * (1 + NUMBERS)).from_address(at)
        context = ctypes.create_string_buffer(ctypes.string_at(places[0], CONTEXT_ROOM), CONTEXT_ROOM)
        numbers = [ctypes.c_int.from_address(place).value for place in places[1:]]
        function = self.functions[f - 1]

        def work() -> None:
            function(gx, bx, ctypes.c_longlong(shared), ctypes.addressof(context), *numbers, 2)

        function.argtypes = [*[ctypes.c_int] * 2, ctypes.c_longlong, ctypes.c_void_p, *[ctypes.c_int] * 5]
        work() if self.capturing is None else self.capturing.append(work)


class Pointer:
    """Memory of the host, of a pool that did not clear it."""

    def __init__(self, memory: HostMemory) -> None:
        self._memory, self.ptr, self.device_id = memory, memory.address, 0

    def memset_async(self, value: int, nbytes: int, stream: FakeStream) -> None:
        ctypes.memset(self.ptr, value, nbytes)


class FakeStream:
    """A stream that does everything at once, or notes it down while it is captured."""

    def __init__(self, fake: FakeCupy, ptr: int) -> None:
        self.fake, self.ptr = fake, ptr

    def synchronize(self) -> None:
        self.fake._wait()

    def begin_capture(self) -> None:
        assert self.ptr, "the default stream cannot be captured"
        self.fake.capturing = []

    def end_capture(self) -> FakeCapturedGraph:
        work, self.fake.capturing = self.fake.capturing, None
        return FakeCapturedGraph(self.fake, work)

    def __enter__(self) -> None:
        self.fake.calls.append(f"on {self.ptr}")
        self.fake.current = self

    def __exit__(self, *exc: object) -> None:
        self.fake.current = self.fake.default


class FakeCapturedGraph:
    """What was captured, to be done by each launch."""

    def __init__(self, fake: FakeCupy, work: Any) -> None:
        self.fake, self.work = fake, work

    def upload(self, stream: FakeStream) -> None:
        self.fake.fail("upload")

    def launch(self, stream: FakeStream) -> None:
        self.fake.calls.append("graph")
        self.fake.fail("launch")
        for work in self.work:
            work()


class LoadedModule:
    """A compiled module on the device."""

    def __init__(self, fake: FakeCupy) -> None:
        self.fake = fake

    def load(self, cubin: bytes) -> None:
        assert type(cubin) is bytes
        self.fake.fail("load")

    def get_function(self, name: str) -> Any:
        self.fake.functions.append(getattr(self.fake.library, name))
        return SimpleNamespace(ptr=len(self.fake.functions))


class Array:
    """What `cupy.ndarray` is to the driver."""

    def __init__(self, fake: FakeCupy, array: np.ndarray) -> None:
        self.pointer, self.shape, self.dtype, self.nbytes = (
            fake.alloc(array.nbytes),
            array.shape,
            array.dtype,
            array.nbytes,
        )
        ctypes.memmove(self.pointer.ptr, array.ctypes.data, array.nbytes)
        self.data, self.flags, self.device = self.pointer, SimpleNamespace(c_contiguous=True), SimpleNamespace(id=0)
        self.ndim = array.ndim

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.data.ptr, False), "version": 3}

    def get(self, stream: Any = None) -> np.ndarray:
        return np.frombuffer(ctypes.string_at(self.data.ptr, self.nbytes), self.dtype).reshape(self.shape)
