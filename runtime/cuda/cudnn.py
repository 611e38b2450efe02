"""Which nodes of a plan cuDNN computes, and the plans of cuDNN that do.

Only whole layers whose tensors lie in the arena: the addresses of a graph's own inputs and outputs change from run to
run, and a captured call keeps those it was captured with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from brickrt.ops.conv import Conv, ConvTranspose
from brickrt.ops.cuda.cudnn_form import Form, Unfit, form_of, weights
from brickrt.ops.cuda.cudnn_graph import Cudnn, Measure, Plan
from brickrt.ops.cuda.kernel import Precision
from brickrt.ops.cuda.operand import VECTOR, Operand
from brickrt.ops.matmul import MatMul
from brickrt.runtime.cuda.constants import aligned
from brickrt.runtime.cuda.context import ARENA
from brickrt.runtime.cuda.driver import Library, Stream
from brickrt.runtime.cuda.launches import Launch
from brickrt.runtime.cuda.records import Records
from brickrt.runtime.disk_cache import DiskCache
from brickrt.runtime.task_graph import TaskGraph


@dataclass(frozen=True, eq=False)
class Layer:
    """A node that cuDNN may compute whole: the index of its steps, and per tensor of the form, output first, the byte
    offset in the arena, or the array that is uploaded for it."""

    steps: int
    form: Form
    places: tuple[int | np.ndarray, ...]


@dataclass
class Layers:
    """`found` by index of steps; `reasons` why other products are computed by kernels, by name of the node."""

    found: dict[int, Layer] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


class _Places(Records):
    """Where operands lie, without any records."""

    def __post_init__(self) -> None:
        """Leaves the constants as they are."""


def find_layers(tasks: TaskGraph) -> Layers:
    """All products of layerwise subgraphs. To be asked while the constants are there."""
    records, layers = _Places(tasks), Layers()
    graph = tasks.plan.graph
    whole = {k for subgraph in tasks.plan.subgraphs if subgraph.strategy == "layerwise" for k in subgraph.nodes}
    for i, steps in enumerate(tasks.steps):
        node = graph.nodes[steps.node]
        if steps.node not in whole or not isinstance(node.op, Conv | ConvTranspose | MatMul):
            continue
        try:
            layers.found[i] = _layer(records, i)
        except Unfit as e:
            layers.reasons[node.name] = str(e)
    return layers


def _layer(records: _Places, i: int) -> Layer:
    steps, tasks = records.tasks.steps[i], records.tasks
    graph = tasks.plan.graph
    node = graph.nodes[steps.node]
    names = (node.output, *node.inputs)
    packed = [name in graph.constants for name in node.inputs]
    out, *ins = (records.operand(name) for name in names)
    precision: Precision = "tf32" if tasks.plan.options.precision == "tf32" else "fp32"
    form = form_of(node.op, ins, out, packed, precision)
    places: list[int | np.ndarray] = []
    for k, (name, operand) in enumerate(zip(names, (out, *ins), strict=True)):
        if k and packed[k - 1]:
            lies = weights(operand) if k == 2 and form.kind != "matmul" else operand
            places.append(stored(lies, graph.constants[name]))
        else:
            places.append(_offset(records, name, operand, i))
    return Layer(i, form, tuple(places))


def _offset(records: _Places, name: str, operand: Operand, i: int) -> int:
    base, offsets = records.origin(name, operand, records.tasks.steps[i])
    if base != ARENA:
        raise Unfit(f"'{name}' is an input or output of the graph")
    if offsets[0] % VECTOR:
        raise Unfit(f"'{name}' does not begin at a multiple of {VECTOR} bytes")
    return int(offsets[0])


def stored(operand: Operand, array: np.ndarray) -> np.ndarray:
    """The elements of a constant in the order in which the operand has them in memory."""
    outer_first = sorted(range(array.ndim), key=lambda axis: -operand.strides[axis])
    return np.ascontiguousarray(array.transpose(outer_first))


class Plans:
    """Plans of forms: from the disk, or chosen by measuring and kept there. What drivers give as their library."""

    def __init__(self, library: Cudnn, device: str, measure: Measure) -> None:
        self._library, self._device, self._measure = library, device, measure
        self._store, self._known = DiskCache.open("cudnn"), dict[Form, Plan]()

    def plan(self, form: Form) -> Plan:
        """Raises Unfit where cuDNN has none."""
        if form not in self._known:
            self._known[form] = self._find(form)
        return self._known[form]

    def _find(self, form: Form) -> Plan:
        key = self._library.key(form, self._device)
        blob = self._store.get(key)
        plan = self._library.load(form, blob) if blob is not None else None
        if plan is None:
            plan = self._library.choose(form, self._measure)
            self._store.put(key, plan.blob)
        return plan

    def run(self, plan: Plan, addresses: Sequence[int], workspace: int, stream: Stream) -> None:
        """Puts a plan on a stream."""
        self._library.use(stream.address)
        plan.run(addresses, workspace)


@dataclass
class Calls:
    """The launches that cuDNN does: by index the layer and its plan, and where its arrays lie in one part of memory.

    `reasons` says of other products of whole layers why kernels compute them, by name of the node.
    """

    library: Library | None = None
    layers: dict[int, tuple[Layer, Plan]] = field(default_factory=dict)
    offsets: dict[int, list[int]] = field(default_factory=dict)
    pieces: list[tuple[int, np.ndarray]] = field(default_factory=list)  # offset, array
    nbytes: int = 0
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> frozenset[int]:
        """Indices of the steps that need no kernels."""
        return frozenset(layer.steps for layer, _ in self.layers.values())

    @property
    def workspace(self) -> int:
        """Bytes for any of the plans, on one stream."""
        return aligned(max((plan.workspace for _, plan in self.layers.values()), default=0))

    def add(self, k: int, layer: Layer, plan: Plan) -> None:
        self.layers[k] = layer, plan
        self.offsets[k] = []
        for place in layer.places:
            if isinstance(place, np.ndarray):
                self.pieces.append((self.nbytes, place))
                self.offsets[k].append(self.nbytes)
                self.nbytes += aligned(place.nbytes)
            else:
                self.offsets[k].append(place)

    def run(self, k: int, arena: int, arrays: int, workspace: int, stream: Stream) -> None:
        """Launch `k`; arena, arrays and workspace begin at these addresses."""
        assert self.library is not None
        layer, plan = self.layers[k]
        bases = (arrays if isinstance(place, np.ndarray) else arena for place in layer.places)
        addresses = [base + offset for base, offset in zip(bases, self.offsets[k], strict=True)]
        self.library.run(plan, addresses, workspace, stream)


def find_calls(tasks: TaskGraph, launches: Sequence[Launch], library: Library | None) -> Calls:
    """All launches of whole layers for which the library has a plan. To be asked while the constants are there."""
    calls = Calls(library)
    if library is None:
        return calls
    layers = find_layers(tasks)
    calls.reasons = layers.reasons
    for k, launch in enumerate(launches):
        layer = layers.found.get(launch.steps[0]) if len(launch.steps) == 1 and launch.kind == "layer" else None
        if layer is None or len(launch.tasks) != len(tasks.steps[layer.steps].tasks):
            continue
        try:
            calls.add(k, layer, library.plan(layer.form))
        except Unfit as e:
            calls.reasons[tasks.plan.graph.nodes[tasks.steps[layer.steps].node].name] = str(e)
    return calls
