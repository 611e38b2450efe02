"""`brickrt plan`: the plan of a model, from shapes alone."""

from __future__ import annotations

import math
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from brickrt.cli.files import check_files, write_text
from brickrt.cli.inputs import parse
from brickrt.cli.inputs.shapes import Shape, assuming, concrete_shapes, note_assumed
from brickrt.cli.outputs.json_output import Json, to_json
from brickrt.cli.outputs.plan_compare import compare, compare_table
from brickrt.cli.outputs.plan_report import fallback_lines, plan_entries
from brickrt.cli.outputs.plan_tree import plan_tree
from brickrt.cli.outputs.stream_report import plan_text_of
from brickrt.cli.requests import PlanRequest
from brickrt.cli.terminal.progress import shown_progress
from brickrt.cli.terminal.text import printable, shapes_text
from brickrt.dashboard.report.page import write_report
from brickrt.dashboard.units import size_text
from brickrt.graph.builder import OnnxNode
from brickrt.graph.errors import BrickError
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.source import SourceGraph, load
from brickrt.graph.specialize.stages import Specialized, first_stage
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import device_named
from brickrt.plan.options import PlanOptions, check_precision
from brickrt.plan.plan import Plan
from brickrt.runtime.analysis.memory_projection import MemoryProjection, project
from brickrt.runtime.cache.saved_plan import plan_text
from brickrt.runtime.cpu.calibrate.calibration import calibrated
from brickrt.runtime.engines import planner
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.pipeline import LATER, Pipeline
from brickrt.runtime.stream.stream_planning import plan_stream
from brickrt.runtime.stream.stream_report import plan_dict
from brickrt.runtime.thread_count import thread_count


@dataclass(frozen=True)
class Planned:
    """The first stage of a model. `later` are nodes that are planned once values are known, while it runs."""

    source: SourceGraph
    shapes: dict[str, Shape]
    plan: Plan
    tasks: TaskGraph | None
    fallback: dict[str, str]
    later: tuple[OnnxNode, ...]
    compared: list[Json]


def command(request: PlanRequest) -> str:
    """Plans the model's first stage; gives what is printed of it."""
    try:
        options = PlanOptions(request.strategy, request.brick, request.max_layers, request.exact, request.precision)
        device = device_named(request.device_spec)
    except ValueError as e:
        raise BrickError(str(e)) from None
    check_precision(device, request.precision)
    if device.kind == "cpu":
        device = calibrated(device)
    check_files(request.files(), request.model)
    with shown_progress() as progress:
        pipeline = Pipeline(planner(device), options, thread_count(None), progress)
        progress("import", 0, 1)
        source = load(request.model)
        shapes, assumed = concrete_shapes(source, parse.named_shapes(request.shapes))
        if request.max_memory is not None:
            with assuming(assumed):
                return _streamed(request, pipeline, source, shapes)
        with assuming(assumed):
            special = _specialized(pipeline, source, shapes)
        plan = pipeline.plan(special.graph)
        tasks = pipeline.lower(plan) if plan.subgraphs else None
        compared = compare(pipeline, special.graph, progress) if request.compare and tasks else []
    later = special.rest.nodes if special.rest else ()
    if request.save is not None:
        _save(request.save, pipeline.as_planned(special.graph), plan, later)
    planned = Planned(source, shapes, plan, tasks, dict(special.host_reasons), later, compared)
    report = _report(planned)
    if request.html is not None:
        write_text(request.html, lambda out: write_report(out, [], _about(report), [tasks] if tasks else []))
    note_assumed(assumed)
    return to_json(report) if request.json else _text(report, plan)


