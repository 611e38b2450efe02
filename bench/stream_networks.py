"""Whether networks run band by band as they run in core: on a folder of .onnx files, of whatever exporter.

    python -m bench.stream_networks FOLDER --checks plan,bits,memory,kills

plan: planned, or refused and why, also of images and volumes far larger than memory, with processor seconds; bits:
the same bits as in core with `exact`, by default the largest difference in shares of the largest value; memory:
measured, projected and allowed, just above the least; kills: ended by SIGKILL and gone on with, the same bytes. Open
extents of inputs are those of `--images` and `--volumes`, of which the first is taken that the network runs on in core.
Each check of a network is a process of its own. The exit code is 1 where one fails; a refusal is none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import brickrt
from bench.stream_kills import digest
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph, load
from brickrt.ops.types import TensorType
from brickrt.plan.options import PlanOptions
from brickrt.plan.stream.choose_bands import TooLittleMemory
from brickrt.plan.stream.stream_plan import StreamPlanner
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.lowering.arena import view_aliases
from brickrt.runtime.lowering.inplace_slices import find_inplace_slices
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream.resident import resident_bytes
from brickrt.runtime.stream.stream_planning import PlannedStream, plan_stream
from brickrt.runtime.stream.stream_program import StreamProgram
from brickrt.runtime.stream.stream_report import StreamCut
from brickrt.runtime.stream.sweep_run import Files

PLENTY, MIB = 2**50, 2**20
CUTS = (8, 1), (13, 2), (48, 1)  # rows of a band, strips
LARGE_EXTENTS = {
    2: ((8192, 8192), (131072, 1024), (2**14, 2**17), (2**20, 2**20)),
    3: ((512,) * 3, (131072, 64, 64), (2**13,) * 3),
}
TOLERANCE = 1e-5  # of the largest value
Extents = tuple[int, ...]


def main() -> int:
    """Checks all files; 1 where something is wrong."""
    words, wrong = _words(), 0
    if words.child:
        print(json.dumps(CHECKS[words.child](words.folder, words.images[0])))
        return 0
    told = []
    for path in sorted(words.folder.glob("*.onnx")):
        if any(part in path.name for part in words.only.split(",")):
            told.append(one := _network(path, words))
            wrong += bool(one["wrong"])
            print(f"{path.stem:40} {_line(one)}", flush=True)
    if words.json:
        words.json.write_text(json.dumps(told, indent=1))
    print(f"{len(told)} networks, {wrong} that went wrong")
    return int(wrong > 0)


def _words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--checks", default="plan,bits,memory,kills")
    parser.add_argument("--only", default="", help="parts of names, with commas between")
    parser.add_argument("--images", type=_extents, default=[(213, 187), (224, 192)])
    parser.add_argument("--volumes", type=_extents, default=[(61, 45, 53), (64, 64, 48)])
    parser.add_argument("--json", type=Path, help="write what was found to a file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def _extents(text: str) -> list[Extents]:
    return [tuple(map(int, one.split("x"))) for one in text.split(",")]


def _network(path: Path, words: argparse.Namespace) -> dict:
    """What the checks of one network found; `wrong` is what failed."""
    found: dict = {"network": path.stem, "wrong": []}
    for extents in words.volumes if _spatial(load(path)) == 3 else words.images:
        for check in words.checks.split(","):
            child = [sys.executable, "-m", "bench.stream_networks", str(path), "--child", check]
            done = subprocess.run([*child, "--images", "x".join(map(str, extents))], capture_output=True, text=True)
            said = done.stdout.splitlines()[-1:] if done.returncode == 0 else []
            one = json.loads(said[0]) if said else {"wrong": (done.stderr.splitlines() or [str(done.returncode)])[-1]}
            found[check] = one
            found["wrong"] += [f"{check}: {one['wrong']}"] if one.get("wrong") else []
            if one.get("in core") or one.get("refused"):
                break
        if not found.get(check, {}).get("in core"):
            break
    return found


def _line(one: dict) -> str:
    parts = [f"{check} {one[check]}" for check in CHECKS if check in one]
    return "; ".join(parts) + (f"  WRONG {one['wrong']}" if one["wrong"] else "")


def _spatial(source: SourceGraph) -> int:
    info = next(iter(source.inputs.values()))
    return len(info.shape or ()) - 2


def _types(source: SourceGraph, extents: Extents) -> dict[str, TensorType]:
    """Inputs of these extents, where they are open, and batches of one."""
    found = {}
    for name, info in source.inputs.items():
        wanted = dict(enumerate(extents, 2))
        assert info.shape is not None and info.dtype is not None
        shape = (e if isinstance(e, int) else wanted.get(k, 1) for k, e in enumerate(info.shape))
        found[name] = TensorType(tuple(shape), info.dtype)
    return found


def _pipeline(exact: bool = False) -> Pipeline:
    return Pipeline(choose_engine("cpu"), PlanOptions(exact=exact), 2)


def _arrays(types: dict[str, TensorType]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {name: _values(rng, kind).astype(kind.dtype) for name, kind in types.items()}


def _values(rng: np.random.Generator, kind: TensorType) -> np.ndarray:
    """Some of each sign; of whole numbers those that any table has."""
    return rng.standard_normal(kind.shape) if kind.dtype.kind == "f" else rng.integers(0, 2, kind.shape)


def check_plan(path: Path, extents: Extents) -> dict:
    """The least memory, passes and processor seconds, here and of large inputs."""
    source = load(path)
    found = _least(source, _types(source, extents))
    if found.get("refused"):
        return found
    for large in LARGE_EXTENTS.get(_spatial(source), ()):
        types = _types(source, large)
        if all(kind.shape[2:] == large for kind in types.values()):
            found["×".join(map(str, large))] = one = _least(source, types)
            found["wrong"] = one.get("wrong") or found.get("wrong")
    return found


def _least(source: SourceGraph, types: dict[str, TensorType]) -> dict:
    """How a run is refused for a byte, and planned for the least."""
    pipeline, began, before = _pipeline(), time.process_time(), resident_bytes()
    try:
        plan_stream(pipeline, source, types, 1)
    except TooLittleMemory as refusal:
        least, seconds = refusal.least.memory.total, time.process_time() - began
    except BrickError as refusal:
        return {"refused": str(refusal), "s": round(time.process_time() - began, 2)}
    except Exception as e:
        return {"wrong": f"{type(e).__name__}: {e}"}
    began = time.process_time()
    grown = max(0, resident_bytes() - before)  # by planning, which counts as what the process has
    planned = plan_stream(pipeline, source, types, least + grown + 16 * MIB)
    stream = planned.candidate.plan
    told = {"MiB": least // MIB, "passes": stream.swept.passes, "rows": stream.rows, "strips": stream.strips}
    seconds = max(seconds, time.process_time() - began)
    return told | {"s": round(seconds, 2)} | ({"wrong": f"planning took {seconds:.1f} s"} if seconds > 2 else {})


def check_bits(path: Path, extents: Extents) -> dict:
    """Whether bands have the bits of an in-core run with `exact`, and are near to it without."""
    source = load(path)
    types = _types(source, extents)
    arrays, found = _arrays(types), {}
    for exact in (True, False):
        try:
            wanted = brickrt.Runtime(path, device="cpu", exact=exact, threads=2).execute(arrays)
        except BrickError as e:
            return {"in core": str(e)}
        for rows, strips in CUTS if exact else CUTS[:2]:
            planned = plan_stream(
                _pipeline(exact), source, types, PLENTY, StreamCut(rows, (strips,) + (1,) * (len(extents) - 2))
            )
            if exact and strips > 1 and not _may_cut(planned):
                continue
            got = _run(planned, arrays)
            far = max(_far(got[name], wanted[name], exact) for name in wanted)
            found[f"{'exact ' if exact else ''}{rows}×{strips}"] = far
            if not far <= (0 if exact else TOLERANCE):
                found["wrong"] = (
                    f"{'exact' if exact else 'default'}: {far:.1g} in bands of {rows} rows, {strips} strips"
                )
    return found


def _may_cut(planned: PlannedStream) -> bool:
    """Whether strips have the bits of whole rows: norms along rows round otherwise."""
    plan = planned.plan
    return StreamPlanner.of(plan, find_inplace_slices(plan), view_aliases(plan)).may_cut


class _ArrayBoxes:
    """Reads boxes of an array, or writes them."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def read(self, lo: Extents, out: np.ndarray) -> None:
        out[...] = self.array[tuple(slice(a, a + n) for a, n in zip(lo, out.shape, strict=True))]

    def write(self, lo: Extents, array: np.ndarray) -> None:
        self.array[tuple(slice(a, a + n) for a, n in zip(lo, array.shape, strict=True))] = array


