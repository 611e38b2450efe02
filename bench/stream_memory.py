"""Whether runs in bounded memory take no more than was projected, and no more than was allowed.

    python -m bench.stream_memory

Each case, a network of the zoo at a size with a limit, runs in a fresh process, whose resident set is measured. Prints
a table; the exit code is 1 where more was measured than projected, or projected than allowed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

import numpy as np

SIZES = {"unet": (256, 512, 1024), "nafnet": (128, 256, 512, 1024), "deepcam": (256,), "unet3d": (32, 48)}
OVER = (1.02, 1.15, 2.0)  # times the least that would do
MIB = 2**20


def main() -> int:
    """Runs all cases; 1 where one took too much."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(SIZES))
    parser.add_argument("--json", type=Path, help="write the cases to a file")
    words = parser.parse_args()
    cases, wrong = [], 0
    print(f"{'network':10}{'size':>6}{'rows':>6}{'strips':>8}{'limit':>8}{'projected':>11}{'measured':>10}  MiB")
    with tempfile.TemporaryDirectory() as folder:
        for name in words.networks.split(","):
            for size, over in product(SIZES[name], OVER):
                told = _case(name, size, over, Path(folder))
                cases.append({"network": name, "size": size, **told})
                wrong += not told["peak_bytes"] <= told["projected_bytes"] <= told["limit_bytes"]
                print(_row(name, size, told), flush=True)
    if words.json:
        words.json.write_text(json.dumps(cases, indent=1))
    print(f"{len(cases)} cases, {wrong} that took more than was projected or allowed")
    return int(wrong > 0)


def _case(name: str, size: int, over: float, folder: Path) -> dict:
    """What one run says."""
    given, out = folder / "x.npy", folder / "y.npy"
    channels = {"deepcam": 16, "unet3d": 1}.get(name, 3)
    shape = (1, channels, *(size,) * (3 if name == "unet3d" else 2))
    np.save(given, np.random.default_rng(1).standard_normal(shape, np.float32))
    child = [sys.executable, "-m", "bench.stream_run", name, "--size", str(size)]
    files = ["--input", str(given), "--output", str(out), "--over", str(over)]
    done = subprocess.run([*child, *files], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def _row(name: str, size: int, told: dict) -> str:
    strips = "×".join(map(str, told["strips"]))
    limit, projected, peak = (told[word] / MIB for word in ("limit_bytes", "projected_bytes", "peak_bytes"))
    mark = "" if peak <= projected <= limit else "  too much"
    return f"{name:10}{size:6}{told['band_rows']:6}{strips:>8}{limit:8.0f}{projected:11.0f}{peak:10.0f}{mark}"


if __name__ == "__main__":
    sys.exit(main())
