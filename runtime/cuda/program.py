"""A program of the CUDA engine, and its runs."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.runtime.after_fork import tell_children
from brickrt.runtime.cuda.blueprint import Blueprint, CudaOptions, draw_up
from brickrt.runtime.cuda.check_tables import check_tables
from brickrt.runtime.cuda.device_state import DeviceState
from brickrt.runtime.cuda.driver.alignment import aligned_size
from brickrt.runtime.cuda.driver.device_errors import FORKED, DeviceError
from brickrt.runtime.cuda.driver.protocol import CapturedGraph, CaptureRefused, DeviceFunction, Driver, Stream
from brickrt.runtime.cuda.faults import Faults
from brickrt.runtime.cuda.kernels.kernel_context import MOST_TASKS, why_stopped
from brickrt.runtime.cuda.launch_marks import LaunchMarks, by_schedule
from brickrt.runtime.cuda.launch_names import LaunchNames
from brickrt.runtime.cuda.launcher import Launcher
from brickrt.runtime.cuda.memory.constants import PackedConstants
from brickrt.runtime.cuda.memory.io_buffers import IoBuffers
from brickrt.runtime.cuda.program_tables import Units
from brickrt.runtime.cuda.schedule.device_events import DeviceEvents
from brickrt.runtime.cuda.schedule.stream_schedule import schedule
from brickrt.runtime.environment import checked
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.program_protocol import Cancelled, Counts
from brickrt.runtime.progress import KernelProgress

STREAMS = 4  # branches that run side by side
COPIES = 4  # of launches that are measured alone, in one graph: starting one takes as long as a small kernel
SCRATCH_SHARE = 8  # of the device's memory that scratch may take: one part in so many


class CudaProgram:
    """Functions, tables and memory of one task graph on a device. `run` may be called from any thread; runs take turns.

    `not_captured` says why there is no CUDA graph though one was asked for.
    """

    def __init__(
        self,
        tasks: TaskGraph,
        driver: Driver,
        options: CudaOptions | None = None,
        progress: KernelProgress | None = None,
        constants: dict[str, np.ndarray] | None = None,
    ) -> None:
        """Compiles what no cache has. Takes over `constants`, values by name, and drops each once it is packed;
        without them the graph's are used."""
        self.tasks, self._driver, self._lock, self._cancelling = tasks, driver, threading.Lock(), threading.Lock()
        tell_children(self)
        self._cancelled = self._pending = False
        self.not_captured: str | None = None
        self._checked = checked()
        options, self._faults = options or CudaOptions(), Faults(driver, self._checked)
        self._reacts = options.launch == "dynamic" and not self._checked
        with self._faults, driver.current:
            self._main, self._side, self._idle = driver.stream(), driver.stream(), driver.event()
            self._build(draw_up(tasks, driver, options, constants), progress)
            self._no_library = driver.no_library if options.library else "not used, as asked"
            by_streams = self._checked or options.launch in ("streams", "dynamic")
            self._graph = None if by_streams else self._captured()

    def after_fork(self) -> None:
        """See `Forked`: CUDA works in the process alone that began it."""
        self._lock, self._cancelling = threading.Lock(), threading.Lock()
        self._driver.fault = FORKED

    def _build(self, blueprint: Blueprint, progress: KernelProgress | None) -> None:
        """Compiles kernels and fills memory. The blueprint is not kept: it holds packed constants."""
        check_tables(blueprint)
        self._launches, self._calls, self._tables = blueprint.launches, blueprint.calls, blueprint.tables
        self._arena, self._owner, self._names = blueprint.arena_bytes, blueprint.owner, LaunchNames(blueprint)
        self._by_tickets = any(launch.kind == "persistent" for launch in self._launches)
        self._schedule = schedule([launch.after for launch in self._launches], STREAMS)
        self._functions = self._compiled(blueprint.units, progress)
        self.threads = max((self._at_once(k) for k in self._functions), default=1)  # blocks that run at once
        self._io = IoBuffers(self._driver, self.tasks.plan.graph)
        self._memory = self._place(blueprint.arguments.packed)
        self._queue = self._launcher()
        marked = [k not in self._calls.layers for k in range(len(self._launches))]
        after = {k: launch.after for k, launch in enumerate(self._launches)}
        self._marks = LaunchMarks(self._memory.begun, marked, after if self._reacts else by_schedule(self._schedule))
        self._faults.watch(self._marks, self._names, self._watch.at_work if self._checked else list)

    def __del__(self) -> None:
        """Memory goes back when no run is under way."""
        if self._pending and self._driver.fault is None:
            try:
                self._idle.synchronize()
            except DeviceError as e:
                print(f"brickrt: {self._faults.told(e)}", file=sys.stderr)  # nobody else can be told

    def _compiled(self, units: Units, progress: KernelProgress | None) -> dict[int, DeviceFunction]:
        """The functions of all launches that are not the library's."""
        mine = {k: which for k, which in enumerate(units.of) if k not in self._calls.layers}
        needed, sources = sorted(set(mine.values())), list(units.sources)
        found = dict(zip(needed, self._driver.functions([sources[k] for k in needed], progress), strict=True))
        return {k: found[which] for k, which in mine.items()}

    # ---- memory

    def _place(self, constants: PackedConstants) -> DeviceState:
        """Takes the memory, and writes what stays as it is."""
        calls = self._calls
        stride = aligned_size(self.tasks.scratch_bytes)
        self._slots = self._most_slots(stride)
        sizes = {
            "arena": self._arena,
            "scratch": stride * self._slots,
            "constants": constants.nbytes,
            "factors": calls.nbytes,
            "workspace": calls.workspace([self._may_be_on(turn.stream) for turn in self._schedule.turns]),
        }
        memory = DeviceState(
            self._driver, self._tables, len(self._launches), len(self._io), sizes, stride, self._checked
        )
        memory.write({"constants": constants.pieces, "factors": calls.pieces}, self._main)
        self._constant_bytes = constants.nbytes + calls.nbytes
        return memory

    def _may_be_on(self, stream: int) -> Sequence[int]:
        """Streams of a launch that the schedule has on this one."""
        return range(self._schedule.streams) if self._reacts else (stream,)

    def _most_slots(self, stride: int) -> int:
        """Blocks that have scratch: as many as run at once, unless that takes too much memory."""
        grids = [self._grid(k) for k, launch in enumerate(self._launches) if launch.kind == "bricks"]
        if not stride or not grids:
            return 0
        return max(1, min(max(grids), self._driver.spec.memory // SCRATCH_SHARE // stride))

    def _grid(self, k: int) -> int:
        """Blocks of a launch: of layers one per task, which the device starts as others end, else what runs at once.
        One where runs are checked, so that one task is under way."""
        if self._checked:
            return 1
        count = len(self._launches[k].tasks)
        return count if self._launches[k].kind == "layer" else min(count, self._at_once(k))

    def _at_once(self, k: int) -> int:
        return max(1, self._functions[k].resident) * self._driver.spec.cores

    @cached_property
    def _watch(self) -> DeviceEvents:
        return DeviceEvents(self._driver, self._side, len(self._tables), self._checked)

    @property
    def constant_bytes(self) -> int:
        """See `Program`."""
        return self._constant_bytes

    @property
    def working_bytes(self) -> int:
        """See `Program`."""
        return self._memory.nbytes - self._constant_bytes + self._io.nbytes

    @property
    def held(self) -> dict[int, int]:
        """See `Program`."""
        return {id(self): self.constant_bytes + self.working_bytes}

    @property
    def notes(self) -> dict[str, str]:
        """See `Program`."""
        kernels = {"products": self._calls.reasons, "epilogues": self._calls.rests}
        counted = ((what, len(why), Counter(why.values()).most_common()) for what, why in kernels.items() if why)
        texts = (f"{n} {what} by kernels: " + "; ".join(f"{text} ({k})" for text, k in why) for what, n, why in counted)
        notes = {"CUDA graph": self.not_captured, "cuDNN": self._no_library or ". ".join(texts)}
        return {name: text for name, text in notes.items() if text}

    # ---- launches

    def _launcher(self) -> Launcher:
        grids = {k: self._grid(k) for k in self._functions}
        for k in grids:
            if self._launches[k].kind == "bricks" and self._slots:
                grids[k] = min(grids[k], self._slots)
        given = self._launches, self._schedule, self._functions, grids, self._calls, self._memory, self._checked
        return Launcher(self._driver, *given)

    def _captured(self) -> CapturedGraph | None:
        self._queue.warm(self._main)
        try:
            return self._queue.graph(self._main, self._queue.put)
        except CaptureRefused as e:
            self.not_captured = str(e)
            print(f"brickrt: no CUDA graph, launching from streams: {e}", file=sys.stderr)
            return None

    # ---- running

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        events: list[np.ndarray] | None = None,
        stream: Any = None,
    ) -> Counts:
        """See `Program`; arrays may also be the driver's, used in place.

        With `stream`, and outputs that are such, the work is only put on it: the next run tells what went wrong, once
        that is known. Where launches start as others end, this returns when all have started, and so waits for most of
        the run.
        """
        with self._lock, self._faults, self._driver.current:
            waits = stream is None or events is not None or any(isinstance(array, np.ndarray) for array in outputs)
            self._look_back(waits)
            main = self._stream_for(inputs, stream)
            if self._pending:
                main.wait(self._idle)
            shift = self._watch.shift() if events else 0
            self._put(inputs, outputs, bool(events), waits, main)
            if not waits:
                self._idle.record(main)
                self._pending = True
                return Counts(len(self.tasks), len(self.tasks), 0, 0)
            self._io.download(outputs, main)
            main.synchronize()
            counted = self._finish()
            self._io.read(outputs)
            if events:
                self._watch.fill(events, self.tasks, self._launches, self._owner, shift)
            return counted

    def _stream_for(self, inputs: Sequence[Any], stream: Any) -> Stream:
        """The caller's stream; without one our own, or where inputs are on the device the one they are made on."""
        if stream is None and all(isinstance(array, np.ndarray) for array in inputs):
            return self._main
        return self._driver.stream_of(stream)

    def _put(self, inputs: Sequence[Any], outputs: Sequence[Any], events: bool, waits: bool, main: Stream) -> None:
        """Puts a run on a stream; blocks note `events`."""
        rows = self._watch.address if events or self._checked else 0
        self._memory.tell(self._io.upload(inputs, outputs, waits, main), rows, main)
        self._start(main)

    def _start(self, main: Stream) -> None:
        """Puts all launches on a stream, for the arrays that the device was told of."""
        if self._by_tickets:
            self._memory.next_epoch(main)
        self._marks.put()
        whole = False
        try:
            whole = self._put_all(main)
        finally:
            if not whole:
                self._marks.spoil()

    def _put_all(self, main: Stream) -> bool:
        """Puts all launches on streams; False where the run was stopped before."""
        if self._reacts:
            return self._queue.react(main, lambda: self._cancelled or self._memory.stopped != 0)
        if self._graph is not None:
            self._graph.launch(main)
        else:
            self._queue.put(main)
        return True

    def _look_back(self, waits: bool) -> None:
        """Raises what went wrong in earlier runs that nobody waited for; a run that `waits` is counted alone."""
        if not ((waits and self._pending) or self._cancelled or self._memory.stopped):
            return
        if self._pending:
            self._idle.synchronize()
            self._pending = False
        self._finish()

    def _finish(self) -> Counts:
        """At the end of runs, what their workers counted. Raises Cancelled and BrickError."""
        self._marks.end()
        _, _, waits, revisits = self._memory.counted()
        self._check_cancelled()
        if stop := self._memory.stopped:
            self._memory.go_on(self._main)
            raise BrickError(self._why(stop))
        total = len(self.tasks)
        return Counts(total, total - waits - revisits, waits, revisits)

    def _why(self, word: int) -> str:
        """A stop word in one line that names node and brick."""
        task = word >> 4 & (MOST_TASKS - 1)
        return f"the CUDA engine gave up: {why_stopped(word)}; task {task} is {self._names.task(task)}"

    # ---- measuring

    @property
    def launched_together(self) -> list[tuple[int, ...]]:
        """The subgraphs of each group that is launched together."""
        return list(dict.fromkeys(launch.subgraphs for launch in self._launches))

    @property
    def called(self) -> frozenset[int]:
        """Nodes that the library computes, or whose products it does."""
        return frozenset(self.tasks.steps[i].node for i in self._calls.steps)

    def seconds(self, subgraphs: Collection[int] | None = None) -> float:
        """How long a run on zeros takes on the device; or the launches of some subgraphs, by themselves, on what is in
        memory: a run must have been before."""
        with self._lock, self._faults, self._driver.current:
            self._look_back(True)
            main = self._main
            if subgraphs is None:
                self._tell_zeros()
                found = self._driver.seconds(lambda: self._start(main), main)
            else:
                which = [k for k, launch in enumerate(self._launches) if set(launch.subgraphs) <= set(subgraphs)]
                with self._marks.alone(which):
                    found = self._driver.seconds(self._queue.alone(which * COPIES, main), main) / COPIES
                    main.synchronize()
            main.synchronize()
            self._finish()
            return found

    def _tell_zeros(self) -> None:
        """Gives the kernels inputs of zeros, and memory of our own for outputs."""
        graph = self.tasks.plan.graph
        inputs, outputs = (
            [np.zeros(graph.types[name].shape, graph.types[name].dtype) for name in names]
            for names in (graph.inputs, graph.outputs)
        )
        rows = self._watch.address if self._checked else 0
        self._memory.tell(self._io.upload(inputs, outputs, True, self._main), rows, self._main)

    # ---- cancelling

    def cancel(self) -> None:
        """See `Program`. After a fault there is nothing to end, and the run itself tells of it."""
        if self._driver.fault is not None:
            return
        try:
            with self._cancelling, self._driver.current:
                self._cancelled = True
                self._memory.stop(self._side)
        except DeviceError as e:
            if not e.fatal:
                raise

    def _check_cancelled(self) -> None:
        with self._cancelling:
            if self._cancelled:
                self._cancelled = False
                self._memory.go_on(self._side)
                raise Cancelled
