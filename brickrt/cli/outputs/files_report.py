"""What a run on many files gave, as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from brickrt.cli.outputs.json_output import Json
from brickrt.cli.outputs.run_report import percentiles, value_table
from brickrt.cli.results.top_classes import ClassShare, top_json, top_lines
from brickrt.cli.terminal.text import printable
from brickrt.runtime.session.runtime import Runtime


@dataclass
class FileResult:
    """What became of one input: the files written, its likeliest classes, its outputs in short, or an error."""

    file: str
    written: list[str] = field(default_factory=list)
    top: list[ClassShare] | None = None
    outputs: list[Json] = field(default_factory=list)
    error: str | None = None

    def to_dict(self) -> Json:
        """For JSON."""
        told: Json = {"input": self.file}
        if self.error is not None:
            return told | {"error": self.error}
        told |= {"outputs": self.outputs}
        told |= {"written": self.written} if self.written else {}
        return told | ({"top": top_json(self.top)} if self.top is not None else {})


@dataclass
class FilesRun:
    """A run on many files: `batch` at a time, the milliseconds of each call and of compiling, seconds of all."""

    batch: int = 1
    results: list[FileResult] = field(default_factory=list)
    run_ms: list[float] = field(default_factory=list)
    compile_ms: float = 0.0
    seconds: float = 0.0


def files_dict(ran: FilesRun, runtime: Runtime) -> Json:
    """The run as JSON has it."""
    return {
        "model": runtime.source.name,
        "files": [result.to_dict() for result in ran.results],
        "batch": ran.batch,
        "latency_ms": percentiles(ran.run_ms),
        "network_ms": sum(ran.run_ms),
        "compile_ms": ran.compile_ms,
        "seconds": ran.seconds,
        "device": runtime.device,
        "threads": runtime.threads,
    }


def files_text(report: Json, verbose: bool) -> str:
    """The run for people: classes or outputs of each file, and how long it took."""
    good = [told for told in report["files"] if "error" not in told]
    lines = list(_results(good, verbose))
    seconds, spent = report["seconds"], report["network_ms"] / 1e3
    times = f"{spent:.3g} s of them in the network, {report['compile_ms'] / 1e3:.3g} s compiling"
    lines.append(f"{len(good)} of {len(report['files'])} files in {seconds:.3g} s, {times}")
    if verbose:
        each = ", ".join(f"{name} {ms:.3f} ms" for name, ms in report["latency_ms"].items())
        lines += [f"latency  {each} of batches of {report['batch']}"]
        lines += [f"device   {report['device']}, {report['threads']} threads"]
    written = [path for told in good for path in told.get("written", ())]
    if written:
        more = f", and {len(written) - 1} more" if len(written) > 1 else ""
        lines.append(f"written  {printable(written[0])}{more}")
    return "\n".join(lines)


def _results(good: list[Json], verbose: bool) -> Iterator[str]:
    for told in good:
        if "top" in told:
            yield printable(told["input"])
            yield from top_lines([ClassShare(**share) for share in told["top"]])
    if good and "top" not in good[0] and (verbose or "written" not in good[0]):
        rows = [(printable(told["input"]), output) for told in good for output in told["outputs"]]
        yield value_table(rows)
