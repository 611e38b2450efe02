"""Runs If, Loop and Scan nodes in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from brickrt.graph.allowance import held_inside, hold
from brickrt.graph.builder import OnnxNode
from brickrt.graph.errors import BrickError, Interrupted, described
from brickrt.graph.host.run_host_node import run_node
from brickrt.graph.specialize.stages import Stage
from brickrt.runtime.execution.control.body import Rounds, Values
from brickrt.runtime.execution.control.branch import run_if
from brickrt.runtime.execution.control.control_node import ControlNode, NoBody
from brickrt.runtime.execution.control.loop import run_loop
from brickrt.runtime.execution.control.scan import run_scan
from brickrt.runtime.execution.host_node_run import HostNodeRun
from brickrt.runtime.execution.kept_programs import KeptPrograms
from brickrt.runtime.execution.report import StageRun
from brickrt.runtime.execution.stage_cache import CompiledStage, Prepare

_RUNS: dict[str, Callable[[ControlNode, Values], list[Any]]] = {"If": run_if, "Loop": run_loop, "Scan": run_scan}


class SubgraphRunner:
    """Computes nodes on the host. `prepare` compiles what their subgraphs compute, which `kept` counts; `watch` is the
    node under way, and `ran` says what each compiled stage took."""

    def __init__(self, prepare: Prepare, kept: KeptPrograms, watch: HostNodeRun) -> None:
        self.ran: dict[int, StageRun] = {}
        self._rounds = Rounds(prepare, kept, watch, self.ran, self.outputs)

    def whole(self, node: OnnxNode, stage: Stage, compiled: CompiledStage, values: Values) -> list[Any]:
        """The outputs of a node of the model itself, which is in no subgraph."""
        try:
            return self.outputs(node, stage, compiled, values)
        finally:
            self._rounds.ended()

    def outputs(self, node: OnnxNode, stage: Stage, compiled: CompiledStage, values: Values) -> list[Any]:
        """The outputs of a node of `stage`, which became `compiled`, in its order; of any other node than If, Loop and
        Scan as `run_node` gives them. Raises BrickError, naming the node."""
        if not has_bodies(node):
            return run_node(node, stage.source.opsets, values)
        try:
            with held_inside():
                found = _RUNS[node.op_type](ControlNode(node, stage, compiled, self._rounds), values)
        except NoBody:
            return run_node(node, stage.source.opsets, values)
        except (BrickError, Interrupted):
            raise
        except Exception as e:  # whatever NumPy raises is a fault of this node and these values
            raise BrickError(f"{node.op_type} node '{node.name}' fails on the host: {described(e)}") from e
        hold(sum(getattr(value, "nbytes", 0) for value in found))
        return found


def has_bodies(node: OnnxNode) -> bool:
    """Whether a node's subgraphs run as programs. Scan of opset 8, which takes batches, is the host's."""
    return not node.domain and node.op_type in _RUNS and not (node.op_type == "Scan" and node.version < 9)
