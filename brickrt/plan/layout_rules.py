"""The layouts in which operators read and write: a rule for each that can take images, plain for all others.

The rules say "blocked" for the layout of images, also where the device has it "last".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.operators.chains.pixel_chain import PixelChain
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Concat, Take
from brickrt.ops.operators.pool import Pool
from brickrt.ops.operators.product_types import is_integer_product
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.operators.sampling.deformed_columns import DeformedColumns
from brickrt.ops.operators.sampling.grid_sample import GridSample
from brickrt.ops.operators.sampling.interp import Interp
from brickrt.ops.types import Shape, TensorType
from brickrt.plan.layout import ImageLayout, Layout


@dataclass(frozen=True)
class LayoutQuery:
    """A node whose layouts are to be chosen: `layouts` are those that its inputs have, `constant` tells which inputs
    are constants, `images` is the layout of images on the device."""

    op: Op
    ins: Sequence[TensorType]
    out: TensorType
    layouts: Sequence[Layout]
    constant: Sequence[bool]
    images: ImageLayout


@dataclass(frozen=True)
class LayoutChoice:
    """The layouts in which a node reads its inputs and writes its output."""

    ins: tuple[Layout, ...]
    out: Layout


Rule = Callable[[LayoutQuery], LayoutChoice]
R = TypeVar("R", bound=Rule)
_RULES: dict[type[Op], Rule] = {}


def _rule(*ops: type[Op]) -> Callable[[R], R]:
    def register(rule: R) -> R:
        _RULES.update(dict.fromkeys(ops, rule))
        return rule

    return register


def choose_layouts(query: LayoutQuery) -> LayoutChoice:
    """The layouts of a node by the rule of its operator."""
    return _RULES.get(type(query.op), _all_plain)(query)


def _all_plain(query: LayoutQuery) -> LayoutChoice:
    return LayoutChoice(_each("plain", query), "plain")


def _each(layout: Layout, query: LayoutQuery) -> tuple[Layout, ...]:
    return (layout,) * len(query.ins)


def _blockable(kind: TensorType, images: ImageLayout) -> bool:
    return kind.rank >= 3 and kind.dtype.name in images.dtypes.split()


def _operand(shape: Shape, rank: int) -> Layout:
    """How an operand is read beside a blocked tensor of `rank`: blocked if it varies along channels."""
    channel = 1 - (rank - len(shape))
    return "blocked" if channel >= 0 and shape[channel] > 1 else "plain"


@_rule(Conv, ConvTranspose)
def _conv(query: LayoutQuery) -> LayoutChoice:
    op = query.op
    assert isinstance(op, Conv | ConvTranspose)
    if is_integer_product(*query.ins[:2]):
        constants: list[Layout] = ["plain"] * (op.main - 1)
        rest = (_operand(kind.shape, query.out.rank) for kind in query.ins[op.main :])
        return LayoutChoice(("blocked", *constants, *rest), "blocked")
    if not _blockable(query.out, query.images):
        return _all_plain(query)
    whole = isinstance(op, Conv) and op.groups == 1
    x: Layout = query.layouts[0] if whole and query.ins[0].shape[1] <= query.images.few else "blocked"
    fixed: tuple[Layout, ...] = (x, "plain", "plain") if op.bias else (x, "plain")
    if op.channel_scaled:
        fixed = (*fixed, _operand(query.ins[op.main - 1].shape, query.out.rank))
    extras = query.ins[len(fixed) :]
    if whole and op.gate_parts == 1 and not op.channel_scaled and query.out.shape[1] <= query.images.few:
        plain: list[Layout] = ["plain" for _ in extras]
        return LayoutChoice((*fixed, *plain), "plain")
    return LayoutChoice(fixed + tuple(_operand(kind.shape, query.out.rank) for kind in extras), "blocked")


@_rule(Pool)
def _pool(query: LayoutQuery) -> LayoutChoice:
    moved = query.out.dtype == np.uint8 and query.layouts[0] == "plain"  # bytes are not worth being reordered for
    blocked = _blockable(query.out, query.images) and not moved
    return LayoutChoice(("blocked",), "blocked") if blocked else _all_plain(query)


@_rule(Map)
def _map(query: LayoutQuery) -> LayoutChoice:
    out = query.out
    full = [not c and kind.shape == out.shape for c, kind in zip(query.constant, query.ins)]
    if out.rank < 3 or out.shape[1] == 1 or not any(f and at == "blocked" for f, at in zip(full, query.layouts)):
        return _all_plain(query)
    return LayoutChoice(tuple(_operand(kind.shape, out.rank) for kind in query.ins), "blocked")


@_rule(Reduce)
def _reduce(query: LayoutQuery) -> LayoutChoice:
    op, x = query.op, query.ins[0]
    assert isinstance(op, Reduce)
    along_space, along_channels = min(op.axes) >= 2, op.axes == (1,)
    blocked = query.layouts[0] == "blocked" and x.shape[1] > 1 and _blockable(x, query.images)
    if not (blocked and op.keepdims and (along_space or along_channels)):
        return _all_plain(query)
    rest = tuple(_operand(kind.shape, x.rank) for kind in query.ins[1:])
    return LayoutChoice(("blocked", *rest), "blocked" if along_space else "plain")


@_rule(Rowwise)
def _rowwise(query: LayoutQuery) -> LayoutChoice:
    blocked = query.layouts[0] == "blocked" and query.out.shape[1] > 1 and _blockable(query.out, query.images)
    if not blocked:
        return _all_plain(query)
    return LayoutChoice(("blocked", *(_operand(kind.shape, query.out.rank) for kind in query.ins[1:])), "blocked")


@_rule(PixelChain)
def _pixel_chain(query: LayoutQuery) -> LayoutChoice:
    if not _blockable(query.out, query.images):
        return _all_plain(query)
    kinds = zip(query.ins, query.constant, strict=True)
    return LayoutChoice(tuple("plain" if c else _operand(kind.shape, query.out.rank) for kind, c in kinds), "blocked")


@_rule(Concat)
def _concat(query: LayoutQuery) -> LayoutChoice:
    op = query.op
    assert isinstance(op, Concat)
    aligned = op.axis != 1 or all(kind.shape[1] % query.images.lanes == 0 for kind in query.ins[:-1])
    if "blocked" not in query.layouts or not aligned or query.out.shape[1] == 1:
        return _all_plain(query)
    return LayoutChoice(_each("blocked", query), "blocked")


def _aligned(table: tuple[int, ...] | None, lanes: int) -> bool:
    """Whether whole blocks of channels are taken, in order."""
    if table is None:
        return True
    whole = bool(table) and table[0] >= 0 and table[0] % lanes == 0
    return whole and table == tuple(range(table[0], table[0] + len(table)))


@_rule(Take)
def _take(query: LayoutQuery) -> LayoutChoice:
    op = query.op
    assert isinstance(op, Take)
    aligned = _aligned(op.tables[1] if len(op.tables) > 1 else None, query.images.lanes)
    if query.layouts[0] == "plain" or not aligned or query.out.shape[1] == 1:
        return _all_plain(query)
    return LayoutChoice(("blocked",), "blocked")


@_rule(GridSample)
def _grid_sample(query: LayoutQuery) -> LayoutChoice:
    """Points read all channels of a pixel, which are worth lying side by side where they are many."""
    many = query.ins[0].shape[1] * 2 >= query.images.lanes or query.layouts[0] == "blocked"
    if not (many and query.out.shape[1] > 1 and _blockable(query.out, query.images)):
        return _all_plain(query)
    return LayoutChoice(("blocked", "plain"), "blocked")


@_rule(DeformedColumns)
def _deformed_columns(query: LayoutQuery) -> LayoutChoice:
    """Blocks that the channels fill, so that those of each tap do."""
    if query.ins[0].shape[1] % query.images.lanes or not _blockable(query.out, query.images):
        return _all_plain(query)
    points: list[Layout] = ["plain"] * len(query.ins[1:])
    return LayoutChoice(("blocked", *points), "blocked")


@_rule(Interp)
def _interp(query: LayoutQuery) -> LayoutChoice:
    op = query.op
    assert isinstance(op, Interp)
    if query.layouts[0] == "plain" or op.taps[1] is not None or query.out.shape[1] == 1:
        return _all_plain(query)
    return LayoutChoice(("blocked",), "blocked")
