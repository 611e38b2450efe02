"""A device of the CUDA engine on the host: NumPy for memory, g++ for NVRTC, and streams whose work runs in any order.

Work is queued until somebody waits for it. Then streams take turns at random, as far as the events between them allow:
what an event should have ordered shows. Captured work is a graph whose nodes run in a random order that it allows.

A driver can take a fault (`strike`), as a GPU does: from then on pinned memory stays as it was at that moment, no work
runs, and every call raises. Memory can run out (`allocations`).
"""

from __future__ import annotations

import ctypes
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import tests.support.cuda.verified_programs  # noqa: F401  (programs on the host are verified)
from brickrt.graph.errors import BrickError
from brickrt.ops.cuda.kernel import THREADS
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import PRESETS, DeviceSpec
from brickrt.runtime.cuda.driver.device_errors import DeviceError, NoMemory
from brickrt.runtime.cuda.driver.protocol import CaptureRefused, Numbers
from brickrt.runtime.cuda.kernels.kernel_sources import KernelSource
from tests.support.cuda.host_kernels import compiled
from tests.support.cuda.host_memory import HostArray, HostMemory, HostPinned

SMALL = replace(PRESETS["h200"], name="a small GPU on the host", cores=3)
MOST_AT_A_LOOK = 2  # pieces of work that are done while the host looks at an event
Work = Callable[[], None]


@dataclass
class Token:
    """What a record of an event marks: work of a stream, or nodes of a graph that is captured."""

    done: bool = False
    nodes: frozenset[int] | None = None


class HostEvent:
    """An event of streams."""

    def __init__(self, driver: HostDriver) -> None:
        self.driver = driver
        self.token: Token | None = None
        self.unseen = 0  # looks that find it not done though it is

    def record(self, stream: HostStream) -> None:
        self.driver.check_alive()
        self.token = stream.mark()
        self.unseen = self.driver.random.randint(0, self.driver.late)
        stream.driver.calls.append(("record", stream.number))

    def query(self) -> bool:
        """Some work is done meanwhile, of any streams."""
        token = self.token
        assert token is None or token.nodes is None, "what was captured is asked for"
        self.driver.run_some()
        if token is None or not token.done:
            return token is None
        self.unseen -= 1
        return self.unseen < 0

    def synchronize(self) -> None:
        token = self.token
        if token is not None:
            assert token.nodes is None, "what was captured is waited for"
            self.driver.run(lambda: token.done)


class HostStream:
    """A queue of work, of which the driver does the first whenever it chooses this stream."""

    def __init__(self, driver: HostDriver, number: int) -> None:
        self.driver, self.number, self.address = driver, number, number
        self.queue: deque[Work | Token] = deque()
        self.nodes: frozenset[int] = frozenset()  # of the graph under capture, that the next work comes after

    @property
    def captured(self) -> bool:
        return self in self.driver.capturing

    def put(self, work: Work) -> None:
        self.driver.check_alive()
        if self.captured:
            graph = self.driver.capturing[self]
            graph.append((work, self.nodes))
            self.nodes = frozenset([len(graph) - 1])
        else:
            self.queue.append(work)

    def mark(self) -> Token:
        if self.captured:
            return Token(nodes=self.nodes)
        token = Token()
        self.queue.append(lambda: setattr(token, "done", True))
        return token

    def wait(self, event: HostEvent) -> None:
        self.driver.check_alive()
        self.driver.calls.append(("wait", self.number))
        if event.token is None:
            return
        if event.token.nodes is None:
            assert not self.captured, "captured work waits for work outside of the capture"
            self.queue.append(event.token)
            return
        if not self.captured:
            assert self.driver.capturing, "work waits for what was only captured"
            self.driver.capturing[self] = next(iter(self.driver.capturing.values()))
        self.nodes |= event.token.nodes

    def synchronize(self) -> None:
        assert not self.captured, "a captured stream was synchronized"
        self.driver.run(lambda: not self.queue)


