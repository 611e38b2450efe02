"""Options of sessions. Those that say how ONNX Runtime itself works are accepted and have no effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.onnxruntime.entries import entry_of


class GraphOptimizationLevel(IntEnum):
    """How much a graph is rewritten there. Here all that keeps results is always done."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionOrder(IntEnum):
    """In which order operators run there. Here the planner says."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class ExecutionMode(IntEnum):
    """Whether several operators run at a time there. Here bricks of several layers always may."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


@dataclass(slots=True, eq=False)
class SessionOptions:
    """How a session runs. `intra_op_num_threads` is honoured, 0 stands for one per core; so are profiling,
    initializers, providers, sizes of free dimensions, in what `get_inputs` says, and `optimized_model_filepath`, which
    the model is written to as it was read. The rest is accepted and has no effect."""

    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    inter_op_num_threads: int = 0
    intra_op_num_threads: int = 0
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    profile_file_prefix: str = "onnxruntime_profile_"
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    entries: dict[str, str] = field(default_factory=dict)
    free_dimensions: dict[str, int] = field(default_factory=dict)
    initializers: dict[str, np.ndarray] = field(default_factory=dict)
    providers: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry, which has no effect."""
        self.entries[str(key)] = str(value)

    def get_session_config_entry(self, key: str) -> str:
        """An entry that was added. Raises BrickError where there is none."""
        return entry_of(self.entries, key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Says the extent of a dimension that the model leaves free, by its name."""
        self.free_dimensions[name] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Has no effect: denotations of dimensions are not read."""

    def add_initializer(self, name: str, ortvalue: Any) -> None:
        """Gives a constant of the model other values, of the same type and shape."""
        self.initializers[name] = np.asarray(ortvalue)

    def register_custom_ops_library(self, path: str) -> None:
        """Raises BrickError: operators of libraries made for ONNX Runtime do not run here."""
        raise BrickError(f"{path}: custom operators do not run here: export the model without them")

    def add_external_initializers(self, names: Sequence[str], ortvalues: Sequence[Any]) -> None:
        """Gives several constants of the model other values, of the same types and shapes."""
        for name, value in zip(names, ortvalues, strict=True):
            self.add_initializer(name, value)

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Asks for a device, behind those that were asked for before; a session that is given providers itself goes by
        these."""
        self.providers.append((name, dict(options)))

    def has_providers(self) -> bool:
        """Whether `add_provider` asked for one."""
        return bool(self.providers)

    def set_load_cancellation_flag(self, is_canceled: bool) -> None:
        """Has no effect: loading plans and compiles nothing, and is over soon."""


def threads_of(options: Any) -> int | None:
    """The number of threads that options ask for, brickrt's or ONNX Runtime's own; None for one per core. Raises
    BrickError for an impossible number."""
    asked = getattr(options, "intra_op_num_threads", 0)
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 0:
        raise BrickError(f"intra_op_num_threads {asked!r} is impossible: give a whole number, 0 for one per core")
    return asked or None
