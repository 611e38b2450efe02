"""Which files may be too large for a run in core, by their names and sizes alone."""

from __future__ import annotations

from pathlib import Path

from brickrt.runtime.files.formats.file_formats import READ_BY_BOX, format_of

LARGE_FILE_BYTES = 64 * 2**20  # from which on it is asked whether a run in core fits
PACKED = 8  # how much smaller than their values files of other formats than .npy may be


def may_be_large(text: str) -> bool:
    """Whether what an option --input names may hold more than `LARGE_FILE_BYTES`, by the size of the file."""
    path = Path((text if Path(text.partition("::")[0]).exists() else text.partition("=")[2]).partition("::")[0])
    found = format_of(path, READ_BY_BOX)
    if found is None or not path.exists():
        return False
    size = path.stat().st_size if path.is_file() else sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    return size > (LARGE_FILE_BYTES if found.way == "array" else LARGE_FILE_BYTES // PACKED)
