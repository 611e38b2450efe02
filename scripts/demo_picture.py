"""Makes the README's picture from what `brickrt demo` wrote.

brickrt demo --out brickrt-demo
python scripts/demo_picture.py brickrt-demo docs/demo.jpg
"""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image

QUALITIES = range(95, 40, -5)
LARGEST = 140_000  # bytes


def main() -> None:
    """Writes the picture at the best quality that keeps it below LARGEST bytes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()
    picture = Image.open(asked.folder / "side-by-side.png")
    for quality in QUALITIES:
        picture.save(asked.out, quality=quality, optimize=True, progressive=True)
        if asked.out.stat().st_size <= LARGEST:
            return
    raise SystemExit(f"{asked.out}: larger than {LARGEST} bytes at every quality")


if __name__ == "__main__":
    main()