def _run(planned: PlannedStream, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    graph = planned.plan.graph
    program = StreamProgram(planned.candidate.plan, host_isa(choose_engine("cpu").spec), 2, graph.constants)
    outputs = {name: np.full(graph.types[name].shape, 77, graph.types[name].dtype) for name in graph.outputs}
    sources = {name: _ArrayBoxes(arrays[name]) for name in graph.inputs}
    program.run(Files(sources, {name: _ArrayBoxes(array) for name, array in outputs.items()}))
    return outputs


def _far(got: np.ndarray, wanted: np.ndarray, exact: bool) -> float:
    """The largest difference over the largest value; 1 at least where not all bits are the same but must be."""
    if got.tobytes() == wanted.tobytes():
        return 0.0
    if got.shape != wanted.shape or got.dtype.kind != "f":
        return float(np.mean(got != wanted)) if got.shape == wanted.shape and not exact else float("inf")
    difference = np.abs(got.astype(np.float64) - wanted)
    return float(difference.max() / max(np.abs(wanted).max(), 1e-30))


def check_memory(path: Path, extents: Extents) -> dict:
    """Measured, projected and allowed MiB, a little above the least."""
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for over in (1.01, 1.3):
            told = _stream_run(path, extents, Path(folder), "--over", str(over))
            sizes = [told[word] for word in ("peak_bytes", "projected_bytes", "limit_bytes")]
            found[str(over)] = [size // MIB for size in sizes], told["band_rows"], told["strips"]
            if sizes != sorted(sizes):
                found["wrong"] = f"measured, projected, allowed: {[size // MIB for size in sizes]}"
    return found


def check_kills(path: Path, extents: Extents) -> dict:
    """Bytes after runs that were ended in some of their bands."""
    with tempfile.TemporaryDirectory() as folder:
        rows = max(4, extents[0] // 12)
        told = _stream_run(path, extents, Path(folder), "--rows", str(rows))
        wanted, found = _digests(Path(folder)), {"bands": told["bands"]}
        for band in sorted({1, told["bands"] // 2, max(1, told["bands"] - 1)}):
            with tempfile.TemporaryDirectory() as other:
                _stream_run(path, extents, Path(other), "--rows", str(rows), "--kill-band", str(band), check=False)
                if any(Path(other).glob("*-journal")):
                    _stream_run(path, extents, Path(other), "--resume")
                if _digests(Path(other)) != wanted:
                    found["wrong"] = f"other bytes after a kill in band {band}"
    return found


def _digests(folder: Path) -> list[str]:
    return [digest(one) for one in sorted(folder.glob("y*.npy"))]


def _stream_run(path: Path, extents: Extents, folder: Path, *words: str, check: bool = True) -> dict:
    arrays = _arrays(_types(load(path), extents))
    given = [folder / f"x{number}.npy" for number in range(len(arrays))]
    for file, array in zip(given, arrays.values(), strict=True):
        if not file.exists():  # a run that goes on asks for the same files
            np.save(file, array)
    strips = ",".join("1" * (len(extents) - 1))
    call = [
        sys.executable,
        "-m",
        "bench.stream_run",
        str(path),
        "--input",
        *map(str, given),
        "--output",
        str(folder / "y.npy"),
    ]
    done = subprocess.run([*call, "--strips", strips, *words], capture_output=True, text=True)
    if check and done.returncode:
        raise SystemExit((done.stderr.splitlines() or ["ended"])[-1])
    return json.loads(done.stdout.splitlines()[-1]) if not done.returncode else {}


CHECKS = {"plan": check_plan, "bits": check_bits, "memory": check_memory, "kills": check_kills}

if __name__ == "__main__":
    sys.exit(main())
