"""`brickrt bench`: a model's time beside that of other runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from brickrt import zoo
from brickrt.cli.failure import Failure
from brickrt.cli.files import check_files, check_writable, write_whole
from brickrt.cli.inputs.file_lists import all_files, input_files
from brickrt.cli.inputs.gather import gather
from brickrt.cli.inputs.shapes import Shape, assuming, concrete_shapes, note_assumed
from brickrt.cli.outputs.bench_report import bench_dict, network_text, zoo_text
from brickrt.cli.outputs.json_output import to_json
from brickrt.cli.requests import BenchRequest, InputRequest
from brickrt.cli.terminal.progress import shown_progress
from brickrt.cli.terminal.text import note
from brickrt.compare.comparison import Comparison, compare
from brickrt.compare.peers import PEERS, Model
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph, load
from brickrt.plan.options import PlanOptions
from brickrt.runtime.files.identity import FilesRead
from brickrt.runtime.progress import Progress
from brickrt.runtime.session.runtime import Runtime
from brickrt.runtime.thread_count import thread_count


@dataclass(frozen=True)
class BenchNetwork:
    """A network to measure, and what was assumed of its inputs."""

    name: str
    model: Model
    source: SourceGraph
    arrays: dict[str, np.ndarray]
    assumed: list[str]


def command(request: BenchRequest) -> str | Failure:
    """Measures what was asked for; gives what is printed of it."""
    _check(request)
    rows = []
    for name in zoo.names() if request.model is None else [request.model]:
        subject = _subject(name, request)
        with assuming(subject.assumed), shown_progress() as progress:
            rows.append(_measure(subject, request, progress))
        if len(rows) == 1:
            _note_left_out(rows[0])
        note_assumed(subject.assumed)
    report = bench_dict(rows, request.rounds)
    if request.output is not None:
        write_whole(request.output, lambda file: file.write((to_json(report) + "\n").encode()))
    one = request.model is not None
    text = to_json(report) if request.json else network_text(rows[0], request.rounds) if one else zoo_text(rows)
    return _checked(rows, text)


def _checked(rows: Sequence[Comparison], text: str) -> str | Failure:
    """The text, or a failure where outputs are not finite, so that comparing them says nothing."""
    for row in rows:
        for peer, count in row.nonfinite.items():
            note(f"{row.network}: {count} elements of the outputs, beside {peer}, are not finite and not compared")
    wrong = [f"{row.network} with {', '.join(row.unchecked)}" for row in rows if row.unchecked]
    why = f"compared nothing: no output of {'; '.join(wrong)} is finite: give other inputs with --input"
    return Failure(text, why) if wrong else text


def _check(request: BenchRequest) -> None:
    """Refuses options that are wrong or would be without effect, before anything is built."""
    thread_count(request.engine.threads)
    try:
        engine = request.engine
        PlanOptions(engine.strategy, engine.brick, engine.max_layers, engine.exact, engine.precision, engine.rules)
    except ValueError as e:
        raise BrickError(str(e)) from None
    for peer in request.peers or ():
        if peer not in PEERS:
            raise BrickError(f"--peers: '{peer}' is unknown: use some of {', '.join(PEERS)}")
    _check_inputs(request)
    if request.output is not None and request.model is not None:
        check_files({"--output": request.output}, Path(request.model))
    elif request.output is not None:
        check_writable(request.output)


def _check_inputs(request: BenchRequest) -> None:
    inputs = request.inputs
    chosen = {
        "--input": bool(inputs.files),
        "--shape": bool(inputs.shapes),
        "--seed": inputs.seed is not None,
        "--batch": request.batch is not None,
        "--size": request.size is not None,
    }
    used = [option for option, given in chosen.items() if given]
    if request.model is None and any(option != "--batch" for option in used):
        raise BrickError(f"{used[0]} is of use with one model only: leave it out, or give a MODEL instead of --zoo")
    for first, others in (("--input", used), ("--shape", [o for o in used if o in ("--batch", "--size")])):
        clash = [option for option in others if option != first]
        if chosen[first] and clash:
            raise BrickError(f"{first} and {clash[0]} exclude each other: leave one out")


def _subject(name: str, request: BenchRequest) -> BenchNetwork:
    """The model that `name` calls: a file where there is one, else a network of the zoo."""
    model = _model(name, request)
    source = load(model)
    inputs = request.inputs
    if isinstance(model, Path) and request.batch is not None:
        inputs = _in_batch(source, inputs, request.batch)
    if request.output is not None:
        FilesRead(all_files(input_files(source, inputs.files))).check("--output", request.output)
    feed, assumed = gather(source, inputs)
    return BenchNetwork(name, model, source, feed.arrays, assumed)


def _model(name: str, request: BenchRequest) -> Model:
    path = Path(name)
    if name not in zoo.names() or path.exists():
        if not path.exists() and not path.suffix:
            raise BrickError(f"{name}: no such file, and no network of the zoo: see brickrt zoo list")
        if request.size is not None:
            raise BrickError("--size is of use with networks of the zoo only: use --shape")
        return path
    try:
        return zoo.build(name, batch=request.batch or 1, size=request.size)
    except ValueError as e:
        raise BrickError(str(e)) from None


def _in_batch(source: SourceGraph, inputs: InputRequest, batch: int) -> InputRequest:
    """The request with `batch` as the inputs' open first dimensions."""
    shapes, _ = concrete_shapes(source, {})
    bound: dict[str, Shape] = {}
    for name, shape in shapes.items():
        dims = source.inputs[name].shape
        if dims and not isinstance(dims[0], int):
            bound[name] = (batch, *shape[1:])
    if not bound:
        raise BrickError("--batch: no input's first dimension is open: export the model with an open batch size")
    return replace(inputs, shapes=tuple(f"{name}={','.join(map(str, shape))}" for name, shape in bound.items()))


def _measure(subject: BenchNetwork, request: BenchRequest, progress: Progress) -> Comparison:
    asked = request.engine.arguments() | {"device": "cpu"}  # where the peers run
    runtime = Runtime(subject.source, progress=progress, **asked)
    runtime.prepare(subject.arrays)
    peers: Sequence[str] = tuple(PEERS) if request.peers is None else request.peers
    return compare(subject.name, subject.model, subject.arrays, runtime, peers, request.rounds, progress=progress)


def _note_left_out(row: Comparison) -> None:
    """One line for all peers that are left out."""
    if row.left_out:
        note("left out: " + "; ".join(f"{peer} ({why})" for peer, why in row.left_out.items()))
