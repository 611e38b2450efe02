"""`brickrt run --dask`: from files to files on the workers of a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from brickrt.cli.inputs.file_lists import named_files
from brickrt.cli.inputs.presets import preprocessing
from brickrt.cli.outputs.json_output import Json, to_json
from brickrt.cli.requests import EngineRequest, RunRequest
from brickrt.cli.terminal.progress import shown_progress
from brickrt.cli.terminal.text import BEGINS, note, printable
from brickrt.dashboard.units import size_text
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.plan.options import PlanOptions
from brickrt.runtime.cluster.cluster_job import ClusterInput
from brickrt.runtime.cluster.open_cluster import open_cluster
from brickrt.runtime.cluster.record_folder import RecordFolder
from brickrt.runtime.cluster.run_on_cluster import ClusterOptions, run_on_cluster
from brickrt.runtime.stream.stream_files import check_none
from brickrt.runtime.stream.stream_report import StreamOptions, check_options


def cluster_run(request: RunRequest, source: SourceGraph, outputs: dict[str, Path], plan: PlanOptions) -> str:
    """Runs the model in blocks of bands; gives what is printed of it."""
    asked, image = request.stream, preprocessing(source, request.inputs.image)
    wrong = [option for option, given in _of_no_use(request).items() if given]
    if wrong:
        raise BrickError(f"{wrong[0]} is of no use on a cluster: leave it out, or leave out --dask")
    if image.swapped:
        raise BrickError("the model takes blue, green, red, which no run on a cluster does: leave out --dask")
    files = named_files(source, request.inputs.files)
    inputs = {name: ClusterInput(file, image.scale, image.mean, image.std, images=True) for name, file in files.items()}
    options = ClusterOptions(asked.max_memory, request.result.stored, request.result.stored_scale, asked.resume, plan)
    check_options(StreamOptions(spill=asked.spill, scratch=asked.scratch))
    options = replace(options, spill=asked.spill, scratch=asked.scratch)
    assert asked.dask is not None
    with open_cluster(asked.dask, request.engine.threads) as client, shown_progress(request.quiet) as progress:
        if asked.resume and not RecordFolder.beside(next(iter(outputs.values()))).is_begun:
            check_none(outputs)
            note(BEGINS)
        report = run_on_cluster(client, request.model, inputs, outputs, options, progress)
    told: Json = {"model": source.name, **report.to_dict()}
    return "" if request.quiet else to_json(told) if request.json else _text(told)


def _of_no_use(request: RunRequest) -> dict[str, bool]:
    engine: EngineRequest = request.engine
    return {
        "--hard": request.stream.hard,
        "--argmax": request.result.argmax is not None,
        "--threshold": request.result.threshold is not None,
        "--save": request.result.save is not None,
        "--preset": request.inputs.image.preset in ("imagenet", "clip", "ct"),
        "--dashboard": request.watch.dashboard,
        "--report": request.watch.report is not None,
        "--device": engine.device not in ("auto", "cpu"),
    }


def _text(told: Json) -> str:
    peak, limit = size_text(told["peak_bytes"]), size_text(told["limit_bytes"])
    return "\n".join(
        (
            f"workers  {told['workers']}",
            f"blocks   {told['blocks']} in bands of {told['band_rows']} rows, {told['blocks_begun']} begun by this run",
            f"peak     {peak} measured in the largest worker, {limit} allowed to each",
            f"files    {size_text(told['bytes_read'])} read, {size_text(told['bytes_written'])} written",
            f"time     plan {told['plan_s']:.2f} s, run {told['run_s']:.2f} s",
            f"written  {printable(', '.join(told['outputs'].values()))}",
        )
    )
