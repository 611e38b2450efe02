"""`brickrt quantize`: a float32 model becomes one of bytes, by ranges from typical inputs."""

from __future__ import annotations

import math
from pathlib import Path

from brickrt.cli.files import check_files, write_whole
from brickrt.cli.inputs.feeds import no_input
from brickrt.cli.inputs.file_lists import all_files, input_files, note_skipped
from brickrt.cli.inputs.gather import check_images
from brickrt.cli.inputs.presets import preprocessing
from brickrt.cli.inputs.samples import Samples
from brickrt.cli.outputs.json_output import to_json
from brickrt.cli.outputs.quantize_report import quantize_dict, quantize_text
from brickrt.cli.requests import QuantizeRequest
from brickrt.cli.terminal.progress import shown_progress
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph, load
from brickrt.quantization.quantize import quantize
from brickrt.runtime.files.extras import needed
from brickrt.runtime.files.identity import FilesRead


def command(request: QuantizeRequest) -> str:
    """Quantizes the model into the file; gives what is printed of it."""
    if request.sqnr is not None and not math.isfinite(request.sqnr):
        raise BrickError(f"--sqnr {request.sqnr:g} is no ratio: give a number of dB, as --sqnr 20")
    check_files({"--output": request.output}, request.model)
    needed("onnxruntime", "quantize", "quantize")
    with shown_progress() as progress:
        progress("import", 0, 1)
        source = load(request.model)
        samples = _samples(request, source, request.calibrate.files)
        checks = _samples(request, source, request.check) if request.check else None
        made = quantize(
            Path(request.model),
            samples,
            method=request.method,
            keep=request.keep,
            sqnr=request.sqnr,
            checks=checks,
            threads=request.threads,
            progress=progress,
        )
        write_whole(request.output, lambda file: file.write(made.proto.SerializeToString()))
    note_skipped((*request.calibrate.files, *request.check))
    report = quantize_dict(request, source.name, len(samples), made)
    return to_json(report) if request.json else quantize_text(report, request.verbose)


def _samples(request: QuantizeRequest, source: SourceGraph, files: tuple[str, ...]) -> Samples:
    runs = input_files(source, files)
    if not runs:
        raise no_input(source.inputs)
    FilesRead(all_files(runs)).check("--output", request.output)
    check_images(request.calibrate, runs)
    return Samples(source, runs, preprocessing(source, request.calibrate.image))
