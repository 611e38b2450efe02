"""What the demo found, as JSON and as text."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import brickrt
from brickrt.cli.outputs.json_output import Json
from brickrt.cli.requests import DemoRequest
from brickrt.cli.terminal.text import printable, table
from brickrt.dashboard.units import size_text

if TYPE_CHECKING:
    from brickrt.demo.engines import EngineFigures

TITLES = {"bricks": "brickrt, bricks", "layerwise": "brickrt, layer by layer", "onnxruntime": "ONNX Runtime"}


def demo_dict(
    request: DemoRequest, threads: int, quality: Mapping[str, float], found: Mapping[str, EngineFigures | str]
) -> Json:
    """The demo as JSON has it: PSNR in dB, times in milliseconds, memory in bytes; `missing` says why an engine has no
    figures."""
    return {
        "size": request.size,
        "seed": request.seed,
        "threads": threads,
        "psnr": dict(quality),
        "engines": {name: asdict(figures) for name, figures in found.items() if not isinstance(figures, str)},
        "missing": {name: reason for name, reason in found.items() if isinstance(reason, str)},
    }


def demo_text(report: Json) -> str:
    """The quality of the result, a line per engine, and the files that were written."""
    size, threads = report["size"], report["threads"]
    lines = [
        f"a photograph of {size}×{size} pixels, {threads} thread{'s' * (threads > 1)}",
        _quality(report),
        "",
        _table(report["engines"]),
        *(f"{TITLES[name]}: {printable(reason)}" for name, reason in report["missing"].items()),
        "",
        *("written  " + printable(path) for path in report["written"]),
    ]
    return "\n".join(lines)


def demo_about(report: Json) -> dict[str, Any]:
    """Title, figures and environment of the report's page."""
    times = {TITLES[name]: _told(entry) for name, entry in report["engines"].items()}
    return {
        "title": f"brickrt demo: denoising {report['size']}×{report['size']} pixels",
        "summary": {"PSNR": _quality(report).removeprefix("PSNR").strip(), **times},
        "environment": {
            "brickrt": brickrt.__version__,
            "python": platform.python_version(),
            "system": platform.platform(),
            "threads": str(report["threads"]),
        },
    }


def _quality(report: Json) -> str:
    before, after = report["psnr"]["before"], report["psnr"]["after"]
    return f"PSNR     {before:.2f} dB before, {after:.2f} dB after"


def _told(entry: Json) -> str:
    return f"{entry['ms']['median']:.0f} ms, {_memory(entry)}"


def _memory(entry: Json) -> str:
    return "-" if entry["peak_bytes"] is None else size_text(entry["peak_bytes"])


def _table(engines: Mapping[str, Json]) -> str:
    """A line per engine: its median time, and that over the time of bricks."""
    ours = engines["bricks"]["ms"]["median"] if "bricks" in engines else None
    rows = [
        (
            TITLES[name],
            f"{entry['ms']['median']:.0f} ms",
            f"{entry['ms']['median'] / ours:.2f}×" if ours else "-",
            _memory(entry),
            f"{entry['psnr']:.2f} dB",
        )
        for name, entry in engines.items()
    ]
    heads = ("engine", "time", "beside bricks", "peak memory", "PSNR")
    return table(heads, rows, right=heads[1:])
