"""Which files may be too large for a run in core, by their names and sizes alone."""

from __future__ import annotations

from pathlib import Path

from brickrt.runtime.files.source import READABLE, is_zarr

LARGE = 64 * 2**20  # bytes of an input file from which on it is asked whether a run in core fits
PACKED = 8  # how much smaller than their values files of other formats than .npy may be


def is_of(name: str, kinds: tuple[str, ...]) -> bool:
    """Whether a file is of these kinds, by the end of its name; arrays in Zarr groups are of any."""
    lower = name.partition("::")[0].lower()
    return lower.endswith(kinds) or is_zarr(lower)


def may_be_large(text: str) -> bool:
    """Whether what an option --input names may hold more than `LARGE` bytes, by the size of the file."""
    path = Path((text if Path(text.partition("::")[0]).exists() else text.partition("=")[2]).partition("::")[0])
    if not is_of(str(path), READABLE) or not path.exists():
        return False
    size = path.stat().st_size if path.is_file() else sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    return size > (LARGE if path.suffix == ".npy" else LARGE // PACKED)
