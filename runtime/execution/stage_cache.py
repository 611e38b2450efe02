"""Compiled stages of a model, per set of input shapes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from brickrt.graph.specialize.stages import Specialized, Stage
from brickrt.ops.types import TensorType
from brickrt.plan.plan import Plan
from brickrt.runtime.after_fork import tell_children
from brickrt.runtime.arrays import DeviceArrays, on_device
from brickrt.runtime.execution.kept_programs import KEPT_BYTES, KeptPrograms
from brickrt.runtime.program_protocol import Program


@dataclass(frozen=True, eq=False)
class CompiledStage:
    """A stage for given shapes: its program (None where nothing is left to compute), host nodes, and what follows."""

    specialized: Specialized
    plan: Plan
    program: Program | None
    rest: StageCache | None

    @property
    def held(self) -> Mapping[int, int]:
        """What its program holds between calls, as `Program` says."""
        return self.program.held if self.program else {}


Types = Mapping[str, TensorType]
Prepare = Callable[[Stage, Types, Mapping[str, np.ndarray]], Specialized | CompiledStage]
"""Compiles a stage for inputs of these types, or gives the request for values that decide shapes."""


class StageCache:
    """Programs of one stage. `value_names` are the inputs whose values, not only shapes, decide the program; `kept`
    bounds what all stages of a runtime hold."""

    def __init__(self, stage: Stage, kept: KeptPrograms | None = None) -> None:
        self.stage, self.kept = stage, kept or KeptPrograms(KEPT_BYTES)
        self.value_names = set(stage.value_inputs)
        self._compiled: dict[tuple, CompiledStage] = {}
        self._lock = threading.Lock()
        tell_children(self)

    def after_fork(self) -> None:
        """See `Forked`: what another thread was compiling, a child compiles anew."""
        self._lock = threading.Lock()

    def get(
        self, prepare: Prepare, values: Mapping[str, Any], arrays: DeviceArrays | None = None
    ) -> tuple[CompiledStage, float]:
        """The program for these inputs and the milliseconds spent on compiling, 0 where it was there.

        `arrays` brings values to the host that lie on a GPU and decide what is compiled.
        """
        with self._lock:
            started = time.perf_counter()
            key = self._key(values, arrays)
            found = self._compiled.get(key)
            if found is not None:
                self.kept.used((self, key))
                return found, 0.0
            made = self._compile(prepare, values, arrays)
            self._keep(self._key(values, arrays), made)  # which may depend on more values than before
            return made, (time.perf_counter() - started) * 1e3

    def _keep(self, key: tuple, made: CompiledStage) -> None:
        """Keeps a program, and lets others go where all hold too much; what follows a stage goes with it."""
        if made.rest is not None:
            made.rest.kept = self.kept
        self._compiled[key] = made
        self.kept.add((self, key), made.held, lambda: self._compiled.pop(key, None))

    def _compile(self, prepare: Prepare, values: Mapping[str, Any], arrays: DeviceArrays | None) -> CompiledStage:
        tensors = {name: values[name] for name in self.stage.inputs if _is_tensor(values.get(name))}
        types = {name: TensorType(array.shape, array.dtype) for name, array in tensors.items()}
        while True:
            known = {name: _on_host(values[name], arrays) for name in self.value_names if name in values}
            made = prepare(self.stage, types, known)
            if isinstance(made, CompiledStage):
                return made
            self.value_names |= made.need_values

    def _key(self, values: Mapping[str, Any], arrays: DeviceArrays | None) -> tuple:
        keys = []
        for name in self.stage.inputs:
            value, decides = values.get(name), name in self.value_names
            keys.append(_identity(_on_host(value, arrays) if decides else value, decides))
        return tuple(keys)


def _on_host(value: Any, arrays: DeviceArrays | None) -> Any:
    """A value that decides what is compiled, where Python can look at it."""
    return arrays.host(value, None) if arrays and on_device(value) else value


def _is_tensor(value: Any) -> bool:
    return on_device(value) or (isinstance(value, np.ndarray) and value.dtype.kind not in "OUS")


def _identity(value: Any, with_content: bool) -> Any:
    if not isinstance(value, np.ndarray) and not on_device(value):
        return type(value).__name__
    content = value.tobytes() if with_content and _is_tensor(value) else b""
    return value.shape, value.dtype.str, content
