"""Operators that move elements and compute nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from brickrt.ops.base import Op


@dataclass(frozen=True)
class Take(Op):
    """Per axis a table: output index i reads input index table[i]; -1 reads `fill`; no table keeps the axis.

    Slice, Split, Pad in all modes, nearest Resize, Expand, Tile and Gather with constant indices are all this.
    """

    name: ClassVar[str] = "Take"
    tables: tuple[tuple[int, ...] | None, ...]
    fill: float | int | bool = 0


@dataclass(frozen=True)
class Concat(Op):
    """Inputs one after the other along `axis` (non-negative)."""

    name: ClassVar[str] = "Concat"
    axis: int


@dataclass(frozen=True)
class Transpose(Op):
    """Output axis k is input axis perm[k]."""

    name: ClassVar[str] = "Transpose"
    perm: tuple[int, ...]


@dataclass(frozen=True)
class View(Op):
    """The same elements in row-major order under another shape."""

    name: ClassVar[str] = "View"
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Reorder(Op):
    """The same tensor in another memory layout: identity as far as values go."""

    name: ClassVar[str] = "Reorder"
    layout: Literal["plain", "blocked"]
