"""Many files over one cluster: each is a task, run by one worker in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import load
from brickrt.plan.options import PlanOptions
from brickrt.runtime.cluster.cluster_job import ClusterInput
from brickrt.runtime.cluster.cluster_workers import RESOURCE, USUAL_LIMIT, ask_workers
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.files.formats.file_formats import READ_BY_BOX, format_of, listed, stem_of
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream.stream_job import StreamJob, StreamOptions


@dataclass(frozen=True)
class FileTask:
    """One file: what a worker runs."""

    model: str | bytes
    input: ClusterInput
    output: str
    options: StreamOptions
    threads: int


def map_over(
    model: str | Path | bytes,
    files: str | Path | Iterable[str | Path],
    into: str | Path,
    client: Any,
    *,
    like: ClusterInput | None = None,
    options: StreamOptions | None = None,
    suffix: str = ".zarr",
) -> dict[str, str]:
    """Runs a model of one input and one output on many files, or all of a folder, each on one worker of `client`.

    Outputs have the names of their inputs and are of the format of `suffix`, in the folder `into`; a file whose output
    is there already is left alone. `like` says how files are scaled. Returns outputs by input. Where a file fails, the
    others are run all the same, and BrickError then names the first."""
    workers, outputs = ask_workers(client), _outputs(_files(files), Path(into).absolute(), suffix)
    asked = options or StreamOptions()
    asked = replace(asked, max_memory=asked.max_memory or workers.budget or USUAL_LIMIT)
    content = model if isinstance(model, bytes) else str(Path(model).absolute())
    usual = like or ClusterInput("")
    tasks = [
        FileTask(content, replace(usual, path=str(path)), str(output), asked, workers.threads)
        for path, output in outputs.items()
        if not output.exists()
    ]
    _run_all(client, tasks)
    return {str(path): str(output) for path, output in outputs.items()}


def _run_all(client: Any, tasks: list[FileTask]) -> None:
    """Runs all, and raises the first error when none is under way any more."""
    from distributed import wait

    futures = client.map(run_file, tasks, resources={RESOURCE: 1}, pure=False)
    wait(futures)
    failed = [(task, future) for task, future in zip(tasks, futures, strict=True) if future.status != "finished"]
    for task, future in failed:
        raise BrickError(f"{task.input.path}: {future.exception()} ({len(failed)} of {len(tasks)} files failed)")


def run_file(task: FileTask) -> None:
    """Runs one file, in a worker."""
    source = load(task.model if isinstance(task.model, bytes) else Path(task.model))
    if len(source.inputs) != 1 or len(source.outputs) != 1:
        raise BrickError(f"the model has {len(source.inputs)} inputs and {len(source.outputs)} outputs: use one each")
    ((name, info),) = source.inputs.items()
    pipeline = Pipeline(choose_engine("cpu"), PlanOptions(), task.threads)
    opened = task.input.open(name, info)
    try:
        StreamJob(pipeline, source, {name: opened}, task.options).run({next(iter(source.outputs)): task.output})
    finally:
        opened.close()


def _outputs(files: list[Path], folder: Path, suffix: str) -> dict[Path, Path]:
    """Outputs by input."""
    if not folder.is_dir():
        raise BrickError(f"{folder}: there is no such folder: create it, or give another path")
    outputs = {path: folder / f"{stem_of(path)}{suffix}" for path in files}
    if len(set(outputs.values())) < len(outputs):
        raise BrickError("two files have the same name: map over their folders one after the other")
    return outputs


def _files(files: str | Path | Iterable[str | Path]) -> list[Path]:
    """The files, or those of a folder that can be read, by name."""
    if not isinstance(files, (str, Path)):
        return [Path(one).absolute() for one in files]
    folder = Path(files).absolute()
    if not folder.is_dir():
        raise BrickError(f"{folder}: is no folder: give one, or a list of files")
    found = sorted(path for path in folder.iterdir() if format_of(path.name, READ_BY_BOX))
    if not found:
        raise BrickError(f"{folder}: has none of {listed(READ_BY_BOX)}: give another folder")
    return found
