"""Which memory layout each tensor has, and the Reorder nodes where a reader needs the other one.

"plain" is row-major in ONNX order. Images have channels (axis 1) innermost: on a CPU "blocked", in blocks of `lanes`,
on a GPU "last", all of them. Only tensors of rank ≥ 3 are images, and an operand that is one always has the rank of
the tensor it broadcasts to. Inputs and outputs of the graph are plain. Constants are never reordered at run time: the
planner gives them the layout that is read, under a second name where both are, and the engine stores them so.

The rules speak of "blocked" where they mean the layout of images, whichever that is on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.base import Op
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.interp import Interp
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Concat, Reorder, Take, View
from brickrt.ops.operators.pool import Pool
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.types import Shape, TensorType
from brickrt.plan.device.device_spec import DeviceSpec

Layout = Literal["plain", "blocked", "last"]


@dataclass(frozen=True)
class ImageLayout:
    """The layout of images on a device: channels in blocks of `lanes`; a convolution reads and writes up to `few`
    channels plain, since blocks would be mostly padding; `dtypes` are the kinds of elements that kernels take in it."""

    layout: Layout
    lanes: int
    few: int
    dtypes: str


def style_of(device: DeviceSpec) -> ImageLayout:
    if device.kind == "cpu":
        return ImageLayout("blocked", device.lanes, few=4, dtypes="float32 float64")
    return ImageLayout("last", 1, few=0, dtypes="float16 bfloat16 float32 float64")


@dataclass(frozen=True)
class LayoutQuery:
    """A node where its layouts are decided: `layouts` are those its inputs have now, `constant` tells which are."""

    op: Op
    ins: Sequence[TensorType]
    out: TensorType
    layouts: Sequence[Layout]
    constant: Sequence[bool]
    style: ImageLayout


@dataclass(frozen=True)
class LayoutChoice:
    """The layouts that a node reads its inputs in, and writes."""

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


def assign_layouts(graph: Graph, style: ImageLayout) -> tuple[Graph, dict[str, Layout]]:
    """The graph with Reorder nodes, and the layout of every tensor of it.

    A tensor is reordered at most once per layout. A graph output that its node writes blocked keeps its name for the
    plain result; the blocked tensor becomes "NAME:blocked".
    """
    writer = _Writer(graph, style)
    for node in graph.nodes:
        writer.place(node)
    return writer.finish()


class _Writer:
    """Builds the new graph, node by node in order."""

    def __init__(self, graph: Graph, style: ImageLayout) -> None:
        self.graph, self.style = graph, style
        self.nodes: list[Node] = []
        self.types, self.constants = dict(graph.types), dict(graph.constants)
        self.layouts: dict[str, Layout] = dict.fromkeys([*graph.inputs, *graph.constants], "plain")
        self.fixed = set(graph.inputs) | set(graph.outputs)  # constants among these stay as they are
        self.names: dict[tuple[str, Layout, int], str] = {}  # (tensor, layout, rank) → the name it is found under
        self.renamed: dict[str, str] = {}  # graph outputs written blocked

    def place(self, node: Node) -> None:
        inputs = [self.renamed.get(name, name) for name in node.inputs]
        ins, out = [self.types[name] for name in inputs], self.types[node.output]
        constant = [name in self.constants for name in inputs]
        layouts: list[Layout] = ["plain" if self.layouts[name] == "plain" else "blocked" for name in inputs]
        choice = _RULES.get(type(node.op), _all_plain)(LayoutQuery(node.op, ins, out, layouts, constant, self.style))
        read = tuple(self.read(name, self.named(layout), out.rank) for name, layout in zip(inputs, choice.ins))
        output = node.output
        if output in self.graph.outputs and choice.out == "blocked":
            output = f"{node.output}:{self.style.layout}"
            self.renamed[node.output] = output
            self.types[output] = out
        self.layouts[output] = self.named(choice.out)
        self.nodes.append(Node(node.name, node.op, read, output, node.origin))

    def named(self, layout: Layout) -> Layout:
        """What the rules call "blocked" by its name on the device."""
        return self.style.layout if layout == "blocked" else layout

    def read(self, name: str, layout: Layout, rank: int) -> str:
        """A name under which the tensor has this layout, and if not plain this rank."""
        key = (name, layout, self.types[name].rank if layout == "plain" else rank)
        if key not in self.names:
            self.names[key] = self._constant(name, layout, rank) if name in self.constants else self._tensor(*key)
        return self.names[key]

    def _tensor(self, name: str, layout: Layout, rank: int) -> str:
        kind = self.types[name]
        if kind.rank < rank:
            shape = (1,) * (rank - kind.rank) + kind.shape
            name = self.read(name, "plain", kind.rank)
            name = self._insert(f"{name}→rank{rank}", View(shape), name, TensorType(shape, kind.dtype), "plain")
        if self.layouts[name] == layout:
            return name
        outputs = {blocked: plain for plain, blocked in self.renamed.items()}
        new = outputs[name] if name in outputs and layout == "plain" else f"{name}→{layout}"
        return self._insert(new, Reorder(layout), name, self.types[name], layout)

    def _insert(self, new: str, op: Op, source: str, kind: TensorType, layout: Layout) -> str:
        self.nodes.append(Node(f"{source}→{layout}" if isinstance(op, Reorder) else new, op, (source,), new))
        self.types[new], self.layouts[new] = kind, layout
        return new

    def _constant(self, name: str, layout: Layout, rank: int) -> str:
        array = self.constants[name]
        if layout == "plain" and self.layouts[name] == "plain":
            self.fixed.add(name)
            return name
        if layout != "plain" and array.ndim == rank and name not in self.fixed:
            self.layouts[name] = layout
            self.fixed.add(name)
            return name
        new = f"{name}→{layout}" if array.ndim == rank or layout == "plain" else f"{name}→{layout}{rank}"
        lifted: np.ndarray = array if layout == "plain" else array.reshape((1,) * (rank - array.ndim) + array.shape)
        self.constants[new], self.types[new] = lifted, TensorType(lifted.shape, lifted.dtype)
        self.layouts[new] = layout
        return new

    def finish(self) -> tuple[Graph, dict[str, Layout]]:
        for blocked in self.renamed.values():
            self.read(blocked, "plain", self.types[blocked].rank)
        used = {name for node in self.nodes for name in node.inputs} | set(self.graph.outputs)
        constants = {name: array for name, array in self.constants.items() if name in used}
        known = used | {node.output for node in self.nodes} | set(self.graph.inputs)
        types = {name: kind for name, kind in self.types.items() if name in known}
        graph = Graph(tuple(self.nodes), types, constants, self.graph.inputs, self.graph.outputs)
        return graph, {name: layout for name, layout in self.layouts.items() if name in known}


def _all_plain(site: LayoutQuery) -> LayoutChoice:
    return LayoutChoice(_each("plain", site), "plain")


def _each(layout: Layout, site: LayoutQuery) -> tuple[Layout, ...]:
    return (layout,) * len(site.ins)


def _blockable(kind: TensorType, style: ImageLayout) -> bool:
    return kind.rank >= 3 and kind.dtype.name in style.dtypes.split()


def _operand(shape: Shape, rank: int) -> Layout:
    """How an operand is read beside a blocked tensor of `rank`: blocked if it varies along channels."""
    channel = 1 - (rank - len(shape))
    return "blocked" if channel >= 0 and shape[channel] > 1 else "plain"


@_rule(Conv, ConvTranspose)
def _conv(site: LayoutQuery) -> LayoutChoice:
    if not _blockable(site.out, site.style):
        return _all_plain(site)
    op = site.op
    assert isinstance(op, Conv | ConvTranspose)
    whole = isinstance(op, Conv) and op.groups == 1
    x: Layout = site.layouts[0] if whole and site.ins[0].shape[1] <= site.style.few else "blocked"
    fixed: tuple[Layout, ...] = (x, "plain", "plain") if op.bias else (x, "plain")
    if op.channel_scaled:
        fixed = (*fixed, _operand(site.ins[op.main - 1].shape, site.out.rank))
    extras = site.ins[len(fixed) :]
    if whole and op.gate_parts == 1 and not op.channel_scaled and site.out.shape[1] <= site.style.few:
        plain: list[Layout] = ["plain" for _ in extras]
        return LayoutChoice((*fixed, *plain), "plain")
    return LayoutChoice(fixed + tuple(_operand(kind.shape, site.out.rank) for kind in extras), "blocked")


@_rule(Pool)
def _pool(site: LayoutQuery) -> LayoutChoice:
    return LayoutChoice(("blocked",), "blocked") if _blockable(site.out, site.style) else _all_plain(site)


@_rule(Map)
def _map(site: LayoutQuery) -> LayoutChoice:
    out = site.out
    full = [not c and kind.shape == out.shape for c, kind in zip(site.constant, site.ins)]
    if out.rank < 3 or out.shape[1] == 1 or not any(f and at == "blocked" for f, at in zip(full, site.layouts)):
        return _all_plain(site)
    return LayoutChoice(tuple(_operand(kind.shape, out.rank) for kind in site.ins), "blocked")


@_rule(Reduce)
def _reduce(site: LayoutQuery) -> LayoutChoice:
    op, x = site.op, site.ins[0]
    assert isinstance(op, Reduce)
    along_space, along_channels = min(op.axes) >= 2, op.axes == (1,)
    blocked = site.layouts[0] == "blocked" and x.shape[1] > 1 and _blockable(x, site.style)
    if not (blocked and op.keepdims and (along_space or along_channels)):
        return _all_plain(site)
    rest = tuple(_operand(kind.shape, x.rank) for kind in site.ins[1:])
    return LayoutChoice(("blocked", *rest), "blocked" if along_space else "plain")


@_rule(Rowwise)
def _rowwise(site: LayoutQuery) -> LayoutChoice:
    blocked = site.layouts[0] == "blocked" and site.out.shape[1] > 1 and _blockable(site.out, site.style)
    if not blocked:
        return _all_plain(site)
    return LayoutChoice(("blocked", *(_operand(kind.shape, site.out.rank) for kind in site.ins[1:])), "blocked")


@_rule(Concat)
def _concat(site: LayoutQuery) -> LayoutChoice:
    op = site.op
    assert isinstance(op, Concat)
    aligned = op.axis != 1 or all(kind.shape[1] % site.style.lanes == 0 for kind in site.ins[:-1])
    if "blocked" not in site.layouts or not aligned or site.out.shape[1] == 1:
        return _all_plain(site)
    return LayoutChoice(_each("blocked", site), "blocked")


def _aligned(table: tuple[int, ...] | None, lanes: int) -> bool:
    """Whether whole blocks of channels are taken, in order."""
    if table is None:
        return True
    whole = bool(table) and table[0] >= 0 and table[0] % lanes == 0
    return whole and table == tuple(range(table[0], table[0] + len(table)))


@_rule(Take)
def _take(site: LayoutQuery) -> LayoutChoice:
    op = site.op
    assert isinstance(op, Take)
    aligned = _aligned(op.tables[1] if len(op.tables) > 1 else None, site.style.lanes)
    if site.layouts[0] == "plain" or not aligned or site.out.shape[1] == 1:
        return _all_plain(site)
    return LayoutChoice(("blocked",), "blocked")


@_rule(Interp)
def _interp(site: LayoutQuery) -> LayoutChoice:
    op = site.op
    assert isinstance(op, Interp)
    if site.layouts[0] == "plain" or op.taps[1] is not None or site.out.shape[1] == 1:
        return _all_plain(site)
    return LayoutChoice(("blocked",), "blocked")
