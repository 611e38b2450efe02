"""`brickrt zoo export`."""

from __future__ import annotations

from pathlib import Path

from brickrt import zoo
from brickrt.cli.files import check_writable, write_whole
from brickrt.cli.terminal.text import printable, size_text
from brickrt.graph.errors import BrickError


def command(name: str, out: Path, batch: int, size: tuple[int, ...] | None, seed: int) -> str:
    check_writable(out)
    try:
        extent = size[0] if size is not None and len(size) == 1 else size
        model = zoo.build(name, batch, extent, seed).SerializeToString(deterministic=True)
    except ValueError as e:
        raise BrickError(str(e)) from None
    write_whole(out, lambda file: file.write(model))
    return f"{printable(str(out))}: {name}, {size_text(len(model))}"
