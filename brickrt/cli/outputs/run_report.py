"""What a run gave, as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from brickrt.cli.outputs.json_output import Json
from brickrt.cli.outputs.plan_report import fallback_lines, plan_entries, plan_table
from brickrt.cli.outputs.value_summary import value_summary
from brickrt.cli.results.top_classes import ClassShare, top_lines
from brickrt.cli.terminal.text import extents_text, printable, table
from brickrt.compare.difference import COUNTS, compares_nothing
from brickrt.dashboard.units import size_text
from brickrt.runtime.session.runtime import Runtime


def run_dict(
    runtime: Runtime,
    outputs: dict[str, Any],
    latency: dict[str, float],
    compile_ms: float,
    errors: dict[str, dict[str, float]] | None,
    files: Mapping[str, Path],
    traffic: bool = True,
) -> Json:
    """The run as JSON has it: times in milliseconds, memory in bytes; `verify` and `written` only if asked for.

    `files` are those that are written, by option. Without `traffic` the bytes that move are left out of the figures: to
    model them takes as long as many a run.
    """
    stats = runtime.stats if traffic else runtime.plan.measured
    report = {
        "model": runtime.source.name,
        "outputs": [value_summary(name, value) for name, value in outputs.items()],
        "latency_ms": latency,
        "compile_ms": compile_ms,
        "device": runtime.device,
        "strategy": runtime.strategy,
        "threads": runtime.threads,
        "plan": plan_entries(runtime.plans),
        "fallback": runtime.fallback,
        "notes": runtime.plan.notes,
        "peak_bytes": stats.peak_bytes,
        "projected_bytes": runtime.plan.projected_bytes,
        "stats": stats.to_dict(),
    }
    if errors is not None:
        worst = max(errors, key=lambda name: errors[name]["max_abs_error"], default=None)
        largest = errors[worst] if worst is not None else {"max_abs_error": 0.0, "max_rel_error": 0.0}
        counts = {key: sum(error[key] for error in errors.values()) for key in COUNTS}
        report["verify"] = {"worst_output": worst, **largest, **counts, "outputs": errors}
    if files:
        report["written"] = {option.lstrip("-"): str(path) for option, path in files.items()}
    return report


def latency_figures(first_ms: float, run_ms: Sequence[float]) -> dict[str, float]:
    """Milliseconds of the first run, which may be a warm-up, and of the others: see `percentiles`."""
    return {"first": first_ms, **percentiles(run_ms)}


def percentiles(run_ms: Sequence[float]) -> dict[str, float]:
    """The times that half, 90 and 99 of 100 runs took at most, the least and the most; and the median, as of old."""
    if not run_ms:
        return {}
    ordered = sorted(run_ms)
    p50, p90, p99 = (_at(ordered, share) for share in (0.5, 0.9, 0.99))
    return {"p50": p50, "p90": p90, "p99": p99, "median": p50, "min": min(run_ms), "max": max(run_ms)}


def _at(ordered: Sequence[float], share: float) -> float:
    """The value below which such a share of others lie, between two in proportion, as NumPy has it, which imports much
    for this."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def run_text(report: Json, verbose: bool = False) -> str:
    """The run for people: what came out first, then latency, and what was written last; `verbose` adds counters and
    the plan."""
    lines = top_lines([ClassShare(**share) for share in report["top"]]) if "top" in report else []
    lines += [value_table([(None, output) for output in report["outputs"]])] if not lines or verbose else []
    lines += ["", _latency_line(report)]
    lines += [f"device   {report['device']}, {_threads(report)}; compiled in {report['compile_ms']:.1f} ms"]
    if verbose:
        lines += _details(report)
    elif report["fallback"]:
        lines += [f"on the host: nodes without a kernel, {len(report['fallback'])}; -v says which, and why"]
    return "\n".join([*lines, *_closing(report)])


def _latency_line(report: Json) -> str:
    ms, runs = report["latency_ms"], report["runs"]
    if runs == 1:
        return f"latency  {_ms(ms['p50'])} ms"
    figures = ", ".join(f"{name} {_ms(ms[name])}" for name in ("p50", "p90", "p99"))
    return f"latency  {figures} ms of {runs} runs; first {_ms(ms['first'])}"


def _details(report: Json) -> list[str]:
    stats = report["stats"]
    lines = [
        f"memory   {size_text(report['peak_bytes'])} peak",
        *_traffic(stats["level_bytes"]),
        f"tasks    {stats['tasks']}: {stats['complete_first']} complete first, {stats['waits']} waits, "
        f"{stats['revisits']} revisits",
        f"again    {stats['recomputed']} elements recomputed, by strategy {report['strategy']}",
    ]
    if report["plan"]:
        lines += ["", plan_table(report["plan"])]
    lines += [f"without  {name}: {printable(text)}" for name, text in report["notes"].items()]
    return lines + fallback_lines(report["fallback"], stats["host_nodes"])


def _closing(report: Json) -> Iterator[str]:
    if "verify" in report:
        yield from _verify_lines(report["verify"])
    for path in report.get("written", {}).values():
        yield f"written  {printable(path)}"


def _verify_lines(check: Json) -> Iterator[str]:
    """What comparing found; an error of nothing but NaN and infinities is not told, as 0 would say that all is well."""
    share, worst = check["max_rel_error"], printable(str(check["worst_output"]))
    every = check["compared"] + check["nonfinite"]
    if compares_nothing(check) and not check["max_abs_error"]:
        yield f"verify   nothing finite was compared: all {every} elements are NaN or infinite"
        return
    yield f"verify   largest error {check['max_abs_error']:.3g}, {share:.3g} of the largest value, in '{worst}'"
    if check["nonfinite"]:
        yield f"         {check['nonfinite']} of {every} elements are not finite, and were not compared"


def _traffic(level_bytes: dict[str, int]) -> list[str]:
    moved = ", ".join(f"{size_text(nbytes)} beyond {level}" for level, nbytes in level_bytes.items())
    return [f"traffic  {moved}, modelled"] if moved else []


def _threads(report: Json) -> str:
    return f"{report['threads']} thread{'s' * (report['threads'] != 1)}"


def _ms(took: float) -> str:
    """Milliseconds in at least four digits, whatever their size."""
    return f"{took:.{max(0, 3 - len(str(int(took))) + 1)}f}"


def value_table(outputs: Sequence[tuple[str | None, Json]]) -> str:
    """A line for each output, and for each element of a sequence, behind the file that it is of, if there is one."""
    rows = [
        (() if file is None else (file,)) + _output_row(entry)
        for file, output in outputs
        for entry in (output, *output.get("items", ()))
    ]
    heads = ("output", "shape", "type", "min", "max", "")
    files = ("file",) if outputs and outputs[0][0] is not None else ()
    return table((*files, *heads), rows, right=("min", "max"), shrinks=("file", "output"))


def _output_row(entry: Json) -> tuple[str, ...]:
    shape = "-" if entry["shape"] is None else extents_text(entry["shape"])
    kind = f"{entry['type']} of {len(entry['items'])}" if "items" in entry else entry["type"]
    ends = ("-" if entry[end] is None else f"{entry[end]:.4g}" for end in ("min", "max"))
    odd = f"{entry['nonfinite']} not finite" if entry.get("nonfinite") else ""
    return (entry["name"], shape, kind, *ends, odd)
