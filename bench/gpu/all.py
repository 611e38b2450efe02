"""Everything that a GPU should be asked, in the order that matters, each with its share of the time.

    python bench/gpu/all.py [--minutes 25] [--only check,networks] [--out …]

Correctness first (`check`, then a part of it under compute-sanitizer), then the host's time per run (`host`), speed
against other engines (`networks`; `compiled` is torch.compile, whose tuning takes minutes a network), the tables of
BrickDL (`brickdl` of networks, `merging` of subgraphs and atomics), larger batches, images and other precisions
(`large`), and counters of bytes moved (`counters`). A step that fails does not stop the next; every network is checked
in a process of its own, since an error on a GPU ends all work of its process. Results are a JSON file per step under
--out, written row by row; the exit code is not 0 if a check failed, or a tool for one is missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from common import CHECKED, among

HERE = Path(__file__).parent
QUICK, ALL = "torch,torchscript,xla", "tf32,fp16,fp32"
# step: script, share of the time, arguments
STEPS = {
    "check": ("check.py", 0.30, ["--runs", "1000"]),
    "sanitize": ("check.py", 0.15, []),
    "host": ("host.py", 0.03, []),
    "networks": ("networks.py", 0.12, ["--batches", "1", "--precisions", "fp32", "--peers", QUICK]),
    "brickdl": ("brickdl.py", 0.07, []),
    "merging": ("merging.py", 0.05, []),
    "compiled": ("networks.py", 0.13, ["--batches", "1", "--precisions", "fp32", "--peers", "torch.compile"]),
    "large": ("networks.py", 0.15, ["--batches", "1,8,64", "--precisions", ALL, "--large", "--peers", QUICK]),
    "counters": ("counters.py", 0.10, []),
}
LEAST = 20.0  # seconds that every command gets: what does not fit says so itself
CHECKS = ("check", "sanitize")
TOOLS = ("memcheck", "racecheck")
FEW = "--networks resnet50 --precisions fp32 --strategies memoized --launches persistent --runs 0".split()


def main() -> int:
    """Runs the steps that were asked for; 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--only", default=",".join(STEPS))
    parser.add_argument("--out", type=Path, default=HERE.parent / "results")
    asked = parser.parse_args()
    wanted = among(asked.only, STEPS, "step")
    share = sum(STEPS[name][1] for name in wanted)
    failed = False
    for name in wanted:
        ends = time.monotonic() + 60 * asked.minutes * STEPS[name][1] / share
        codes = []
        for words, part in commands(name, asked.out / name):
            seconds = part * max(ends - time.monotonic(), 0.0)
            codes.append(_run([*words, "--seconds", f"{0.8 * seconds:.0f}"], seconds))
        failed |= name in CHECKS and any(codes)
    return int(failed)


def commands(name: str, out: Path) -> Iterator[tuple[list[str], float]]:
    """The command lines of a step, and how much each may take of the time that is left for it."""
    script, _, more = STEPS[name]
    python = [sys.executable, str(HERE / script)]
    if name == "check":
        for k, network in enumerate(CHECKED):
            part = min(1.0, 2 / (len(CHECKED) - k))  # some take longer than others
            append = ["--append"] if k else []
            yield [*python, *more, "--networks", network, "--out", str(out), *append], part
    elif name == "sanitize":
        yield [*python, *FEW, "--out", str(out)], 1 / 3  # without a tool: kernels are compiled then
        for k, tool in enumerate(TOOLS):
            sanitizer = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "3"]
            yield [*sanitizer, *python, *FEW, "--out", str(out / tool)], 1 / (len(TOOLS) - k)
    else:
        yield [*python, *more, "--out", str(out)], 1.0


def _run(words: list[str], seconds: float) -> int:
    print("+", " ".join(words), flush=True)
    if shutil.which(words[0]) is None:
        print(f"not checked: {words[0]} is not installed", flush=True)
        return 127
    limit = max(seconds, LEAST)
    running = subprocess.Popen(words, cwd=HERE.parents[1], start_new_session=True)
    try:
        return running.wait(limit)
    except subprocess.TimeoutExpired:
        print(f"stopped after {limit:.0f} s", flush=True)
        return 124
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)  # what it started, too: the next step has the GPU to itself
            running.wait()


if __name__ == "__main__":
    sys.exit(main())
