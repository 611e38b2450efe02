"""A model from files to files on the workers of a Dask cluster: planned once, run in blocks, published by one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph, load
from brickrt.plan.device.device_spec import host_device
from brickrt.plan.device.machine import instruction_set
from brickrt.plan.options import PlanOptions
from brickrt.plan.stream.stream_memory import StreamMemory, project_stream
from brickrt.plan.stream.stream_plan import StreamPlan
from brickrt.runtime.cache.saved_plan import SavedPlan, plan_file_text
from brickrt.runtime.cluster.block_task import end_job, join_rows, run_block
from brickrt.runtime.cluster.blocks import Block, block_chunks, block_lengths, cut_blocks
from brickrt.runtime.cluster.cluster_job import (
    ClusterInput,
    ClusterJob,
    ClusterOutput,
    cluster_inputs,
    cut_plan,
    input_types,
    job_header,
    with_usual_rows,
)
from brickrt.runtime.cluster.cluster_workers import RESOURCE, USUAL_LIMIT, ClusterWorkers, ask_workers
from brickrt.runtime.cluster.record_folder import HOW_TO_START_AGAIN, RecordFolder
from brickrt.runtime.engines import Engine, choose_engine, planner
from brickrt.runtime.files.scratch import SCRATCH_BUFFERS, ScratchFolder, scratch_path
from brickrt.runtime.files.tensors import TensorSource, check_named
from brickrt.runtime.lowering.inplace_slices import find_inplace_slices
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.progress import Progress
from brickrt.runtime.stream.resident import resident_bytes
from brickrt.runtime.stream.stream_files import check_by_name, check_none
from brickrt.runtime.stream.stream_job import StreamJob, StreamOptions
from brickrt.runtime.stream.stream_planning import whole_graph
from brickrt.runtime.stream.stream_report import StreamReport

JOINED = 32  # results that one task joins
COPIES = 3  # of the rows of collected tensors that a worker may hold beside those in the program's memory


@dataclass(frozen=True)
class ClusterOptions:
    """`max_memory` bytes of each worker, by default a little less than what pauses it; `stored` and `scale` as in
    StreamOptions. With `resume` a run that was ended goes on, by its own plan. `plan` is what is asked of the planner.
    `rows` of a band and `length`, the bands of a block, are chosen by modelled time where they are not given. `spill`
    and `scratch`, a folder that all workers see, are those of StreamOptions."""

    max_memory: int | None = None
    stored: str | None = None
    scale: float | None = None
    resume: bool = False
    plan: PlanOptions = field(default_factory=PlanOptions)
    rows: int | None = None
    length: int | None = None
    spill: str = "auto"
    scratch: str | Path | None = None


@dataclass(frozen=True, kw_only=True)
class ClusterReport(StreamReport):
    """What a run on a cluster did: `begun` has the numbers of the blocks that were begun, again those of workers that
    died, `finished` those that were finished, by this run and those that it went on with. `memory`, `limit` and `peak`
    are those of a worker, of those that are left the largest; workers compile while they run, `compile_s` is 0. Bytes
    are those of all blocks."""

    workers: int
    blocks: int
    begun: tuple[int, ...]
    finished: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON has it: memory in bytes, times in seconds."""
        return super().to_dict() | {
            "workers": self.workers,
            "blocks": self.blocks,
            "blocks_begun": len(self.begun),
        }


def run_on_cluster(
    client: Any,
    model: str | Path | bytes,
    inputs: Mapping[str, str | Path | ClusterInput],
    outputs: Mapping[str, str | Path],
    options: ClusterOptions | None = None,
    progress: Progress | None = None,
) -> ClusterReport:
    """Runs a model on all workers of `client` that declare the resource "brickrt".

    Model, inputs and outputs, which are Zarr arrays, are files that all workers and this process see under the same
    names. What is finished is kept beside the output, where the run ends early, for one that resumes.
    `progress("blocks", done, total)` is told of it. Raises BrickError for what cannot be run so, before anything is
    written."""
    asked = options or ClusterOptions()
    check_by_name(inputs, outputs)
    folder = RecordFolder.beside(next(iter(outputs.values())))
    workers = ask_workers(client)
    if asked.resume and not folder.is_begun:
        check_none(outputs)
        asked = replace(asked, resume=False)
    with folder.locked(asked.resume):
        run = _ClusterRun(client, workers, folder, asked, progress)
        run.prepare(model, inputs, outputs)
        return run.run()


