"""One run in bounded memory, in a process of its own, whose memory is that of the run: for the scripts and tests that
end it, or look at what it took.

    python -m bench.stream_run nafnet --size 256 --input x.npy --output y.zarr --rows 8
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from brickrt import zoo
from brickrt.graph.onnx_import.source import SourceGraph, load
from brickrt.ops.types import TensorType
from brickrt.plan.options import PlanOptions
from brickrt.plan.stream.stream_plan import StreamPlanner
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.files.extras import GPU_ARRAYS, leaving_out
from brickrt.runtime.files.formats.file_formats import WRITTEN_BY_BOX, format_of, listed
from brickrt.runtime.lowering.arena import view_aliases
from brickrt.runtime.lowering.inplace_slices import find_inplace_slices
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream.stream_files import Pixels, opened_job, source_of
from brickrt.runtime.stream.stream_planning import plan_stream
from brickrt.runtime.stream.stream_report import StreamCut, StreamOptions, StreamProgress

PLENTY = 2**33


def main() -> None:
    """Prints `planned`, then the report as JSON."""
    words = _words()
    there = Path(words.network).exists()  # else it is made, and given up once it is loaded, as a file is
    source = load(words.network if there else zoo.build(words.network, size=words.size).SerializeToString())
    pipeline = Pipeline(choose_engine("cpu"), PlanOptions(), words.threads)
    outputs = {name: _output(words.output, name, len(source.outputs)) for name in source.outputs}
    spilled = _spilled(pipeline, source, words) if words.spill == "all" and not words.resume else ()
    cut = StreamCut(words.rows, words.strips, spilled) if words.rows and not words.resume else None
    limit = words.limit if words.limit else PLENTY
    if words.over:
        limit = int(words.over * _least(words))
    files = ("never" if words.spill == "never" else "auto"), words.scratch
    options = StreamOptions(limit, words.stored, None, words.resume, cut, *files)
    given, watch = _given(source, words.input), _killing(words)
    with leaving_out(GPU_ARRAYS), opened_job(pipeline, source, given, outputs, options, watch=watch) as job:
        print("planned", flush=True)
        report = job.run(outputs)
    print(json.dumps(report.to_dict()))


def _words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", help="of the zoo, or an .onnx file")
    parser.add_argument("--size", type=int)
    parser.add_argument("--input", required=True, nargs="+", help="a file for each input, in the model's order")
    parser.add_argument("--output", required=True)
    parser.add_argument("--rows", type=int, help="of a band; by default as the limit allows")
    parser.add_argument("--strips", type=lambda text: tuple(map(int, text.split(","))), default=(1,))
    parser.add_argument("--limit", type=int, help="bytes")
    parser.add_argument("--over", type=float, help="times the least that would do, as the limit")
    parser.add_argument("--stored")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--spill", choices=("auto", "never", "all"), default="auto", help="all: needs --rows")
    parser.add_argument("--scratch", help="a folder")
    parser.add_argument("--kill-band", type=int, help="ends by SIGKILL once so many bands were told of")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds after that band")
    return parser.parse_args()


def _given(source: SourceGraph, files: list[str]) -> dict[str, str]:
    """The file of each input."""
    if len(files) != len(source.inputs):
        raise SystemExit(f"the network has the inputs {', '.join(source.inputs)}: give a file for each")
    return dict(zip(source.inputs, files, strict=True))


def _spilled(pipeline: Pipeline, source: SourceGraph, words: argparse.Namespace) -> tuple[str, ...]:
    """All tensors that may be spilled."""
    types = {}
    for name, path in _given(source, words.input).items():
        file = source_of(source, name, path, Pixels())
        types[name] = TensorType(file.shape, file.dtype)
        file.close()
    plan = plan_stream(pipeline, source, types, PLENTY).plan
    return StreamPlanner.of(plan, find_inplace_slices(plan), view_aliases(plan)).may_spill


def _output(path: str, name: str, count: int) -> str:
    if not format_of(path, WRITTEN_BY_BOX):
        raise SystemExit(f"{path}: is none of {listed(WRITTEN_BY_BOX)}")
    return path if count == 1 else f"{path.rpartition('.')[0]}.{name}.{path.rpartition('.')[2]}"


def _least(words: argparse.Namespace) -> int:
    """The bytes that a refusal says would do, of a process like this one: planning twice would make this one larger."""
    same = [
        "--size",
        str(words.size),
        "--input",
        *words.input,
        "--output",
        words.output,
        "--threads",
        str(words.threads),
    ]
    call = [
        sys.executable,
        "-m",
        "bench.stream_run",
        words.network,
        *(same if words.size else same[2:]),
        "--limit",
        "1",
    ]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    found = re.search(r"--max-memory to (\d+)MiB", done.stderr)
    if found is None:
        raise SystemExit(done.stderr)
    return int(found[1]) * 2**20


def _killing(words: argparse.Namespace) -> Any:
    """Ends this process, as nothing else would, some time after a band. Where the timer is late, as it may be while
    others have the cores, the run waits for it after as many bands again, and at the last one."""
    if words.kill_band is None:
        return None
    told, timer = 0, threading.Timer(words.delay, os.kill, (os.getpid(), signal.SIGKILL))

    def watch(progress: StreamProgress) -> None:
        nonlocal told
        told += 1
        if told == words.kill_band:
            timer.start()
        if told == 2 * words.kill_band or (told >= words.kill_band and progress.bands == progress.all_bands):
            timer.join()

    return watch


if __name__ == "__main__":
    main()
