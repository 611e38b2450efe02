"""What a run gave, as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from brickrt.cli.outputs.json_output import Json
from brickrt.cli.outputs.plan_report import fallback_lines, plan_entries, plan_table
from brickrt.cli.outputs.value_summary import value_summary
from brickrt.cli.terminal.text import extents_text, printable, table
from brickrt.compare.difference import COUNTS
from brickrt.dashboard.units import size_text
from brickrt.runtime.session.runtime import Runtime


def run_dict(
    runtime: Runtime,
    outputs: dict[str, Any],
    latency: dict[str, float],
    compile_ms: float,
    errors: dict[str, dict[str, float]] | None,
    files: Mapping[str, Path],
) -> Json:
    """The run as JSON has it: times in milliseconds, memory in bytes; `verify` and `written` only if asked for.

    `files` are those that are written, by option.
    """
    stats = runtime.stats
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


def run_text(report: Json) -> str:
    """The run for people: outputs, latency, counters, and a line per subgraph."""
    latency, stats = report["latency_ms"], report["stats"]
    lines = [
        _output_table(report["outputs"]),
        "",
        "latency  " + ", ".join(f"{name} {ms:.3f} ms" for name, ms in latency.items()),
        f"compile  {report['compile_ms']:.1f} ms",
        f"device   {report['device']}, {report['threads']} threads, strategy {report['strategy']}",
        f"memory   {size_text(report['peak_bytes'])} peak{_levels(stats['level_bytes'])}",
        f"tasks    {stats['tasks']}: {stats['complete_first']} complete first, {stats['waits']} waits, "
        f"{stats['revisits']} revisits, {stats['recomputed']} elements recomputed",
    ]
    if report["plan"]:
        lines += ["", plan_table(report["plan"])]
    lines += [f"without  {name}: {printable(text)}" for name, text in report["notes"].items()]
    lines += fallback_lines(report["fallback"], stats["host_nodes"])
    return "\n".join([*lines, *_closing(report)])


def _closing(report: Json) -> Iterator[str]:
    if "verify" in report:
        check = report["verify"]
        yield (
            f"verify   largest error {check['max_abs_error']:.3g} ({check['max_rel_error']:.3g} of the largest value), "
            f"in output '{printable(str(check['worst_output']))}'"
        )
        if check["nonfinite"]:
            every = check["compared"] + check["nonfinite"]
            yield f"         {check['nonfinite']} of {every} elements are not finite, and were not compared"
    if "written" in report:
        yield f"written  {printable(', '.join(report['written'].values()))}"


def _levels(level_bytes: dict[str, int]) -> str:
    moved = ", ".join(f"{size_text(nbytes)} beyond {level}" for level, nbytes in level_bytes.items())
    return f"; modelled traffic {moved}" if moved else ""


def _output_table(outputs: list[Json]) -> str:
    rows = [_output_row(entry) for output in outputs for entry in (output, *output.get("items", ()))]
    return table(("output", "shape", "type", "min", "max", ""), rows, right=("min", "max"))


def _output_row(entry: Json) -> tuple[str, ...]:
    shape = "-" if entry["shape"] is None else extents_text(entry["shape"])
    kind = f"{entry['type']} of {len(entry['items'])}" if "items" in entry else entry["type"]
    ends = ("-" if entry[end] is None else f"{entry[end]:.6g}" for end in ("min", "max"))
    odd = f"{entry['nonfinite']} not finite" if entry.get("nonfinite") else ""
    return (entry["name"], shape, kind, *ends, odd)
