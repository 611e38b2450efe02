"""`brickrt zoo export`: writes a network of the zoo."""

from __future__ import annotations

from pathlib import Path

from brickrt import zoo
from brickrt.cli.files import check_writable, write_whole
from brickrt.cli.terminal.text import printable
from brickrt.dashboard.units import size_text
from brickrt.graph.errors import BrickError


def command(name: str, out: Path, batch: int, size: int | tuple[int, ...] | None, seed: int) -> str:
    """Writes the network as an ONNX file; returns the line to print."""
    check_writable(out)
    try:
        model = zoo.build(name, batch, size, seed).SerializeToString(deterministic=True)
    except ValueError as e:
        raise BrickError(str(e)) from None
    write_whole(out, lambda file: file.write(model))
    return f"{printable(str(out))}: {name}, {size_text(len(model))}"
