"""The stages of a model, planned from shapes alone.

What nodes on the host make of values has the shape that it has for values that are made up, unless two of them give
two shapes: then the values decide, and nothing behind is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from brickrt.graph.allowance import allowing, given_by
from brickrt.graph.builder import OnnxNode
from brickrt.graph.errors import BrickError
from brickrt.graph.host.guarded import asking
from brickrt.graph.host.run_host_node import Value, reads, run_node
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.graph.specialize.stages import Specialized, Stage, first_stage, only
from brickrt.ops.types import TensorType
from brickrt.plan.plan import Plan
from brickrt.runtime.execution.host_node_run import HostNodeRun
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.pipeline import Pipeline

Values = dict[str, np.ndarray]
MOST_BYTES = 1 << 28  # of values that are made up for one node


@dataclass(frozen=True)
class PlannedStage:
    """One stage: its graph and host nodes, its plan, and its tasks if there are any."""

    special: Specialized
    plan: Plan
    tasks: TaskGraph | None


def planned_stages(
    pipeline: Pipeline, source: SourceGraph, types: Mapping[str, TensorType]
) -> tuple[list[PlannedStage], tuple[OnnxNode, ...]]:
    """The stages for inputs of these types, and the nodes that are only planned once values are known. Raises
    BrickError where no stage is known without values."""
    with allowing(source.stored_bytes + sum(given_by(kind.size, kind.dtype.itemsize) for kind in types.values())):
        return _planned(pipeline, first_stage(source), _MadeUp(dict(types)))


def _planned(pipeline: Pipeline, first: Stage, made_up: _MadeUp) -> tuple[list[PlannedStage], tuple[OnnxNode, ...]]:
    stage: Stage | None = first
    made: list[PlannedStage] = []
    while stage is not None:
        special = _specialized(pipeline, stage, made_up)
        if special.need_values and not made:
            names = ", ".join(f"'{name}'" for name in sorted(special.need_values))
            raise BrickError(
                f"the values of input {names} decide shapes inside the model: use brickrt run with --input"
            )
        if special.need_values:
            return made, stage.nodes
        plan = pipeline.plan(special.graph)
        made.append(PlannedStage(special, plan, pipeline.lower(plan) if plan.subgraphs else None))
        if special.rest is not None and not made_up.after(stage, special):
            return made, special.rest.nodes
        stage = special.rest
    return made, ()


def _specialized(pipeline: Pipeline, stage: Stage, known: _MadeUp) -> Specialized:
    """The stage as brick operators, or the request for values that are not known."""
    types = {name: known.types[name] for name in stage.inputs if name in known.types}
    tensors = {name: kind for name, kind in types.items() if kind.dtype.kind not in "OUS"}
    wanted = set(stage.value_inputs)
    special = pipeline.specialize(stage, tensors, only(known.exact, wanted))
    while special.need_values - wanted and special.need_values <= known.exact.keys():
        wanted |= special.need_values
        special = pipeline.specialize(stage, tensors, only(known.exact, wanted))
    return special


class _MadeUp:
    """Types of tensors, the values of those that are known exactly, and two values of what depends on others."""

    def __init__(self, types: dict[str, TensorType]) -> None:
        self.types, self.exact = types, Values()

    def after(self, stage: Stage, special: Specialized) -> bool:
        """Adds what a stage computes; says whether the types of all of it are known."""
        self.types |= {name: special.graph.types[name] for name in special.graph.outputs}
        self.learn(special.known)
        for name, other in special.same.items():
            self.types[name] = self.types[other]
            if other in self.exact:
                self.exact[name] = self.exact[other]
        return all(self.host(stage, node) for node in special.host_nodes)

    def learn(self, values: Mapping[str, np.ndarray]) -> None:
        """Adds values that are known exactly."""
        self.exact |= values
        self.types |= {name: TensorType(value.shape, value.dtype) for name, value in values.items()}

    def host(self, stage: Stage, node: OnnxNode) -> bool:
        """Adds what a node on the host makes; says whether its types do not depend on values."""
        names = reads(node)
        if not all(name in self.types for name in names):
            return False
        if sum(self.types[name].nbytes for name in names) > MOST_BYTES:
            return False
        try:
            results = [_computed(node, stage, self.values(names, seed)) for seed in (None, 0)]
        except BrickError:  # these values, which nobody gave, make no sense to the node
            return False
        first, second = ({n: v for n, v in zip(node.outputs, each) if n} for each in results)
        if not all(isinstance(value, np.ndarray) and _alike(value, second[name]) for name, value in first.items()):
            return False
        self.types |= {name: TensorType(value.shape, value.dtype) for name, value in first.items()}
        if all(name in self.exact for name in names):
            self.exact |= first
        return True

    def values(self, names: tuple[str, ...], seed: int | None) -> Values:
        """Zeros in place of what is not known exactly; or values by chance, small ones, which indices may be."""
        rng, made = np.random.default_rng(seed), Values()
        for name in names:
            kind = self.types[name]
            if name in self.exact:
                made[name] = self.exact[name]
            elif seed is None:
                made[name] = np.zeros(kind.shape, kind.dtype)
            else:
                drawn = rng.standard_normal(kind.shape) if kind.dtype.kind in "fc" else rng.integers(0, 2, kind.shape)
                made[name] = np.asarray(drawn).astype(kind.dtype)
        return made


def _computed(node: OnnxNode, stage: Stage, values: Values) -> list[Value]:
    """The outputs of a node on the host, within the time that nodes there may take."""
    run = HostNodeRun(node)
    with asking(run.check):
        results = run_node(node, stage.source.opsets, values)
    run.ended()
    return results


def _alike(value: np.ndarray, other: object) -> bool:
    return isinstance(other, np.ndarray) and (value.shape, value.dtype) == (other.shape, other.dtype)
