"""`brickrt plan`: the plan of a model, from shapes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from brickrt.cli.files import write_text
from brickrt.cli.inputs import parse
from brickrt.cli.inputs.shapes import Shape, assuming, concrete_shapes, note_assumed
from brickrt.cli.outputs.json_output import Json, to_json
from brickrt.cli.outputs.plan_compare import compare
from brickrt.cli.outputs.plan_report import plan_entries
from brickrt.cli.outputs.plan_screen import plan_screen
from brickrt.cli.outputs.product_types import bfloat16_products, integer_products
from brickrt.cli.planned_stages import PlannedStage, planned_stages
from brickrt.cli.planning import checked_pipeline, input_types
from brickrt.cli.requests import PlanRequest
from brickrt.cli.terminal.browser import open_page
from brickrt.cli.terminal.progress import shown_progress
from brickrt.cli.terminal.text import shapes_text
from brickrt.dashboard.report.page import write_report
from brickrt.dashboard.units import size_text
from brickrt.graph.builder import OnnxNode
from brickrt.graph.errors import BrickError
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.source import SourceGraph, load
from brickrt.graph.specialize.stages import Stage
from brickrt.plan.plan import Plan
from brickrt.runtime.analysis.memory_projection import MemoryProjection, project
from brickrt.runtime.cache.saved_plan import plan_file_text
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.pipeline import PLANNED_WHILE_RUNNING, Pipeline
from brickrt.runtime.thread_count import thread_count


@dataclass(frozen=True)
class Planned:
    """The stages of a model. `later` are nodes that are planned once values are known, while it runs."""

    source: SourceGraph
    shapes: dict[str, Shape]
    stages: list[PlannedStage]
    later: tuple[OnnxNode, ...]
    compared: list[Json]

    @property
    def plans(self) -> list[Plan]:
        """The plans of stages that have something to compute."""
        return [stage.plan for stage in self.stages if stage.plan.subgraphs]

    @property
    def tasks(self) -> list[TaskGraph]:
        """The task graphs of these."""
        return [stage.tasks for stage in self.stages if stage.tasks is not None]


def command(request: PlanRequest) -> str:
    """Plans the model's stages; gives what is printed of them."""
    with shown_progress() as progress:
        pipeline = checked_pipeline(request, progress)
        progress("import", 0, 1)
        source = load(request.model)
        shapes, assumed = concrete_shapes(source, parse.named_shapes(request.shapes))
        with assuming(assumed):
            stages, later = planned_stages(pipeline, source, input_types(source, shapes))
        graphs = [stage.special.graph for stage in stages if stage.tasks is not None]
        compared = compare(pipeline, graphs, progress) if request.compare and graphs else []
    planned = Planned(source, shapes, stages, later, compared)
    report = _report(planned) | _written(request, pipeline, planned)
    note_assumed(assumed)
    if request.json:
        return to_json(report)
    return plan_screen(report, planned.plans, request.verbose)


def _written(request: PlanRequest, pipeline: Pipeline, planned: Planned) -> Json:
    """Writes the files that were asked for; gives their names."""
    written = {}
    if request.output is not None:
        first = planned.stages[0]
        _save(request.output, pipeline.as_planned(first.special.graph), first.plan, first.special.rest)
        written["output"] = str(request.output)
    if request.html is not None:
        about = _about(_report(planned))
        write_text(request.html, lambda out: write_report(out, [], about, planned.tasks))
        written["html"] = str(request.html)
        if request.opened:
            open_page(request.html)
    return {"written": written} if written else {}


def _save(path: Path, graph: Graph, plan: Plan, rest: Stage | None) -> None:
    if rest is not None:
        node = rest.nodes[0]
        raise BrickError(f"{path}: the plan cannot be saved: {PLANNED_WHILE_RUNNING}: '{node.name}' ({node.op_type})")
    write_text(path, lambda out: out.write(plan_file_text(graph, plan)))


def _report(planned: Planned) -> Json:
    plans, tasks = planned.plans, planned.tasks
    subgraphs = [subgraph for plan in plans for subgraph in plan.subgraphs]
    return {
        "model": planned.source.name,
        "inputs": {name: list(shape) for name, shape in planned.shapes.items()},
        "device": planned.stages[0].plan.device.to_dict(),
        "options": planned.stages[0].plan.options.to_dict(),
        "plan": plan_entries(plans),
        "stages": len(plans),
        "fallback": {name: why for stage in planned.stages for name, why in stage.special.host_reasons.items()},
        "later": [{"node": node.name, "operator": node.op_type} for node in planned.later],
        "integers": integer_products(planned.source, plans),
        "bfloat16": bfloat16_products(plans),
        "flops": sum(s.flops for s in subgraphs),
        "tasks": sum(len(each) - each.joins for each in tasks),
        "modelled_us": sum(s.modelled_us for s in subgraphs),
        "layerwise_us": sum(s.layerwise_us for s in subgraphs),
        "bytes": _memory(tasks),
        "projected_bytes": sum(project(each, thread_count(None)).total for each in tasks),
    } | ({"compare": planned.compared} if planned.compared else {})


def _memory(tasks: Sequence[TaskGraph]) -> dict[str, int]:
    """By use, for one thread: `scratch` is what each thread has, `ends` are inputs and outputs."""
    parts = [project(each, 1).to_dict() for each in tasks] or [MemoryProjection().to_dict()]
    return {name: sum(part[name] for part in parts) for name in parts[0]}


def _about(report: Json) -> Json:
    """Title and figures of the page."""
    device = report["device"]
    return {
        "title": f"{report['model']}, planned for {device['name']}: {shapes_text(report['inputs'])}",
        "summary": {
            "projected memory": size_text(report["projected_bytes"]),
            "Gflop": f"{report['flops'] / 1e9:.3g}",
            "tasks": str(report["tasks"]),
            "subgraphs": str(len(report["plan"])),
            "modelled": f"{report['modelled_us'] / 1e3:.3g} ms",
            "modelled, layerwise": f"{report['layerwise_us'] / 1e3:.3g} ms",
            "nodes on the host": str(len(report["fallback"])),
        },
        "environment": {name: str(device[name]) for name in ("name", "kind", "cores", "isa")}
        | {f"on the host: {name}": why for name, why in report["fallback"].items()},
    }
