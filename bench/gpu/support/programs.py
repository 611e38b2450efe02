"""Programs of one model on a device: planned as asked, built, and run on arrays of the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from bench.gpu.support.kernel_figures import ModelPrograms
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan, make_plan
from brickrt.runtime.cuda.program import CudaProgram
from brickrt.runtime.engines import Engine
from brickrt.runtime.lowering.lower import lower


class Programs:
    """A model that has no nodes for the host; it is read and folded once. Without `chains` no operators on pixels are
    joined to one."""

    def __init__(self, engine: Engine, model: onnx.ModelProto, chains: bool = True) -> None:
        self.engine, self.network = engine, ModelPrograms.of(model, chains)

    def plan(self, how: PlanOptions, **more: Any) -> Plan:
        """A plan of the model; `more` is for `make_plan`."""
        return make_plan(self.network.in_precision(how.precision), self.engine.spec, how, **more)

    def program(self, plan: Plan, engine: Engine | None = None) -> CudaProgram:
        """The program of a plan, run once, by another engine of the same device where one is given."""
        program = (engine or self.engine).build(lower(plan), dict(plan.graph.constants), 1, None)
        assert isinstance(program, CudaProgram)
        program.seconds()
        return program


def run_program(program: CudaProgram, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """A program's outputs for inputs by name."""
    graph = program.tasks.plan.graph
    outputs = [np.empty(graph.types[name].shape, graph.types[name].dtype) for name in graph.outputs]
    program.run([np.ascontiguousarray(feeds[name]) for name in graph.inputs], outputs)
    return outputs


def layers_alone(subgraphs: Any) -> Any:
    """Subgraphs whose products are left to brickrt's own kernels."""
    return tuple(replace(s, kernels=s.nodes) for s in subgraphs)
