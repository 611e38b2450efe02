"""What `brickrt plan` plans with: the device and the options of a request, and the types of a model's inputs."""

from __future__ import annotations

from collections.abc import Mapping

from brickrt.cli.files import check_files
from brickrt.cli.inputs.shapes import Shape
from brickrt.cli.requests import PlanRequest
from brickrt.cli.terminal.browser import check_opened
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import device_named
from brickrt.plan.options import PlanOptions, check_options
from brickrt.runtime.cpu.calibrate.calibration import calibrated
from brickrt.runtime.engines import planner
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.progress import Progress
from brickrt.runtime.thread_count import thread_count


def checked_pipeline(request: PlanRequest, progress: Progress) -> Pipeline:
    """The pipeline that plans what is asked for. Raises BrickError for a device and options that are none, or do not go
    together, and for files that cannot be written."""
    try:
        asked = request.strategy, request.brick, request.max_layers, request.exact, request.precision
        options = PlanOptions(*asked, request.rules)
        device = device_named(request.device_spec)
    except ValueError as e:
        raise BrickError(str(e)) from None
    check_options(device, request.precision, request.strategy)
    if device.kind == "cpu":
        device = calibrated(device)
    check_opened(request.opened, request.html, "--html")
    check_files(request.files(), request.model)
    return Pipeline(planner(device), options, thread_count(None), progress)


def input_types(source: SourceGraph, shapes: Mapping[str, Shape]) -> dict[str, TensorType]:
    """The types of inputs that have elements."""
    return {name: TensorType(shape, dtype) for name, shape in shapes.items() if (dtype := source.inputs[name].dtype)}
