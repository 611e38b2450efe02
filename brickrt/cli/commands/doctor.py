"""`brickrt doctor`: what this machine and this installation have."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from brickrt.cli.outputs.json_output import to_json
from brickrt.cli.terminal.text import printable, table
from brickrt.compare.machine import installed_version
from brickrt.dashboard.units import size_text
from brickrt.plan.device.device_spec import host_device
from brickrt.runtime.cache.disk_cache import cache_root
from brickrt.runtime.cpu.calibrate.calibration import calibration
from brickrt.runtime.thread_count import thread_count
from brickrt.version import VERSION

NEEDED = ("numpy", "onnx", "networkx", "rich", "llvmlite", "typer", "platformdirs")
EXTRAS = {
    "images": (("pillow",), "reading .png and .jpg inputs"),
    "files": (("zarr", "tifffile", "nibabel", "h5py"), "Zarr, TIFF, NIfTI and HDF5 files"),
    "codecs": (("imagecodecs",), "TIFF files that are compressed"),
    "geo": (("rasterio",), "mosaics of GeoTIFF files, JPEG 2000 and other rasters"),
    "dask": (("dask", "distributed"), "running on a cluster"),
    "quantize": (("onnxruntime",), "making models of bytes"),
    "bench": (("onnxruntime", "openvino"), "measuring beside other runtimes"),
    "cuda12": (("cupy-cuda12x", "cuda-bindings", "nvidia-cudnn-frontend"), "NVIDIA GPUs with CUDA 12"),
    "cuda13": (("cupy-cuda13x", "cuda-bindings", "nvidia-cudnn-frontend"), "NVIDIA GPUs with CUDA 13"),
}
SPEEDS = ("peak_gflops_per_core", "pairs", "bandwidth", "core_bandwidth", "task_overhead_us")
GPU_FIELDS = ("name", "memory.total", "driver_version", "compute_cap")


def command(json: bool, calibrate: bool) -> str:
    """What was found, as text or as JSON; speeds are measured again if `calibrate`."""
    report = _report(calibrate)
    return to_json(report) if json else _text(report)


def _report(calibrate: bool) -> dict[str, Any]:
    packages = dict.fromkeys([*NEEDED, *(package for packages, _ in EXTRAS.values() for package in packages)])
    libraries = {package: installed_version(package) for package in packages}
    return {
        "brickrt": VERSION,
        "python": platform.python_version(),
        "system": platform.platform(),
        "devices": [_cpu(calibrate), *_gpus()],
        "caches": _caches(),
        "libraries": {name: found for name, found in libraries.items() if found is not None},
        "missing": list(_missing(libraries)),
    }


def _cpu(again: bool) -> dict[str, Any]:
    """The CPU with its speeds as they were measured, anew if `again`."""
    spec = host_device()
    found = calibration(spec, again)
    known = {key: value for key, value in spec.to_dict().items() if key in ("name", "cores", "isa", "l1", "l2", "l3")}
    speeds = {"measured": found.refused is None, "why_not": found.refused}
    figures = found.applied(spec).to_dict()
    speeds |= {key: figures[key] for key in SPEEDS}
    return {"kind": "cpu", **known, "memory": spec.memory, "threads": thread_count(None), "speeds": speeds}


def _gpus() -> Iterator[dict[str, Any]]:
    """The GPUs as nvidia-smi lists them; asking CUDA itself would load it. Nothing where there is no driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return
    query = [tool, f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as e:
        yield {"kind": "cuda", "name": f"unknown: {e}", "memory": None, "driver": None, "compute_capability": None}
        return
    for line in done.stdout.splitlines():
        name, mebibytes, driver, capability = (part.strip() for part in line.split(","))
        memory = int(mebibytes) << 20 if mebibytes.isdigit() else None
        yield {"kind": "cuda", "name": name, "memory": memory, "driver": driver, "compute_capability": capability}


def _caches() -> list[dict[str, Any]]:
    """The folders of compiled kernels and tuned plans."""
    root = cache_root()
    folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    return [_folder(path) for path in folders] or [{"folder": str(root), "files": 0, "bytes": 0}]


def _folder(path: Path) -> dict[str, Any]:
    sizes = []
    for file in path.rglob("*"):
        with suppress(FileNotFoundError):  # another process may be cleaning up
            sizes += [file.stat().st_size] if file.is_file() else []
    return {"folder": str(path), "files": len(sizes), "bytes": sum(sizes)}


def _missing(libraries: dict[str, str | None]) -> Iterator[dict[str, Any]]:
    """Optional extras whose packages are missing; one of the two for GPUs is enough."""
    lacking = {extra: [p for p in packages if libraries[p] is None] for extra, (packages, _) in EXTRAS.items()}
    gpu_ready = not lacking["cuda12"] or not lacking["cuda13"]
    for extra, packages in lacking.items():
        if packages and not (gpu_ready and extra.startswith("cuda")):
            yield {"libraries": packages, "for": EXTRAS[extra][1], "get": f'pip install "brickrt[{extra}]"'}


def _text(report: dict[str, Any]) -> str:
    lines = [f"brickrt {report['brickrt']}, Python {report['python']}, {report['system']}", "", "devices"]
    for device in report["devices"]:
        lines += [
            f"  {_device_text(device)}",
            *([f"        {_speeds_text(device['speeds'])}"] if "speeds" in device else []),
        ]
    if all(device["kind"] == "cpu" for device in report["devices"]):
        lines.append("  cuda  nvidia-smi was not found: --device cuda needs an NVIDIA driver")
    lines += ["", "caches"]
    lines += [f"  {printable(c['folder'])}: {c['files']} files, {size_text(c['bytes'])}" for c in report["caches"]]
    lines += ["", table(("library", "version"), [(n, v) for n, v in report["libraries"].items()])]
    if report["missing"]:
        rows = [(", ".join(m["libraries"]), m["for"], m["get"]) for m in report["missing"]]
        lines += ["", table(("missing", "for", "how to get it"), rows)]
    return "\n".join(lines)


def _device_text(device: dict[str, Any]) -> str:
    memory = "" if device["memory"] is None else f", {size_text(device['memory'])} memory"
    if device["kind"] == "cuda":
        return f"cuda  {device['name']}{memory}, driver {device['driver']}, capability {device['compute_capability']}"
    sizes = ", ".join(f"{level} {size_text(device[level])}" for level in ("l1", "l2", "l3") if device[level])
    return f"cpu   {device['name']}, {device['cores']} cores, {device['isa']}, {sizes}{memory}"


def _speeds_text(speeds: dict[str, Any]) -> str:
    alone = speeds["core_bandwidth"]
    levels = (
        f"{k} {v:.3g} GB/s" + (f" ({alone[k]:.3g} one core)" if k in alone else "")
        for k, v in speeds["bandwidth"].items()
    )
    source = "measured" if speeds["measured"] else f"not measured ({speeds['why_not']}), taken to be"
    figures = f"{speeds['peak_gflops_per_core']:.3g} GFLOP/s a core, {', '.join(levels)}"
    pairs = ", adds beside multiply-adds" if speeds["pairs"] else ""
    return f"{source} {figures}{pairs}, {speeds['task_overhead_us']:.2g} µs a task"
