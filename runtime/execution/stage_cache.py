"""Compiled stages of a model, per set of input shapes, and per values where these decide what is compiled."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from brickrt.graph.specialize.stages import Specialized, Stage
from brickrt.ops.types import TensorType
from brickrt.plan.plan import Plan
from brickrt.runtime.after_fork import tell_children
from brickrt.runtime.arrays import DeviceArrays, on_device
from brickrt.runtime.execution.kept_programs import KEPT_BYTES, KeptPrograms
from brickrt.runtime.program_protocol import Program

MOST_VALUES = 4
"""Values of one input that programs are compiled for where it only decides others: with more, these are computed."""
MOST_SHAPES = 4
"""Sets of shapes that the body of a loop is compiled for: with more, what reads inputs whose shapes differ runs on the
host."""


@dataclass(frozen=True, eq=False)
class CompiledStage:
    """A stage for given shapes: its program (None where nothing is left to compute), host nodes, and what follows.
    `decided_by` are the inputs whose values it was compiled for; `bodies` has what was made of the subgraphs of host
    nodes."""

    specialized: Specialized
    plan: Plan
    program: Program | None
    rest: StageCache | None
    decided_by: frozenset[str] = frozenset()
    bodies: dict[str, Any] = field(default_factory=dict)

    @property
    def held(self) -> Mapping[int, int]:
        """What its program holds between calls, as `Program` says."""
        return self.program.held if self.program else {}

    @cached_property
    def io_types(self) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[int, ...], np.dtype], ...]]:
        """What its program reads, and what it writes with shapes and types."""
        graph = self.plan.graph
        made = ((name, tuple(graph.types[name].shape), graph.types[name].dtype) for name in graph.outputs)
        return tuple(graph.inputs), tuple(made)


Types = Mapping[str, TensorType]
Prepare = Callable[[Stage, Types, Mapping[str, np.ndarray]], Specialized | CompiledStage]
"""Compiles a stage for inputs of these types, or gives the request for values that decide shapes."""


class StageCache:
    """Programs of one stage. `value_names` are the inputs whose values, not only shapes, decide the program; `kept`
    bounds what all stages of a runtime hold."""

    def __init__(self, stage: Stage, kept: KeptPrograms | None = None) -> None:
        self.stage, self.kept = stage, kept or KeptPrograms(KEPT_BYTES)
        self.value_names = set(stage.value_inputs)
        self._met: defaultdict[str, set[bytes]] = defaultdict(set)  # values of inputs that only decide others
        self._untyped: set[str] = set()  # inputs of a repeated stage whose shapes keep changing
        self._compiled: dict[tuple, CompiledStage] = {}
        self._last: _Last | None = None
        self._users, self._given_up = 0, set[tuple]()
        self._lock = threading.Lock()
        tell_children(self)

    def after_fork(self) -> None:
        """See `Forked`: what another thread was compiling, a child compiles anew."""
        self._lock = threading.Lock()

    def again(self, values: Mapping[str, Any]) -> CompiledStage | None:
        """The program of the last call, if these values are like those; None asks for `get`. Values lie on the host."""
        last = self._last
        if last is None:
            return None
        for name, shape, dtype, content in last.arrays:
            value = values.get(name)
            if type(value) is not np.ndarray or value.shape != shape or value.dtype != dtype:
                return None
            if content is not None and value.tobytes() != content:
                return None
        for name, kind in last.others:
            if type(values.get(name)).__name__ != kind:
                return None
        return last.compiled

    def get(
        self, prepare: Prepare, values: Mapping[str, Any], arrays: DeviceArrays | None = None
    ) -> tuple[CompiledStage, float]:
        """The program for these inputs and the milliseconds spent on compiling, 0 where it was there.

        `arrays` brings values to the host that lie on a GPU and decide what is compiled.
        """
        with self._lock:
            started = time.perf_counter()
            if arrays is None and self._last is not None and self.again(values) is not None:
                self.kept.used((self, self._last.key))
                return self._last.compiled, 0.0
            key = self._key(values, arrays)
            found = self._compiled.get(key)
            if found is not None:
                self.kept.used((self, key))
                self._remember(values, key, found)
                return found, 0.0
            self._settle(values, arrays)
            made = self._compile(prepare, values, arrays)
            key = self._key(values, arrays)  # which may depend on more values than before, or on fewer
            self._keep(key, made)
            self._remember(values, key, made)
            return made, (time.perf_counter() - started) * 1e3

    def _keep(self, key: tuple, made: CompiledStage) -> None:
        """Keeps a program, and lets others go where all hold too much; what follows a stage goes with it."""
        if made.rest is not None:
            made.rest.kept = self.kept
        self._compiled[key] = made
        self.kept.add((self, key), made.held, lambda: self._drop(key))

    def _drop(self, key: tuple) -> None:
        if self._users:
            self._given_up.add(key)
            return
        self._compiled.pop(key, None)
        self._last = None

    def use(self) -> None:
        """Until `leave`, programs stay that are given up: a loop would compile them anew in each round."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """See `use`."""
        with self._lock:
            self._users -= 1
            if not self._users:
                given_up, self._given_up = self._given_up, set()
                for key in given_up:
                    self._drop(key)

    def _compile(self, prepare: Prepare, values: Mapping[str, Any], arrays: DeviceArrays | None) -> CompiledStage:
        names = [name for name in self.stage.inputs if _is_tensor(values.get(name)) and name not in self._untyped]
        types = {name: TensorType(values[name].shape, values[name].dtype) for name in names}
        while True:
            known = {name: _on_host(values[name], arrays) for name in self.value_names if name in values}
            made = prepare(self.stage, types, known)
            if isinstance(made, CompiledStage):
                return replace(made, decided_by=frozenset(known))
            self.value_names |= made.need_values
            for name in made.need_values if self.stage.repeated else made.deciding:
                self._met[name].add(_on_host(values[name], arrays).tobytes())

    # ---- what keeps changing

    def _settle(self, values: Mapping[str, Any], arrays: DeviceArrays | None) -> None:
        """Before another program is compiled: gives up values, and types, of which there are too many."""
        for name, met in self._met.items():
            if _is_tensor(values.get(name)):
                met.add(_on_host(values[name], arrays).tobytes())
        many = {name for name, met in self._met.items() if len(met) > MOST_VALUES}
        if many:
            changing = self.stage.changing | (many if self.stage.repeated else set())
            self.stage = replace(self.stage, deciding=self.stage.deciding - many, changing=changing)
            for name in many:
                del self._met[name]
        shapes = self._changing() if self.stage.repeated else set()
        self._untyped |= shapes
        self.value_names -= shapes | many
        if many or shapes:
            for key in list(self._compiled):
                self.kept.remove((self, key))
                self._compiled.pop(key)
            self._last = None

    def _changing(self) -> set[str]:
        """The inputs of which programs were compiled for several shapes, once these are too many."""
        shapes = {tuple(one[:2] for one in key) for key in self._compiled}
        if len(shapes) < MOST_SHAPES:
            return set()
        columns = zip(self.stage.inputs, zip(*shapes, strict=True), strict=True)
        return {name for name, column in columns if len(set(column)) > 1}

    # ---- what programs are found by

    def _key(self, values: Mapping[str, Any], arrays: DeviceArrays | None) -> tuple:
        keys = []
        for name in self.stage.inputs:
            value, decides = values.get(name), name in self.value_names
            if name in self._untyped:
                keys.append(("any",))
            else:
                keys.append(_identity(_on_host(value, arrays) if decides else value, decides))
        return tuple(keys)

    def _remember(self, values: Mapping[str, Any], key: tuple, compiled: CompiledStage) -> None:
        """Notes what `again` compares."""
        found, others = [], []
        for name, one in zip(self.stage.inputs, key, strict=True):
            if name in self._untyped:
                continue
            value: Any = values.get(name)
            if len(one) == 1 or on_device(value):
                others.append((name, type(value).__name__))
            else:
                found.append((name, value.shape, value.dtype, one[2] if name in self.value_names else None))
        self._last = _Last(key, compiled, found, others)


class _Last(NamedTuple):
    """A program with its key, and what values it was found for."""

    key: tuple
    compiled: CompiledStage
    arrays: list[tuple[str, tuple[int, ...], np.dtype, bytes | None]]
    others: list[tuple[str, str]]


def _on_host(value: Any, arrays: DeviceArrays | None) -> Any:
    """A value that decides what is compiled, where Python can look at it."""
    return arrays.host(value, None) if arrays and on_device(value) else value


def _is_tensor(value: Any) -> bool:
    return on_device(value) or (isinstance(value, np.ndarray) and value.dtype.kind not in "OUS")


def _identity(value: Any, with_content: bool) -> tuple:
    if not isinstance(value, np.ndarray) and not on_device(value):
        return (type(value).__name__,)
    content = value.tobytes() if with_content and _is_tensor(value) else b""
    return value.shape, value.dtype.str, content