class _ClusterRun:
    """The coordinator's part of a run."""

    def __init__(
        self,
        client: Any,
        workers: ClusterWorkers,
        folder: RecordFolder,
        options: ClusterOptions,
        progress: Progress | None,
    ) -> None:
        self.client, self.workers, self.folder, self.options = client, workers, folder, options
        self.progress = progress

    def prepare(
        self, model: str | Path | bytes, inputs: Mapping[str, str | Path | ClusterInput], outputs: Mapping[str, Any]
    ) -> None:
        """Plans, or takes the plan of the run that this one goes on with, and writes it for the workers."""
        began = time.perf_counter()
        source = load(model if isinstance(model, bytes) else Path(model))
        files = cluster_inputs(inputs, outputs)
        check_named("inputs", source.inputs, files)
        check_named("outputs", source.outputs, outputs)
        opened = {name: one.open(name, source.inputs[name]) for name, one in files.items()}
        try:
            self._plan(source, opened, outputs)
            told = self._header(self._graph, opened)
        finally:
            for one in opened.values():
                one.close()
        self.model = model
        at = str(self.folder.model) if isinstance(model, bytes) else str(Path(model).absolute())
        self.job = ClusterJob(
            run=uuid.uuid4().hex,
            folder=str(self.folder.path),
            model=at,
            inputs=files,
            outputs=self.outputs,
            rows=self.stream.rows,
            strips=self.stream.strips,
            spilled=self.stream.spilled,
            scratch=str(self._scratch(outputs)),
            held=self.memory.held,
            header=told,
            isa=self.workers.isa,
            threads=self.workers.threads,
        )
        self.plan_s = time.perf_counter() - began

    def _plan(self, source: SourceGraph, opened: Mapping[str, TensorSource], outputs: Mapping[str, Any]) -> None:
        """Chooses how the network is swept, and how sweeps are cut into blocks."""
        then = self.folder.header() if self.options.resume else {}
        engine = _engine(self.workers.isa)
        saved = SavedPlan.read(self.folder.plan, engine.spec, "fp32") if then else None
        asked = saved.options if saved else self.options.plan
        pipeline = Pipeline(engine, asked, self.workers.threads, None, saved)
        rows, strips = then.get("rows", self.options.rows), tuple(then.get("strips", ()))
        self.limit = self.options.max_memory or self.workers.budget or USUAL_LIMIT
        if self.workers.budget and self.limit > self.workers.budget:
            raise BrickError(
                f"{self.limit >> 20} MiB are more than a worker may have before it is paused, "
                f"{self.workers.budget >> 20} MiB: give less, or start workers with more"
            )
        into = None if then or self.options.spill == "never" else self._scratch(outputs).parent
        job = self._chosen(pipeline, source, opened, into)
        self.stream, self.memory = with_usual_rows(job.stream), job.candidate.memory
        spilled = tuple(then["spilled"]) if then else job.stream.spilled
        if rows is not None and (rows, strips, spilled) != (job.stream.rows, job.stream.strips, job.stream.spilled):
            self.stream = cut_plan(job.plan, rows, strips, spilled)
            self.memory = self._memory(self.stream, job.candidate.memory.buffers)
        self._graph = pipeline.as_planned(whole_graph(source, input_types(opened), pipeline.engine.spec))
        self.outputs = {
            name: ClusterOutput(
                str(Path(outputs[name]).absolute()),
                block_chunks(self.stream, name),
                self.options.stored,
                self.options.scale,
            )
            for name in self.stream.plan.graph.outputs
        }
        gflops = engine.spec.peak_gflops_per_core * self.workers.threads
        chosen = block_lengths(self.stream, self.workers.count, gflops)
        if self.options.length is not None:
            chosen = (self.options.length,) * len(chosen)
        self.lengths = tuple(then.get("lengths", chosen))
        self._then, self._plan_file_text = then, plan_file_text(self._graph, job.plan)

    def _scratch(self, outputs: Mapping[str, Any]) -> Path:
        """Where spilled tensors are."""
        return scratch_path(next(iter(outputs.values())), self.options.scratch)

    def _chosen(
        self, pipeline: Pipeline, source: SourceGraph, opened: Mapping[str, TensorSource], into: Path | None
    ) -> StreamJob:
        """The plan within the limit, where workers also hold rows of collected tensors on their way. What is spilled
        into a folder goes through one disk for all of them."""
        beside = 0
        while True:
            limit = self.limit - self.workers.resident + resident_bytes() - beside
            asked = StreamOptions(limit, sharing=self.workers.count)
            job = StreamJob(pipeline, source, opened, asked, spill_into=into)
            on_their_way = _on_their_way(job.stream)
            if on_their_way <= beside:
                return job
            beside = on_their_way

    def _memory(self, stream: StreamPlan, buffers: int) -> StreamMemory:
        """The memory of a plan that was not chosen here. Raises BrickError where workers have less."""
        slices, beside = find_inplace_slices(stream.plan), buffers + _on_their_way(stream)
        beside += SCRATCH_BUFFERS if stream.spilled else 0
        memory = project_stream(stream, slices, self.workers.threads, self.workers.resident, beside, None, self.limit)
        if memory.total > self.limit:
            raise BrickError(
                f"bands of {stream.rows} rows need {memory.total >> 20} MiB, a worker has {self.limit >> 20} MiB: "
                f"start workers with more, or {HOW_TO_START_AGAIN}"
            )
        return memory

    def _header(self, graph: Any, opened: Mapping[str, TensorSource]) -> dict[str, str]:
        """The digests, which must be those of the run that this one goes on with."""
        told = job_header(graph, self.stream, opened, self.outputs)
        then = self._then.get("digests", told)
        changed = [word for word in told if told[word] != then.get(word)]
        if changed:
            others = f", and so are {', '.join(changed[1:])}" if changed[1:] else ""
            raise BrickError(
                f"{self.folder.path}: the {changed[0]} is another one than when this run was begun{others}: "
                f"{HOW_TO_START_AGAIN}"
            )
        return told

    def run(self) -> ClusterReport:
        """Has the workers run all blocks that are not finished, and gives the outputs their names."""
        shapes = self.stream.spill_shapes()
        with ScratchFolder(Path(self.job.scratch), shapes, keep=self.options.resume):
            return self._run()

    def _run(self) -> ClusterReport:
        began, kinds = time.perf_counter(), self.stream.plan.graph.types
        sinks = {}
        try:
            if not self.options.resume:
                self.folder.clear()
            for name, one in self.outputs.items():
                sinks[name] = one.open(kinds[name], self.options.resume)
            self._describe()
            chunk_rows = {name: one.chunks[2] if len(one.chunks) > 2 else 1 for name, one in self.outputs.items()}
            passes = cut_blocks(self.stream, self.lengths, chunk_rows)
            blocks = [block for cut in passes for block in cut]
            left = [block for block in blocks if not self.folder.record(block.number)]
            run_passes(self.client, self.job, passes, self._tell)
            if lacking := [block.number for block in blocks if not self.folder.record(block.number)]:
                raise BrickError(f"{self.folder.path}: blocks {lacking} have no record: resume the run")
        except BaseException:
            for sink in sinks.values():
                sink.abandon(keep=self.folder.is_begun)
            raise
        # after an error there may be no scheduler; the next run does so
        peaks = self.client.run(end_job, on_error="ignore")
        report = self._report(blocks, left, max(peaks.values(), default=0), began)
        for sink in sinks.values():
            sink.close()
        self.folder.remove()
        return report

    def _describe(self) -> None:
        """Writes what workers need to know, the header last."""
        if isinstance(self.model, bytes):
            self.folder.write(self.folder.model.name, self.model)
        self.folder.write(self.folder.plan.name, self._plan_file_text.encode())
        cut = {"rows": self.stream.rows, "strips": self.stream.strips, "lengths": self.lengths}
        cut |= {"spilled": self.stream.spilled}
        self.folder.write_header({"run": self.job.run, "digests": self.job.header, **cut})

    def _tell(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress("blocks", done, total)

    def _report(self, blocks: Sequence[Block], left: Sequence[Block], peak: int, began: float) -> ClusterReport:
        """What was done; `left` are the blocks that had no record before."""
        records = [record for block in blocks if (record := self.folder.record(block.number))]
        return ClusterReport(
            plan=self.stream,
            memory=self.memory,
            limit=self.limit,
            peak=peak,
            bands=sum(block.end - block.wanted for block in left),
            all_bands=sum(one.schedule.bands for one in self.stream.sweeps),
            compile_s=0.0,
            bytes_read=sum(record.read for record in records),
            bytes_written=sum(box.nbytes for record in records for box in record.boxes),
            workers=self.workers.count,
            blocks=len(blocks),
            begun=tuple(self.folder.logged("begun")),
            finished=tuple(self.folder.logged("finished")),
            plan_s=self.plan_s,
            run_s=time.perf_counter() - began,
            outputs={name: one.path for name, one in self.outputs.items()},
        )


def _engine(isa: str) -> Engine:
    """What workers of an instruction set plan for, with this machine's speeds where it has the same."""
    return choose_engine("cpu") if isa == instruction_set() else planner(host_device(isa))


def _on_their_way(stream: StreamPlan) -> int:
    """Bytes of rows of collected tensors that a worker holds beside the program's memory."""
    return COPIES * sum(stream.whole.sizes.get(name, 0) for name in stream.swept.collected)


def run_passes(
    client: Any, job: ClusterJob, passes: Sequence[Sequence[Block]], tell: Callable[[int, int], None]
) -> None:
    """Submits all blocks, those of a pass after what the passes before found, and waits. Raises the first error."""
    futures, before = [], client.submit(join_rows, key=f"brickrt-{job.run}-none", pure=False)
    for number, blocks in enumerate(passes):
        mine = [
            client.submit(
                run_block,
                job,
                block,
                before,
                key=f"brickrt-{job.run}-block-{block.number}",
                resources={RESOURCE: 1},
                priority=-block.number,  # from top to bottom, as files are read
                pure=False,
            )
            for block in blocks
        ]
        futures += mine
        before = _joined(client, f"brickrt-{job.run}-pass-{number}", [before, *mine])
    try:
        wait_for_blocks(futures, tell)
    finally:
        for future in futures:  # what has not begun is dropped
            future.release()


def wait_for_blocks(futures: Sequence[Any], tell: Callable[[int, int], None]) -> None:
    """Waits for all blocks and tells how many are done. Raises the first error. A block whose worker died between its
    end and our look at it is "lost" or "pending": the scheduler runs it again, which finds its record."""
    from distributed import as_completed

    waited, done = as_completed(futures), 0
    tell(done, len(futures))
    for future in waited:
        status = future.status
        if status == "error":
            raise _told(future.exception())
        if status in ("lost", "pending"):
            waited.add(future)
            continue
        if status != "finished":
            raise BrickError("the cluster gave up the run: start it again, and resume")
        done += 1
        tell(done, len(futures))


def _joined(client: Any, key: str, parts: Sequence[Any]) -> Any:
    """All rows of the parts, joined in a tree."""
    level = 0
    while len(parts) > 1:
        groups = [parts[k : k + JOINED] for k in range(0, len(parts), JOINED)]
        parts = [
            client.submit(join_rows, *group, key=f"{key}-{level}-{k}", pure=False) for k, group in enumerate(groups)
        ]
        level += 1
    return parts[0]


def _told(error: BaseException) -> BaseException:
    """Dask's errors in one line; others as they are."""
    from distributed.scheduler import KilledWorker, NoValidWorkerError

    if isinstance(error, KilledWorker):
        return BrickError(f"block {error.task}: {error.allowed_failures + 1} workers died of it: see their logs")
    if isinstance(error, NoValidWorkerError):
        return BrickError(f"no worker is left that declares the resource {RESOURCE}: start some, and resume")
    return error
