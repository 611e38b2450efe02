"""Everything that a GPU should be asked, in the order that matters, each with its share of the time.

    python bench/gpu/all.py [--minutes 25] [--only check,sanitize,networks,brickdl,large,counters] [--out bench/results]

Correctness first (`check`, then a part of it under compute-sanitizer), then speed against other engines (`networks`),
the tables of BrickDL (`brickdl`), larger batches, images and other precisions (`large`), and counters of bytes moved
(`counters`). A step that fails does not stop the next. Results are JSON files under --out; the exit code is not 0 if a
check failed, or a tool for one is missing.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
# step: script, share of the time, arguments
STEPS = {
    "check": ("check.py", 0.30, ["--runs", "1000"]),
    "sanitize": ("check.py", 0.15, []),
    "networks": ("networks.py", 0.15, ["--batches", "1", "--precisions", "fp32"]),
    "brickdl": ("brickdl.py", 0.10, []),
    "large": ("networks.py", 0.20, ["--batches", "1,8,64", "--precisions", "tf32,fp16,fp32", "--large"]),
    "counters": ("counters.py", 0.10, []),
}
CHECKS = ("check", "sanitize")
TOOLS = ("memcheck", "racecheck")
FEW = "--networks resnet50 --precisions fp32 --strategies memoized --launches persistent --runs 0".split()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--only", default=",".join(STEPS))
    parser.add_argument("--out", type=Path, default=HERE.parent / "results")
    asked = parser.parse_args()
    wanted = [name for name in STEPS if name in asked.only.split(",")]
    share = sum(STEPS[name][1] for name in wanted)
    failed = False
    for name in wanted:
        seconds = 60 * asked.minutes * STEPS[name][1] / share
        codes = [_run(words, limit) for words, limit in commands(name, seconds, asked.out / name)]
        failed |= name in CHECKS and any(codes)
    return int(failed)


def commands(name: str, seconds: float, out: Path) -> Iterator[tuple[list[str], float]]:
    """The command lines of a step, and how long each may take."""
    script, _, more = STEPS[name]
    python = [sys.executable, str(HERE / script), "--out", str(out)]
    if name != "sanitize":
        yield [*python, "--seconds", f"{0.8 * seconds:.0f}", *more], seconds
        return
    yield [*python, *FEW], seconds / 3  # without a tool: kernels are compiled then
    for tool in TOOLS:
        yield ["compute-sanitizer", "--tool", tool, "--error-exitcode", "3", *python, *FEW], seconds / 3


def _run(words: list[str], seconds: float) -> int:
    print("+", " ".join(words), flush=True)
    if shutil.which(words[0]) is None:
        print(f"not checked: {words[0]} is not installed", flush=True)
        return 127
    try:
        return subprocess.run(words, timeout=seconds, cwd=HERE.parents[1]).returncode
    except subprocess.TimeoutExpired:
        print(f"stopped after {seconds:.0f} s", flush=True)
        return 124


if __name__ == "__main__":
    sys.exit(main())