def _streamed(request: PlanRequest, pipeline: Pipeline, source: SourceGraph, shapes: dict[str, Shape]) -> str:
    """How the model would run band by band."""
    for option, given in {"--compare": request.compare, "--html": request.html, "--save": request.save}.items():
        if given:
            raise BrickError(f"{option} is of no use with --max-memory: leave one out")
    types = {name: TensorType(shape, dtype) for name, shape in shapes.items() if (dtype := source.inputs[name].dtype)}
    planned = plan_stream(pipeline, source, types, request.max_memory, spill_into=Path(tempfile.gettempdir()))
    chosen = planned.candidate
    told = plan_dict(chosen.plan, chosen.memory, planned.limit, planned.spilling) | {"plan_s": planned.plan_s}
    return to_json(told) if request.json else plan_text_of(told)


def _save(path: Path, graph: Graph, plan: Plan, later: tuple[OnnxNode, ...]) -> None:
    if later:
        raise BrickError(f"{path}: the plan cannot be saved: {LATER}: '{later[0].name}' ({later[0].op_type})")
    write_text(path, lambda out: out.write(plan_text(graph, plan)))


def _specialized(pipeline: Pipeline, source: SourceGraph, shapes: dict[str, Shape]) -> Specialized:
    types = {name: TensorType(shape, dtype) for name, shape in shapes.items() if (dtype := source.inputs[name].dtype)}
    tensors = {name: kind for name, kind in types.items() if kind.dtype.kind not in "OUS"}
    special = pipeline.specialize(first_stage(source), tensors, {})
    if special.need_values:
        names = ", ".join(f"'{name}'" for name in sorted(special.need_values))
        raise BrickError(f"the values of input {names} decide shapes inside the model: use brickrt run with --input")
    return special


def _report(planned: Planned) -> Json:
    plan, tasks = planned.plan, planned.tasks
    return {
        "model": planned.source.name,
        "inputs": {name: list(shape) for name, shape in planned.shapes.items()},
        "device": plan.device.to_dict(),
        "options": plan.options.to_dict(),
        "plan": plan_entries([plan]),
        "fallback": planned.fallback,
        "later": [{"node": node.name, "operator": node.op_type} for node in planned.later],
        "flops": sum(s.flops for s in plan.subgraphs),
        "tasks": len(tasks) if tasks else 0,
        "modelled_us": sum(s.modelled_us for s in plan.subgraphs),
        "layerwise_us": sum(s.layerwise_us for s in plan.subgraphs),
        "bytes": _memory(tasks),
        "projected_bytes": project(tasks, thread_count(None)).total if tasks else 0,
    } | ({"compare": planned.compared} if planned.compared else {})


def _memory(tasks: TaskGraph | None) -> dict[str, int]:
    """By use, for one thread: `scratch` is what each thread has, `ends` are inputs and outputs."""
    return asdict(project(tasks, 1) if tasks else MemoryProjection())


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


def _text(report: Json, plan: Plan) -> str:
    device = report["device"]
    lines = [
        f"model    {printable(report['model'])} ({printable(shapes_text(report['inputs'])) or 'no inputs'})",
        f"device   {device['name']}, {device['cores']} cores, {device['isa']}",
        f"memory   {size_text(report['projected_bytes'])} projected: "
        + ", ".join(f"{name} {size_text(n)}" for name, n in report["bytes"].items()),
        f"work     {report['flops'] / 1e9:.3g} Gflop in {report['tasks']} tasks; {_times(report)}",
    ]
    if report["plan"]:
        lines += ["", *plan_tree(plan)]
    else:
        lines += ["", "no brick operators in the first stage"]
    lines += map(printable, fallback_lines(report["fallback"]))
    if report["later"]:
        nodes = ", ".join(f"{entry['node']} ({entry['operator']})" for entry in report["later"])
        lines.append(printable(f"planned when the values before them are known: {nodes}"))
    if "compare" in report:
        lines += ["", compare_table(report["compare"])]
    return "\n".join(lines)


def _times(report: Json) -> str:
    modelled, layerwise = report["modelled_us"], report["layerwise_us"]
    return f"modelled {modelled / 1e3:.3g} ms, layerwise {layerwise / 1e3:.3g} ms" if math.isfinite(modelled) else ""
