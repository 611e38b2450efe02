"""Everything that a GPU should be asked, in the order that matters, each with its share of the time.

    python bench/gpu/all.py [--minutes 25] [--out bench/results]

Correctness first (`check`, also under compute-sanitizer where it is installed), then speed against other engines
(`networks`), the tables of BrickDL (`brickdl`), and counters of bytes moved (`counters`). A step that fails does not
stop the next. Results are JSON files under --out; the exit code is not 0
if a check failed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
# script, share of the time, arguments
STEPS = (
    ("check.py", 0.30, ["--runs", "1000"]),
    ("networks.py", 0.20, ["--batches", "1", "--precisions", "fp32"]),
    ("brickdl.py", 0.15, []),
    ("networks.py", 0.25, ["--batches", "1,8,64", "--precisions", "tf32,fp16", "--large"]),
    ("counters.py", 0.10, []),
)
TOOLS = ("memcheck", "racecheck")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--out", type=Path, default=HERE.parent / "results")
    asked = parser.parse_args()
    checks = []
    for number, (script, share, more) in enumerate(STEPS):
        seconds = 60 * asked.minutes * share
        out = asked.out / str(number) if [s for s, _, _ in STEPS].count(script) > 1 else asked.out
        words = [sys.executable, str(HERE / script), "--seconds", f"{0.8 * seconds:.0f}", "--out", str(out), *more]
        code = _run(words, seconds)
        checks += [code] if script == "check.py" else []
        if script == "check.py" and shutil.which("compute-sanitizer"):
            few = [
                "--networks",
                "resnet50",
                "--precisions",
                "fp32",
                "--runs",
                "2",
                "--out",
                str(asked.out / "sanitized"),
            ]
            for tool in TOOLS:
                words = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "3", sys.executable]
                checks.append(_run([*words, str(HERE / script), *few], 90))
    return max(checks)


def _run(words: list[str], seconds: float) -> int:
    print("+", " ".join(words[1:] if words[0] == sys.executable else words), flush=True)
    try:
        return subprocess.run(words, timeout=seconds, cwd=HERE.parents[1]).returncode
    except subprocess.TimeoutExpired:
        print(f"stopped after {seconds:.0f} s", flush=True)
        return 124


if __name__ == "__main__":
    sys.exit(main())