@dataclass
class HostGraph:
    """A captured graph: its nodes run in any order that their dependencies allow."""

    driver: HostDriver
    nodes: list[tuple[Work, frozenset[int]]]

    def launch(self, stream: HostStream) -> None:
        self.driver.calls.append(("graph", len(self.nodes)))
        stream.put(self._run)

    def _run(self) -> None:
        left = dict(enumerate(self.nodes))
        while left and self.driver.struck is None:
            ready = [k for k, (_, needs) in left.items() if not needs & left.keys()]
            left.pop(k := self.driver.random.choice(ready))
            self.nodes[k][0]()


class HostFunction:
    """A kernel function compiled for the host."""

    def __init__(self, driver: HostDriver, source: KernelSource, library: ctypes.CDLL, name: str) -> None:
        self.driver, self.source, self.library = driver, source, library
        self.function = getattr(library, name)

    def before(self) -> None:
        """Called when the kernel is about to run."""

    def after(self) -> None:
        """Called when it has."""

    @property
    def resident(self) -> int:
        return self.driver.resident

    def launch(self, grid: int, context: np.ndarray, numbers: Numbers, stream: HostStream, together: bool) -> None:
        assert grid > 0
        self.driver.calls.append(("launch", self.source.name, grid, *numbers))
        shared, words = ctypes.c_longlong(self.source.shared), context.copy()

        def work() -> None:
            self.before()
            argument = ctypes.c_void_p(words.ctypes.data)
            self.function(grid, self.source.threads, shared, argument, *numbers, self.driver.workers)
            self.after()

        stream.put(work)


