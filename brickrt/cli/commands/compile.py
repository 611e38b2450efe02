"""`brickrt compile`: a model as one file of code and weights, for programs that start often."""

from __future__ import annotations

from brickrt.cli.files import check_files, write_whole
from brickrt.cli.inputs import parse
from brickrt.cli.inputs.shapes import assuming, concrete_shapes, note_assumed
from brickrt.cli.outputs.json_output import Json, to_json
from brickrt.cli.requests import CompileRequest
from brickrt.cli.terminal.progress import shown_progress
from brickrt.cli.terminal.text import printable, shapes_text
from brickrt.dashboard.units import size_text
from brickrt.graph.onnx_import.source import load
from brickrt.runtime.compiled.compile_model import CompiledContent, compile_model


def command(request: CompileRequest) -> str:
    """Compiles the model into the file; gives what is printed of it."""
    check_files({"--output": request.output}, request.model)
    with shown_progress() as progress:
        progress("import", 0, 1)
        source = load(request.model)
        shapes, assumed = concrete_shapes(source, parse.named_shapes(request.shapes))
        with assuming(assumed):
            content = compile_model(
                source,
                shapes,
                target=request.target,
                exact=request.exact,
                precision=request.precision,
                progress=progress,
            )
        write_whole(request.output, content.write)
    note_assumed(assumed)
    report = _report(request, content)
    return to_json(report) if request.json else _text(report)


def _report(request: CompileRequest, content: CompiledContent) -> Json:
    header = content.header
    return {
        "model": header.name,
        "inputs": {name: list(record.shape) for name, record in header.inputs.items()},
        "file": str(request.output),
        "bytes": request.output.stat().st_size,
        "constant_bytes": sum(header.constants),
        "kernels": len(set(header.code.kernels)),
        "target": header.target,
        "machine": header.machine,
        "needs": list(header.needs),
    }


def _text(report: Json) -> str:
    sizes = f"{report['kernels']} kernels, {size_text(report['constant_bytes'])} of packed weights"
    needs = " ".join(report["needs"]) if report["target"] != "host" else "what this processor has"
    return "\n".join(
        [
            f"model    {printable(report['model'])} ({printable(shapes_text(report['inputs'])) or 'no inputs'})",
            f"target   {report['target']}, {report['machine']}: needs {needs or 'nothing more'}",
            f"wrote    {printable(report['file'])}, {size_text(report['bytes'])}: {sizes}",
        ]
    )
