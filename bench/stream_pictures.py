"""Makes the pictures of docs/streaming.md, from runs on this machine: what tiles do to a result, and memory over time.

    python -m bench.stream_pictures docs

The network of the first is the demo's denoiser, which was trained; of the second NAFNet, whose four global pools make
five passes. Its memory is what the process itself saw, every 50 ms.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from brickrt import Runtime, zoo
from brickrt.dashboard.report.memory_chart import MemoryOverTime, memory_chart
from brickrt.demo.network import INPUT, OUTPUT, network
from brickrt.demo.photo import as_bytes, as_input, noisy, photograph

SIZE, TILE = 512, 128  # pixels of the photograph and of a tile
MEMORY_LIMIT = "512MiB"
SHOWN, GAP, TEXT = 320, 12, 15  # pixels of a picture's edge, between pictures, and of letters
NETWORK, EDGE = "nafnet", 2048
LARGEST = 300_000  # bytes
MIB = 2**20


def main() -> None:
    """Writes both pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as scratch:
        _write(folder / "streaming-seams.png", _seams(Path(scratch)))
        _write(folder / "streaming-memory.svg", _memory(Path(scratch)).encode())


# ---- seams


def _seams(scratch: Path) -> bytes:
    """The denoised photograph band by band, in tiles and in blended windows, and how far each is from in core."""
    given = as_input(noisy(photograph(SIZE), seed=0))
    runtime = Runtime(network(), device="cpu", exact=True)
    wanted = runtime.execute({INPUT: given})[OUTPUT]
    ways = {
        "band by band": {"max_memory": int(MEMORY_LIMIT.removesuffix("MiB")) * MIB},
        f"tiles of {TILE}, side by side": {"window": TILE, "overlap": 0.0, "blend": "constant"},
        f"blended windows of {TILE}, overlap 0.5": {"window": TILE, "overlap": 0.5, "blend": "gaussian"},
    }
    found = {title: _streamed(runtime, given, scratch, options) for title, options in ways.items()}
    apart = {title: np.abs(result - wanted)[0].max(0) * 255 for title, result in found.items()}
    gain = int(128 / np.quantile(max(apart.values(), key=np.max), 0.995))
    for title, distance in apart.items():
        print(f"{title}: at most {distance.max():.3g} of 255, in the mean {distance.mean():.3g}; shown {gain} times")
    columns = [
        (title, as_bytes(result[0].transpose(1, 2, 0)), _ink(apart[title] * gain), _said(apart[title]))
        for title, result in found.items()
    ]
    return _few_colours(_side_by_side(columns, gain))


def _streamed(runtime: Runtime, given: np.ndarray, scratch: Path, options: dict) -> np.ndarray:
    runtime.stream(given, scratch / "y.npy", **options)
    return np.load(scratch / "y.npy")


def _said(distance: np.ndarray) -> str:
    most = float(distance.max())
    return f"at most {most:.0f} of 255" if most >= 1 or not most else f"at most {most:.1g} of 255"


def _ink(distance: np.ndarray) -> np.ndarray:
    """White where nothing differs, dark red where much does, as bytes [height, width, 3]."""
    share = np.clip(distance / 255, 0, 1)[..., None]
    return (255 - share * (255 - np.array([150, 10, 20]))).round().astype(np.uint8)


def _side_by_side(columns: list[tuple[str, np.ndarray, np.ndarray, str]], gain: int) -> Image.Image:
    """A column for each way: its name, the result, the difference, how much that is at most."""
    line = TEXT + 10
    width, height = len(columns) * (SHOWN + GAP) + GAP, 2 * SHOWN + 4 * line
    shown, font = Image.new("RGB", (width, height), "white"), ImageFont.load_default(TEXT)
    draw = ImageDraw.Draw(shown)
    for number, (title, result, distance, said) in enumerate(columns):
        x, y = GAP + number * (SHOWN + GAP), line
        draw.text((x, 5), title, "black", font)
        shown.paste(_scaled(result), (x, y))
        draw.text((x, y + SHOWN + 5), f"how far from in core, times {gain}:", "black", font)
        y += SHOWN + line
        shown.paste(_scaled(distance), (x, y))
        draw.rectangle((x, y, x + SHOWN - 1, y + SHOWN - 1), outline="silver")
        draw.text((x, y + SHOWN + 5), said, "black", font)
    return shown


def _scaled(picture: np.ndarray) -> Image.Image:
    return Image.fromarray(picture).resize((SHOWN, SHOWN), Image.Resampling.LANCZOS)


def _few_colours(picture: Image.Image) -> bytes:
    small = io.BytesIO()
    picture.quantize(160, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()


# ---- memory


def _memory(scratch: Path) -> str:
    """The memory of one run in a process of its own, under the limit."""
    model, given, out = scratch / "m.onnx", scratch / "x.npy", scratch / "y.npy"
    model.write_bytes(zoo.build(NETWORK, size=EDGE).SerializeToString())
    np.save(given, np.random.default_rng(0).standard_normal((1, 3, EDGE, EDGE), np.float32))
    words = ["run", model, "--input", given, "--output", out, "--max-memory", MEMORY_LIMIT, "--json"]
    call = [sys.executable, "-m", "brickrt", *map(str, words), "--report", str(scratch / "r.html")]
    env = os.environ | {"BRICKRT_CACHE_DIR": str(scratch / "cache"), "BRICKRT_CALIBRATE": "0"}  # it compiles
    told = json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout)
    marks = [(0.0, "compiling"), *((one["begin_s"], one["name"]) for one in told["pass_times"])]
    title = f"NAFNet, {EDGE}×{EDGE} pixels, --max-memory {MEMORY_LIMIT}: resident memory of the process"
    limit, projected, peak = (told[f"{word}_bytes"] for word in ("limit", "projected", "peak"))
    print(f"{peak / MIB:.0f} MiB measured, {projected / MIB:.0f} projected, {limit / MIB:.0f} allowed")
    return memory_chart(MemoryOverTime(told["memory_samples"], projected, limit, peak, marks, title))


def _write(path: Path, data: bytes) -> None:
    if len(data) > LARGEST:
        raise SystemExit(f"{path}: {len(data)} bytes, more than {LARGEST}")
    path.write_bytes(data)


if __name__ == "__main__":
    main()