@dataclass
class HostDriver:
    """`resident` blocks run on one of `spec.cores` multiprocessors, in truth on `workers` threads. That an event is
    done the host sees at most `late` looks later."""

    spec: DeviceSpec = SMALL
    threads: int = THREADS
    resident: int = 2
    workers: int = 2
    seed: int = 0
    captures: bool = True
    late: int = 0
    flags: tuple[str, ...] = ()
    given_library: Any = None
    no_library: str | None = None
    allocations: int | None = None  # until there is no memory left
    cost: Callable[[list[tuple]], float] = len  # of what was called, in seconds
    calls: list[tuple] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.streams: list[HostStream] = []
        self.capturing: dict[HostStream, list[tuple[Work, frozenset[int]]]] = {}
        self.memory: list[HostMemory] = []
        self.lock = threading.RLock()
        self.struck: str | None = None
        self.fault: str | None = None
        self.default = self.stream()

    def check_alive(self) -> None:
        if self.struck is not None:
            raise DeviceError("using the device", self.struck, True)

    def strike(self) -> None:
        """The device takes a fault: called while a kernel runs."""
        if self.struck is None:
            self.struck = "cudaErrorIllegalAddress: an illegal memory access was encountered"
            for memory in self.memory:
                if isinstance(memory, HostPinned):
                    memory.freeze()

    def _take(self, purpose: str) -> None:
        self.check_alive()
        if self.allocations is not None:
            if not self.allocations:
                raise NoMemory("taking memory", "the host", purpose, "none is free")
            self.allocations -= 1

    def allocate(self, nbytes: int, purpose: str = "a program") -> HostMemory:
        assert not self.capturing, "memory was taken during a capture"
        self._take(purpose)
        self.memory.append(HostMemory(nbytes))
        return self.memory[-1]

    @property
    def current(self) -> AbstractContextManager[None]:
        return nullcontext()

    def pinned(self, nbytes: int, purpose: str = "a program") -> HostPinned:
        assert not self.capturing, "memory was taken during a capture"
        self._take(purpose)
        self.memory.append(found := HostPinned(nbytes))
        return found

    def copy(self, to: int, start: int, nbytes: int, stream: HostStream) -> None:
        assert nbytes and not stream.captured
        self.calls.append(("copy", nbytes))
        stream.put(lambda: ctypes.memmove(to, start, nbytes))

    def upload(self, address: int, array: np.ndarray, stream: HostStream) -> None:
        assert array.flags.c_contiguous and array.nbytes and not stream.captured
        content = array.tobytes()
        self.calls.append(("upload", array.nbytes))
        stream.put(lambda: ctypes.memmove(address, content, len(content)))

    def download(self, array: np.ndarray, address: int, stream: HostStream) -> None:
        assert array.flags.c_contiguous and array.nbytes and not stream.captured
        self.calls.append(("download", array.nbytes))
        stream.put(lambda: ctypes.memmove(array.ctypes.data, address, array.nbytes))

    def functions(self, sources: Sequence[KernelSource], progress: Any) -> list[HostFunction]:
        text = "\n".join(source.text for source in sources)
        library = compiled(text, *self.flags)
        if progress:
            progress(len(sources), len(sources))
        return [HostFunction(self, source, library, source.name) for source in sources]

    def library(self) -> Any:
        return self.given_library

    def stream(self) -> HostStream:
        self.streams.append(HostStream(self, len(self.streams)))
        return self.streams[-1]

    def event(self) -> HostEvent:
        return HostEvent(self)

    def seconds(self, work: Work, stream: HostStream) -> float:
        began = len(self.calls)
        work()
        stream.synchronize()
        return self.cost(self.calls[began:])

    @contextmanager
    def capture(self, stream: HostStream) -> Iterator[Callable[[], HostGraph]]:
        if not self.captures:
            raise CaptureRefused("this driver does not capture")
        nodes: list[tuple[Work, frozenset[int]]] = []
        self.capturing = {stream: nodes}
        yield lambda: HostGraph(self, nodes)
        joined, reached = self.capturing, _before(nodes, stream.nodes)
        self.capturing = {}
        for one in joined:
            assert one.nodes <= reached, "a stream of the capture was not joined again"
            one.nodes = frozenset()

    def run(self, until: Callable[[], bool]) -> None:
        """Runs work of all streams at random, until something is so."""
        with self.lock:
            self.check_alive()
            while not until():
                assert self._run_one(), "the streams wait for one another"

    def run_some(self) -> None:
        """Runs as much as a device might have done between two looks of the host: nothing, or a little."""
        with self.lock:
            self.check_alive()
            for _ in range(self.random.randrange(MOST_AT_A_LOOK + 1)):
                self._run_one()

    def _run_one(self) -> bool:
        """Runs work of a stream, if there is any that can go."""
        able = [s for s in self.streams if s.queue and _can_go(s.queue[0])]
        if not able:
            return False
        work = self.random.choice(able).queue.popleft()
        if not isinstance(work, Token):
            work()
        if self.struck is not None:
            self._end()
        return True

    def _end(self) -> None:
        """Nothing runs any more, and what was written after the fault is not there."""
        for memory in self.memory:
            if isinstance(memory, HostPinned) and memory.frozen is not None:
                memory.thaw()
        raise DeviceError("waiting for work", str(self.struck), True)

    def check(self) -> None:
        for memory in self.memory:
            memory.check()

    # ---- arrays

    def view(self, value: Any, stream: Any) -> HostArray:
        if not isinstance(value, HostArray):
            raise BrickError("an array lies on another device")
        return value

    def empty(self, kind: TensorType, stream: Any) -> HostArray:
        return HostArray(np.full(kind.shape, 77).astype(kind.dtype))

    def host(self, array: HostArray, stream: Any) -> np.ndarray:
        self.stream_of(stream).synchronize()
        return array.get()

    def address(self, array: HostArray) -> int:
        return array.__cuda_array_interface__["data"][0]

    def stream_of(self, stream: Any) -> HostStream:
        return self.default if stream is None else stream


def _can_go(work: Work | Token) -> bool:
    return work.done if isinstance(work, Token) else True


def _before(nodes: Sequence[tuple[Work, frozenset[int]]], tails: frozenset[int]) -> set[int]:
    """Nodes that are complete when these are, themselves included."""
    found: set[int] = set()
    left = list(tails)
    while left:
        k = left.pop()
        if k not in found:
            found.add(k)
            left.extend(nodes[k][1])
    return found
