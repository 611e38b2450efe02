"""What quantizing a model gave, as JSON and as text."""

from __future__ import annotations

import math
from collections.abc import Iterator

from brickrt.cli.outputs.json_output import Json
from brickrt.cli.requests import QuantizeRequest
from brickrt.cli.terminal.text import printable, table
from brickrt.dashboard.units import size_text
from brickrt.quantization.quantize import QuantizationResult

LOW_DB = 20.0  # below it, the noise is more than a tenth of the signal: such layers are pointed out
SHOWN_LAYERS = 8  # in the table, the noisiest


def quantize_dict(request: QuantizeRequest, name: str, samples: int, made: QuantizationResult) -> Json:
    """The result as JSON has it; ratios that are infinite, of what is exact, become null there."""
    return {
        "model": name,
        "method": request.method,
        "calibrated_on": samples,
        "checked_on": made.samples,
        "layers": [
            {"name": each.layer.name, "op": each.layer.kind, "sqnr_db": each.sqnr_db, "why_float": each.why_float}
            for each in made.layers
        ],
        "outputs": [
            {"name": each.name, "sqnr_db": each.sqnr_db, "psnr_db": each.psnr_db}
            | ({"classified": each.classes, "same_class": each.equal} if each.classes else {})
            for each in made.outputs
        ],
        "bytes": {"before": made.bytes_before, "after": made.bytes_after},
        "run_ms": {"before": made.ms_before, "after": made.ms_after},
        "file": str(request.output),
    }


def quantize_text(report: Json, verbose: bool) -> str:
    """The result for people: the noisiest layers, or all; the outputs; what was gained, and what was written last."""
    layers = report["layers"]
    floats = sum(bool(layer["why_float"]) for layer in layers)
    stays = f", {floats} in float" if floats else ""
    lines = [
        f"model    {printable(report['model'])}",
        f"ranges   {report['method']} of {report['calibrated_on']} inputs",
        f"layers   {len(layers) - floats} in bytes{stays}",
        "",
        _layers(layers if verbose else sorted(layers, key=lambda layer: layer["sqnr_db"])[:SHOWN_LAYERS]),
        "",
        *_outputs(report),
    ]
    (size, small), (slow, fast) = (report[key].values() for key in ("bytes", "run_ms"))
    lines.append(f"size     {size_text(size)} to {size_text(small)} (×{small / size:.3f})")
    lines.append(f"a run    {slow:.2f} ms to {fast:.2f} ms (×{fast / slow:.3f})")
    noisy = [layer for layer in layers if layer["sqnr_db"] < LOW_DB and not layer["why_float"]]
    if noisy:
        lines.append(f"noisy    below {LOW_DB:g} dB: {len(noisy)} layers; --sqnr {LOW_DB:g} leaves them in float")
    return "\n".join([*lines, f"written  {printable(report['file'])}"])


def _layers(layers: list[Json]) -> str:
    heads = ("noisiest layers", "operator", "SQNR dB", "runs in")
    rows = [
        (layer["name"], layer["op"], _db(layer["sqnr_db"]), f"float: {why}" if (why := layer["why_float"]) else "bytes")
        for layer in layers
    ]
    return table(heads, rows, right=("SQNR dB",), shrinks=heads[:1])


def _outputs(report: Json) -> Iterator[str]:
    for output in report["outputs"]:
        told = f"SQNR {_db(output['sqnr_db'])} dB, PSNR {_db(output['psnr_db'])} dB"
        if "classified" in output:
            told += f", same class for {output['same_class']} of {output['classified']}"
        yield f"output   {printable(output['name'])}: {told}"


def _db(ratio: float) -> str:
    return f"{ratio:.1f}" if math.isfinite(ratio) else "∞" if ratio > 0 else "-∞"
