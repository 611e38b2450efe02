"""A runtime's runs from files to files. `Runtime.stream` imports this module when it is called: most programs never do,
and what it imports takes a third of the time in which a process starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.runtime.execution.execution import among
from brickrt.runtime.files.identity import FilesRead
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.program_protocol import Cancellable
from brickrt.runtime.session.cluster_stream import ClusterStream
from brickrt.runtime.stream.stream_files import going_on, named, opened_job
from brickrt.runtime.stream.stream_report import StreamOptions, StreamReport
from brickrt.runtime.windows.window_job import opened_windows
from brickrt.runtime.windows.window_options import Blend, WindowOptions, window_options
from brickrt.runtime.windows.window_report import WindowReport

Files = tuple[Any, Any]  # inputs and outputs, by name or one alone
Asked = tuple[int | tuple[int, ...] | None, float | None, Blend | None]  # window, overlap and blend


def stream_files(
    pipeline: Pipeline,
    source: SourceGraph,
    files: Files,
    options: StreamOptions,
    asked: Asked,
    cluster: ClusterStream | None,
    running: list[Cancellable],
) -> StreamReport | WindowReport:
    """See `Runtime.stream`. The job is among those `running` meanwhile."""
    inputs, outputs = files[0], named("outputs", files[1], list(source.outputs))
    windows = _windows(*asked)
    _check_outputs(source, inputs, outputs)
    if cluster is not None:
        return cluster.run(list(source.inputs), inputs, outputs, options, windows)
    one, options = (pipeline, source, inputs), going_on(options, outputs)
    opened = opened_windows(*one, windows, options) if windows else opened_job(*one, outputs, options)
    with opened as job, among(running, job):
        return job.run(outputs)


def _check_outputs(source: SourceGraph, inputs: Any, outputs: dict[str, Any]) -> None:
    """Raises BrickError for outputs that are no paths, or are inputs of the run."""
    files = named("inputs", inputs, list(source.inputs)).values()
    read = FilesRead(one for one in files if isinstance(one, str | Path))
    for name, path in outputs.items():
        if not isinstance(path, str | Path):
            raise BrickError(f"output '{name}' is a {type(path).__name__}: give the path of the file to write")
        read.check(f"output '{name}'", path)


def _windows(window: int | tuple[int, ...] | None, overlap: float | None, blend: Blend | None) -> WindowOptions | None:
    """The windows that are asked for. Raises BrickError where they make no sense."""
    if window is None and (overlap is not None or blend is not None):
        raise BrickError("overlap and blend are of blended windows: give a window too, or leave them out")
    return None if window is None else window_options(window, overlap, blend)
