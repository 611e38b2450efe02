"""Makes a folder with all that a bare GPU machine needs for `first.py`: no network, no pip, no compiler of its own.

    python -m bench.gpu.pack FOLDER [--devices h100,h200] [--minutes 10] [--mib 64]
    sh FOLDER/run.sh RESULTS                        # there; it needs NumPy, onnx, CuPy and NVRTC of CUDA 13

The folder holds the sources, which run as they lie by PYTHONPATH; packages that machines tend to lack; what the
reference engine computes for the networks; and compiled kernels of the devices, as many as compile in the minutes that
are given (the rest is compiled there). It says how large it is, and fails beyond the limit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from bench.gpu.support.common import CHECKED, COMMIT, ROOT, among, commit
from brickrt.plan.device.device_spec import PRESETS

PACKAGES = ("platformdirs", "nvidia-cudnn-frontend==1.28.0")
PYTHON = "3.12"
SYSTEMS = *(f"manylinux_2_{n}_x86_64" for n in (28, 27, 17)), "manylinux2014_x86_64"
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")
RUN = """#!/bin/sh
# All that first.py asks, or what another script of bench/gpu does: sh run.sh RESULTS [first [--minutes 5 …]]
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) && mkdir -p "$1" "$work/packages" "$work/cache" && out=$(cd "$1" && pwd) || exit
script=${2:-first}
shift; [ $# -eq 0 ] || shift
for wheel in "$here"/packages/*.whl; do [ ! -e "$wheel" ] || python3 -m zipfile -e "$wheel" "$work/packages"; done
# unpacked files become the user's own, and only so are trusted
[ ! -e "$here/kernels.tar.xz" ] || python3 -m tarfile --filter data -e "$here/kernels.tar.xz" "$work/cache"
chmod -R go-w "$work/cache"
export BRICKRT_CACHE_DIR="$work/cache" PYTHONPATH="$work/packages:$here${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
cd "$here" && exec python3 -m "bench.gpu.$script" "$out" --references "$here/references" "$@"
"""


def copy_sources(folder: Path) -> None:
    """The package, with `ops` and `runtime` inside of it, and these scripts."""
    shutil.copytree(ROOT / "brickrt", folder / "brickrt", ignore=LEFT_OUT)  # links become what they lead to
    shutil.copytree(ROOT / "bench" / "gpu", folder / "bench" / "gpu", ignore=LEFT_OUT)
    (folder / COMMIT).write_text(commit() + "\n")
    (folder / "run.sh").write_text(RUN)


def fetch_packages(folder: Path, packages: Sequence[str] = PACKAGES) -> None:
    """Wheels for another machine's Python; `run.sh` unpacks them, so that no installer is needed."""
    words = ["download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", PYTHON]
    words += [word for system in SYSTEMS for word in ("--platform", system)]
    subprocess.run([sys.executable, "-m", "pip", *words, "-d", str(folder / "packages"), *packages], check=True)


def compute(folder: Path, device: str, minutes: float, cache: Path) -> None:
    """What first.py asks, of a device that does nothing but have its kernels compiled; the references on the way."""
    words = [str(folder / "made"), "--references", str(folder / "references")]
    command = [sys.executable, "-m", "bench.gpu.first", *words, "--device", device, "--minutes", str(minutes)]
    subprocess.run(
        command, check=False, cwd=ROOT, env=os.environ | {"BRICKRT_CACHE_DIR": str(cache)}, stdout=subprocess.DEVNULL
    )
    shutil.rmtree(folder / "made", ignore_errors=True)
    for unfinished in (folder / "references").glob("*.new"):
        unfinished.unlink()


def keep_kernels(folder: Path, cache: Path) -> None:
    """Compiled kernels and plans, packed: machine code shrinks to a fifth."""
    with tarfile.open(folder / "kernels.tar.xz", "w:xz") as archive:  # Python can unpack it where there is no xz
        for path in sorted(cache.iterdir()) if cache.exists() else []:
            archive.add(path, path.name)


def sizes(folder: Path) -> dict[str, int]:
    """Bytes of each part of the folder."""
    return {
        part.name: sum(f.stat().st_size for f in [part, *part.rglob("*")] if f.is_file()) for part in folder.iterdir()
    }


def main() -> int:
    """Packs the folder; 1 where it is larger than asked, or lacks references."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="is made anew")
    parser.add_argument("--devices", default="h100,h200")
    parser.add_argument("--minutes", type=float, default=10.0, help="for compiling kernels, all devices together")
    parser.add_argument("--mib", type=float, default=64.0, help="the most that the folder may have")
    asked = parser.parse_args()
    devices = among(asked.devices, PRESETS, "device")
    if asked.folder.exists() and not (asked.folder / COMMIT).exists() and any(asked.folder.iterdir()):
        print(f"{asked.folder} holds something else than a packed folder: name another", file=sys.stderr)
        return 2
    shutil.rmtree(asked.folder, ignore_errors=True)
    asked.folder.mkdir(parents=True)
    copy_sources(asked.folder)
    fetch_packages(asked.folder)
    cache = asked.folder.resolve() / "cache"
    for device in devices:
        compute(asked.folder.resolve(), device, asked.minutes / len(devices), cache)
    keep_kernels(asked.folder, cache)
    shutil.rmtree(cache, ignore_errors=True)
    return report(asked.folder, asked.mib)


def report(folder: Path, most: float) -> int:
    """Says how large the parts are, and what is missing."""
    parts = sizes(folder)
    for name, nbytes in sorted(parts.items(), key=lambda part: -part[1]):
        print(f"{nbytes / 2**20:8.2f} MiB  {name}")
    total = sum(parts.values()) / 2**20
    print(f"{total:8.2f} MiB  in all, at most {most:g}")
    kept = {file.name.rpartition("-")[0] for file in (folder / "references").glob("*.npz")}
    missing = [name for name in CHECKED if name not in kept]
    if missing:
        print(f"no references of {', '.join(missing)}: they are computed there, or give more minutes")
    return int(total > most)


if __name__ == "__main__":
    sys.exit(main())
