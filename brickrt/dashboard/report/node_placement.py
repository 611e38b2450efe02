"""Where each ONNX node of a model ran."""

from __future__ import annotations

from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.runtime.execution.report import Report


def node_placement(source: SourceGraph, report: Report) -> dict[str, str]:
    """Per node "subgraph k", "host", or "folded" where it became part of constants or of other nodes.

    In models of several stages "stage s subgraph k", both counted from 0.
    """
    plans = [plan for plan in report.plans if plan.subgraphs]
    constants = [node.name for node in source.light.graph.node if node.op_type == "Constant" and node.name]
    found = dict.fromkeys([*(node.name for node in source.nodes), *constants], "folded")
    for stage, plan in enumerate(plans):
        for number, subgraph in enumerate(plan.subgraphs):
            place = f"subgraph {number}" if len(plans) == 1 else f"stage {stage} subgraph {number}"
            ran = [name if name in found else name.rpartition("/")[0] for name in plan.ops(subgraph)]
            found |= {name: place for name in ran if name in found}  # of a function's node the caller's
    return found | dict.fromkeys(report.fallback, "host")
