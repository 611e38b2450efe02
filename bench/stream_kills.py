"""Ends runs in bounded memory by SIGKILL at random moments, goes on with them, and compares the bytes with those of a
run that was not ended.

    python -m bench.stream_kills --times 50

Each run is ended up to `--most` times, at a moment between its start and its end, before it may end by itself. Prints
a line for each run; the exit code is 1 where bytes differ.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CHILD = [sys.executable, "-m", "bench.stream_run"]


def main() -> int:
    """Kills as often as asked; 1 where a run's bytes differ."""
    words = _words()
    rng, kills, wrong, number = random.Random(words.seed), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "x.npy")
        np.save(given, np.random.default_rng(1).standard_normal((1, 3, words.size, words.size), np.float32))
        child = [*CHILD, words.network, "--size", str(words.size), "--input", str(given), "--threads", "2"]
        whole = Path(folder, f"whole.{words.format}")
        seconds = _timed([*child, "--output", str(whole), *_cut(words)])
        wanted = digest(whole)
        while kills < words.times:
            out, ended = Path(folder, f"{number}.{words.format}"), 0
            while ended < words.most and kills < words.times and _killed(_on(child, out, words), rng, seconds):
                ended, kills = ended + 1, kills + 1
            if not out.exists() or _unfinished(out):
                subprocess.run(_on(child, out, words), check=True, stdout=subprocess.DEVNULL)
            same = digest(out) == wanted
            wrong, number = wrong + (not same), number + 1
            print(f"run {number}: {ended} kills, {kills} in all: {'same' if same else 'OTHER'} bytes", flush=True)
    print(f"{kills} kills in {number} runs, {wrong} with other bytes")
    return int(wrong > 0)


def _words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--most", type=int, default=5, help="kills of one run")
    parser.add_argument("--network", default="nafnet")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--rows", type=int, default=8, help="of a band")
    parser.add_argument("--format", default="zarr")
    parser.add_argument("--spill", choices=("never", "all"), default="never", help="all tensors that may be")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _on(child: list[str], out: Path, words: argparse.Namespace) -> list[str]:
    """The words of a run that begins, or goes on where there is a journal."""
    begun = _unfinished(out)
    return [*child, "--output", str(out), *(["--resume"] if begun else _cut(words))]


def _cut(words: argparse.Namespace) -> list[str]:
    """How a run is cut that begins."""
    return ["--rows", str(words.rows), "--spill", words.spill]


def _unfinished(out: Path) -> bool:
    return out.with_name(f"{out.name}.brickrt-journal").exists()


def _timed(child: list[str]) -> float:
    """Seconds from the plan to the end, with kernels in the cache."""
    subprocess.run(child, check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen(child, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    began = time.perf_counter()
    if process.wait():
        raise SystemExit("the run failed")
    return time.perf_counter() - began


def _killed(child: list[str], rng: random.Random, seconds: float) -> bool:
    """Whether the run was still under way at a random moment after it was planned."""
    process = subprocess.Popen(child, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if process.stdout.readline() != "planned\n":
        raise SystemExit("the run failed")
    time.sleep(rng.uniform(0, seconds))
    process.kill()
    ended = process.wait()
    if ended > 0:
        raise SystemExit("the run failed")
    return ended < 0


def digest(path: Path) -> str:
    """SHA-256 of a file, or of all files below a folder with their names."""
    state = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            state.update(f"{file.relative_to(path)}\n".encode() + file.read_bytes())
    return state.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
