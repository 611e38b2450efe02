"""Compiled stages of a model, per set of input shapes, the least recently used out first."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from brickrt.graph.specialize.stages import Specialized, Stage
from brickrt.ops.types import TensorType
from brickrt.plan.plan import Plan
from brickrt.runtime.after_fork import tell_children
from brickrt.runtime.arrays import DeviceArrays, on_device
from brickrt.runtime.program_protocol import Program

KEPT = 8  # programs per stage


@dataclass(frozen=True, eq=False)
class CompiledStage:
    """A stage for given shapes: its program (None where nothing is left to compute), host nodes, and what follows."""

    specialized: Specialized
    plan: Plan
    program: Program | None
    rest: StageCache | None


Types = Mapping[str, TensorType]
Prepare = Callable[[Stage, Types, Mapping[str, np.ndarray]], Specialized | CompiledStage]
"""Compiles a stage for inputs of these types, or gives the request for values that decide shapes."""


class StageCache:
    """Programs of one stage. `value_names` are the inputs whose values, not only shapes, decide the program."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.value_names = set(stage.value_inputs)
        self._compiled: OrderedDict[tuple, CompiledStage] = OrderedDict()
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
                self._compiled.move_to_end(key)
                return found, 0.0
            made = self._compile(prepare, values, arrays)
            self._compiled[self._key(values, arrays)] = made  # which may depend on more values than before
            while len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
            return made, (time.perf_counter() - started) * 1e3

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
