"""Specialization: from a stage of the model and concrete types to a graph of brick operators.

Nodes are visited in topological order. Each becomes constants, brick operators, or a node for the host. Or it waits for
the next stage, because it depends on a node that runs on the host, or on a value that the graph computes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np

import brickrt.graph.builders  # noqa: F401  (registers the builders)
from brickrt.graph.builder import ADDRESSABLE_BYTES, KERNEL_TYPES, Builder, Mark, OnnxNode, builder_for, no_kernels
from brickrt.graph.builders.integers.block_weights import stored_matrix
from brickrt.graph.contrib.body import CONTRIB
from brickrt.graph.errors import BrickError, NeedValue, Unsupported, last_resort
from brickrt.graph.host.guarded import CONTROL
from brickrt.graph.host.run_host_node import reads
from brickrt.graph.host.static_values import fold_on_host, quick_enough, small_enough, static_value
from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.rewrite import rewritten
from brickrt.graph.rewriter import rename
from brickrt.graph.specialize.check_types import check_types
from brickrt.graph.specialize.equal_nodes import EqualNodes
from brickrt.graph.specialize.folded import folded, quick_constant
from brickrt.graph.specialize.inlining import Splice, branch, contributed_body, expand, function_body
from brickrt.graph.specialize.stages import Specialized, Stage, after_host_nodes, is_little, named_outputs, only
from brickrt.graph.specialize.value_sources import ValueSources
from brickrt.graph.time_budget import TooLong, check_time, folding
from brickrt.ops.types import TensorType

BOUND_ELEMENTS = 4096  # with more, tensors are no constants of a later stage: the node that asks runs on the host
NO_FORM = "it has no form in brick operators"
STEPPED = "the host decides what of it runs, and how often"


def specialize(
    stage: Stage,
    types: Mapping[str, TensorType],
    values: Mapping[str, np.ndarray],
    integers: bool = False,
    cpu_operators: bool = False,
    addressable: int = ADDRESSABLE_BYTES,
) -> Specialized:
    """Specializes a stage for inputs of these types; `values` are those of inputs that become constants.

    With `integers`, quantized tensors are multiplied as integers, else in float32; with `cpu_operators`,
    kernels compute recurrent layers and images at points, else the host, and sums so far, else several operators.
    Tensors have at most so many bytes as are `addressable`.

    An input without a type is no tensor (a sequence, an absent optional): its readers run on the host. Raises
    BrickError, naming the node, for shapes and types that do not fit.
    """
    kernels = integers, cpu_operators, addressable
    found = _walked(stage, types, values, kernels, frozenset())
    if found.rest is None or not found.host_nodes or not (stage.repeated or is_little(found.graph)):
        return found
    later = after_host_nodes(stage.nodes, found.host_nodes)
    other = _walked(stage, types, values, kernels, later) if later else found
    return found if other.graph.nodes and not stage.repeated else other


def _walked(
    stage: Stage,
    types: Mapping[str, TensorType],
    values: Mapping[str, np.ndarray],
    kernels: tuple[bool, bool, int],
    postponed: frozenset[str],
) -> Specialized:
    """A stage whose nodes of the names `postponed` wait for the next one."""
    names = {name for node in stage.nodes for name in (*reads(node), *node.outputs, node.name)}
    used = [*(name for node in stage.nodes for name in reads(node)), *stage.outputs]
    builder = Builder({*names, *stage.inputs, *stage.outputs}, used, *kernels)
    walk = _Walk(stage, types, values, builder, postponed)
    with last_resort(walk.doing):
        walk.run()
        if walk.need or walk.deciding:
            needed, deciding = frozenset(walk.need | walk.deciding), frozenset(walk.deciding - walk.need)
            return Specialized(Graph((), {}), need_values=needed, deciding=deciding)
        return walk.result()


class _Walk:
    """One pass over a stage, which fills a `Builder`."""

    def __init__(
        self,
        stage: Stage,
        types: Mapping[str, TensorType],
        values: Mapping[str, np.ndarray],
        builder: Builder,
        postponed: frozenset[str],
    ) -> None:
        self.stage, self.opsets, self.postponed = stage, stage.source.opsets, postponed
        self.b = builder
        for name in stage.inputs:
            if name in types:
                self.b.types[name] = types[name]
        for name, array in (*stage.constants.items(), *only(values, stage.inputs).items()):
            self.b.bind(name, array)
        self.queue = deque(stage.nodes)
        self.host: list[OnnxNode] = []
        self.stored: list[OnnxNode] = []  # what gives constants that are kept in few bits
        self.reasons: dict[str, str] = {}
        self.pending: set[str] = set()
        self.waiting: list[OnnxNode] = []
        self.late: set[str] = set()
        self.late_values: set[str] = set()
        self.need: set[str] = set()
        self.deciding: set[str] = set()
        self.equal = EqualNodes(builder)
        self.sources = ValueSources(builder, stage.inputs, stage.deciding, stage.nodes)

    def run(self) -> None:
        while self.queue:
            node = self.queue.popleft()
            self.b.current = node
            check_time(f"specializing {node.op_type} node", node.name)
            self.visit(node)
        self.b.current = None

    def doing(self) -> str:
        """What the walk is at, for errors."""
        node = self.b.current
        if node is None:
            return f"specializing {self.stage.source.name}"
        return f"{node.op_type} node '{node.name}' with {self.given(reads(node))}"

    def given(self, names: Iterable[str]) -> str:
        """Tensors and their types, for errors."""
        types = self.b.types
        return ", ".join(f"'{n}' {types.get(self.b.resolve(n), 'of unknown type')}" for n in names) or "no inputs"

    def visit(self, node: OnnxNode) -> None:
        names = reads(node)
        if node.name in self.postponed or self.late.intersection(names):
            self.wait(node)
        elif self.pending.intersection(names):
            self.after_host(node)
        else:
            self.translate(node, names)

    def after_host(self, node: OnnxNode) -> None:
        """A node that reads what the host computes in this stage: its shapes are not known yet."""
        given = {name: self.stage.source.element_types.get(name) for name in self.pending.intersection(reads(node))}
        odd = next((dtype for dtype in given.values() if dtype is not None and dtype not in KERNEL_TYPES), None)
        if odd is not None:
            self.to_host(node, no_kernels(odd))
        elif builder_for(node) is not None or node.domain == CONTRIB or _special(node):
            self.wait(node)
        else:
            self.to_host(node, NO_FORM)

    def wait(self, node: OnnxNode) -> None:
        self.waiting.append(node)
        self.late.update(name for name in node.outputs if name)

    def to_host(self, node: OnnxNode, reason: str) -> None:
        self.host.append(node)
        self.reasons[node.name] = reason
        self.pending.update(name for name in node.outputs if name)

    def translate(self, node: OnnxNode, names: tuple[str, ...]) -> None:
        mark = self.b.mark()
        try:
            self.build(node, names)
        except NeedValue as need:
            self.b.rollback(mark)
            self.wait_for_values(node, names, need.names)
        except Unsupported as why:
            self.b.rollback(mark)
            self.to_host(node, why.reason)
        except BrickError:
            raise
        except ValueError as e:
            raise BrickError(f"{node.op_type} node '{node.name}' cannot take {self.given(names)}: {e}") from e

    def wait_for_values(self, node: OnnxNode, names: tuple[str, ...], needed: Iterable[str]) -> None:
        asked, follows = set[str](), set[str]()
        for name in sorted(needed):
            if name not in names or self.b.type(name).size > BOUND_ELEMENTS:
                self.to_host(node, f"it needs the values of '{name}'")
                return
            tensor = self.b.resolve(name)
            given = tensor in self.stage.inputs
            deciding = frozenset() if given else self.sources.of(tensor)
            if not deciding and self.changes(tensor):
                self.to_host(node, f"it needs the values of '{name}', which change from round to round")
                return
            asked.update([tensor] if given else [])
            follows |= deciding
        self.need |= asked
        self.deciding |= follows
        self.late_values.update(needed)
        self.wait(node)

    def changes(self, tensor: str) -> bool:
        """Whether the values of a tensor are too many to compile for each: in a body that is repeated, all but flags
        and inputs that stay."""
        if not self.stage.repeated or (tensor in self.stage.inputs and tensor not in self.stage.changing):
            return False
        kind = self.b.types[tensor]
        return kind.dtype != np.bool_ or kind.size > 1

    def build(self, node: OnnxNode, names: tuple[str, ...]) -> None:
        """Adds what the node stands for. Raises NeedValue or Unsupported, possibly halfway."""
        b = self.b
        if node.op_type == "Identity" and not node.domain:
            b.aliases[node.outputs[0]] = b.resolve(node.inputs[0])
            return
        if node.op_type == "If" and not node.domain:
            if b.resolve(node.inputs[0]) not in b.types:
                raise Unsupported(f"its condition '{node.inputs[0]}' is no tensor")
            condition = b.value(node.inputs[0]).reshape(-1)
            if condition.size != 1:
                raise ValueError(f"a condition of {condition.size} elements, not one")
            taken = bool(condition[0])
            self.splice(branch(node, taken, self.opsets, b.fresh))
            return
        untyped = [name for name in names if b.resolve(name) not in b.types]
        if untyped:
            raise Unsupported(f"'{untyped[0]}' is no tensor")
        if node.domain == CONTRIB:
            self.build_contributed(node)
            return
        check_types(node, {name: b.type(name) for name in names})
        static = static_value(node, b.type(names[0])) if names else None
        stored = stored_matrix(b, node)
        if stored is not None:
            b.defer(node.outputs[0], TensorType(stored.values.shape, np.dtype(np.float32)), stored)
            self.stored.append(node)
        elif static is not None:
            b.bind(node.outputs[0], static)
        elif all(b.known(name) is not None for name in names):
            self.build_constant(node, names)
        else:
            self.build_operators(node, names)

    def build_operators(self, node: OnnxNode, names: tuple[str, ...]) -> None:
        b, builder = self.b, builder_for(node)
        odd = next((t.dtype for t in map(b.type, names) if t.dtype not in KERNEL_TYPES), None)
        if odd is not None:
            raise Unsupported(no_kernels(odd))
        if builder is None:
            self.build_function(node)
            return
        start = len(b.nodes)
        self.adopt(node, _tuple(builder(b, node)), start)

    def build_contributed(self, node: OnnxNode) -> None:
        """A contributed operator by its own builder, where that can, else by the standard ones it stands for."""
        b, builder, mark = self.b, builder_for(node), self.b.mark()
        body = contributed_body(node, [b.type(name) if name else None for name in node.inputs])
        if builder is not None:
            try:
                self.adopt(node, _tuple(builder(b, node)), mark.nodes)
                return
            except Unsupported:
                b.rollback(mark)
        self.splice(expand(node, body, self.opsets, b.fresh))

    def build_function(self, node: OnnxNode) -> None:
        b = self.b
        body = function_body(node, [b.type(name) if name else None for name in node.inputs])
        if body is None:
            raise Unsupported(STEPPED if not node.domain and node.op_type in CONTROL else NO_FORM)
        self.splice(expand(node, body, self.opsets, b.fresh))

    def build_constant(self, node: OnnxNode, names: tuple[str, ...]) -> None:
        """A node whose inputs are all constants, folded unless that takes much more room."""
        arrays = {name: self.b.value(name) for name in names}
        quick = quick_constant(node, arrays)
        if quick is not None:
            for name, value in quick.items():
                self.b.bind_new(name, value)
            return
        key = self.equal.key(node)
        if not self.equal.take(node, key):
            self.build_large_constant(node, arrays)
            self.equal.add(node, key)

    def build_large_constant(self, node: OnnxNode, arrays: Mapping[str, np.ndarray]) -> None:
        b, builder, mark, names = self.b, builder_for(node), self.b.mark(), tuple(arrays)
        if builder is not None and all(b.type(name).dtype in KERNEL_TYPES for name in names):
            try:
                outputs = _tuple(builder(b, node))
            except Unsupported:
                b.rollback(mark)
            else:
                self.fold_or_adopt(node, names, outputs, mark)
                return
        try:
            with folding():
                values = fold_on_host(node, self.opsets, arrays)
        except TooLong:
            raise Unsupported("it takes too long to be computed before the model runs") from None
        if values is None:
            raise Unsupported("its results depend on chance or are no tensors")
        for name, array in values.items():
            b.bind(name, array)

    def fold_or_adopt(self, node: OnnxNode, names: tuple[str, ...], outputs: tuple[str, ...], mark: Mark) -> None:
        b = self.b
        results = {name: b.resolve(tensor) for name, tensor in zip(node.outputs, outputs) if name and tensor}
        added = b.nodes[mark.nodes :]
        small = small_enough([b.types[t] for t in results.values()], [b.value(name) for name in names])
        values = folded(added, b.constants, b.types) if small and quick_enough(added, b.types) else None
        if values is None:
            self.adopt(node, outputs, mark.nodes)
            return
        arrays = {name: values[t] if t in values else b.constants[t] for name, t in results.items()}
        b.rollback(mark)
        for name, array in arrays.items():
            b.bind_new(name, array)

    def adopt(self, node: OnnxNode, outputs: tuple[str, ...], start: int) -> None:
        """Gives the tensors that a builder returned the names of the node's outputs."""
        b = self.b
        outputs = (*outputs, *("",) * (len(node.outputs) - len(outputs)))
        unbuilt = [name for name, tensor in zip(node.outputs, outputs) if name and not tensor and b.used(name)]
        if unbuilt:
            raise Unsupported(f"its output '{unbuilt[0]}' has no form in brick operators")
        for name, tensor in zip(node.outputs, outputs):
            if name and tensor:
                b.name_output(name, tensor, start)
        if len(b.nodes) == start + 1:
            made = b.nodes[start]
            b.nodes[start] = Node(node.name, made.op, made.inputs, made.output, made.origin)

    def splice(self, parts: Splice) -> None:
        """Puts nodes in front of those still to visit."""
        nodes, constants = parts
        self.b.use(name for node in nodes for name in reads(node))
        self.sources.add(nodes)
        for name, array in constants.items():
            self.b.bind(name, array)
        self.queue.extendleft(reversed(nodes))

    def result(self) -> Specialized:
        b, stage = self.b, self.stage
        for name in [name for node in b.nodes for name in node.inputs if name in b.deferred]:
            b.known(name)
        self.pass_on_stored()
        wanted = [*stage.outputs, *(name for node in self.host for name in reads(node))]
        later = [name for node in self.waiting for name in reads(node)]
        here = [name for name in dict.fromkeys((*wanted, *later)) if name not in self.late and name not in self.pending]
        known = {name: array for name in here if (array := b.known(name)) is not None}
        outputs, same, renamed = named_outputs([name for name in here if name not in known], b.resolve, stage.inputs)
        inputs = tuple(name for name in stage.inputs if name in b.types and name not in b.constants)
        graph = rename(Graph(tuple(b.nodes), b.types, b.constants, inputs, tuple(outputs)), renamed)
        graph = rewritten(graph).verify()
        return Specialized(graph, tuple(self.host), self.reasons, only(known, wanted), same, self.rest(later, known))

    def pass_on_stored(self) -> None:
        """Leaves constants of few bits that only nodes of later stages read to these, which may take them as stored."""
        here = {name for node in self.host for name in reads(node)}
        for node in reversed(self.stored):
            name = node.outputs[0]
            if name not in here | self.b.constants.keys() and any(name in reads(other) for other in self.waiting):
                self.waiting.insert(0, node)
                self.late.add(name)

    def rest(self, reads_later: list[str], known: Mapping[str, np.ndarray]) -> Stage | None:
        if not self.waiting:
            return None
        constants = only(known, reads_later)
        inputs = tuple(n for n in dict.fromkeys(reads_later) if n not in self.late and n not in constants)
        stage = self.stage
        stay = frozenset(stage.inputs) - stage.changing
        return Stage(
            source=stage.source,
            nodes=tuple(self.waiting),
            inputs=inputs,
            value_inputs=frozenset(inputs) & self.late_values,
            outputs=tuple(name for name in stage.outputs if name in self.late),
            constants=constants,
            deciding=stage.deciding.intersection(inputs),
            changing=frozenset(inputs) - stay if stage.repeated else frozenset(),
            repeated=stage.repeated,
        )


def _special(node: OnnxNode) -> bool:
    """Whether a node waits for its inputs though it has no builder."""
    return not node.domain and node.op_type in ("If", "Shape", "Size")


def _tuple(outputs: str | tuple[str, ...]) -> tuple[str, ...]:
    return (outputs,) if isinstance(outputs, str) else tuple(outputs)
