"""What tuning a model tried and took, as JSON and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brickrt.cli.outputs.json_output import Json
from brickrt.cli.terminal.text import printable, shapes_text, table
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.runtime.tuning.report import TuningReport


def tune_dict(
    model: str, shapes: Mapping[str, Sequence[int]], device: DeviceSpec, reports: Sequence[TuningReport]
) -> Json:
    """The tuning as JSON has it: an entry of `parts` for each part of the model that was tuned."""
    return {
        "model": model,
        "inputs": {name: list(shape) for name, shape in shapes.items()},
        "device": device.to_dict(),
        "before_ms": sum(report.before_ms for report in reports),
        "after_ms": sum(report.after_ms for report in reports),
        "seconds": sum(report.seconds for report in reports),
        "parts": [report.to_dict() for report in reports],
    }


def tune_text(report: Json) -> str:
    """A table of the plans that were tried, and what was taken."""
    device, parts = report["device"], report["parts"]
    lines = [
        f"model    {printable(report['model'])} ({printable(shapes_text(report['inputs'])) or 'no inputs'})",
        f"device   {device['name']}, {device['cores']} cores, {device['isa']}",
    ]
    for number, part in enumerate(parts):
        lines += [f"part     {number + 1} of {len(parts)}"] * (len(parts) > 1) + ["", _tried(part), "", *_taken(part)]
    if not parts:
        lines.append("nothing was tuned: there is nothing to compute, or the time was over before")
    return "\n".join(lines)


def _tried(part: Json) -> str:
    heads = ("tried", "ms", "over as modelled", "")
    rows = [
        (one["name"], *((f"{one['ms']:.2f}", f"×{one['ratio']:.3f}") if one["ratio"] else ("-", "-")), one["note"])
        for one in part["tried"]
    ]
    return table(heads, rows, right=heads[1:3])


def _taken(part: Json) -> list[str]:
    before, after = part["before_ms"], part["after_ms"]
    taken = f"taken    {part['taken']}, in {part['seconds']:.1f} s"
    if part["changed"]:
        taken += f": {part['changed']} of {part['subgraphs']} subgraphs are others than modelled"
    speed = f"a run    {before:.2f} ms as modelled, {after:.2f} ms now (×{after / before:.3f})"
    return [
        taken,
        speed,
        *(() if part["complete"] else ("time     was over before all was tried: --seconds gives more",)),
    ]
