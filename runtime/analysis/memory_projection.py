"""The memory that a task graph needs, known before it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from brickrt.graph.allowance import FLOPS_PER_SECOND, allowance, hold
from brickrt.graph.errors import BrickError
from brickrt.graph.host.static_values import definition_bytes
from brickrt.graph.ir import Graph, Node
from brickrt.graph.room import available_bytes, require_bytes, require_modest
from brickrt.ops.types import is_floating
from brickrt.plan.device.machine import GIB, memory_bytes
from brickrt.runtime.lowering.task_graph import TaskGraph

DEFINED_PER_SECOND, WHOLE_NUMBERS_PER_SECOND = 1 << 34, 1 << 30
"""Operations of definitions in NumPy: of float64, as in products of matrices, and of integers."""
WINDOW_TAPS_PER_SECOND = 1 << 17
"""Of a window, each a few calls of Python for each box."""
SLOW_FLOPS_PER_SECOND = 1 << 32
COLUMNS = 8
TAPS_PER_SECOND = 1 << 29
"""Of pooling windows: each tap is read again for each output."""
RECORD_WORDS = 24  # of a step's record, about


@dataclass(frozen=True)
class MemoryProjection:
    """Bytes of constants as the kernels read them, tensors in the arena, scratch of all workers, argument tables with
    dependencies, and (`io`) inputs and outputs."""

    constants: int = 0
    arena: int = 0
    scratch: int = 0
    tables: int = 0
    io: int = 0

    @property
    def total(self) -> int:
        """All bytes of a run."""
        return self.constants + self.arena + self.scratch + self.tables + self.io

    def to_dict(self) -> dict[str, int]:
        """The parts as `brickrt plan` names them."""
        return {
            "constants": self.constants,
            "arena": self.arena,
            "scratch": self.scratch,
            "tables": self.tables,
            "ends": self.io,
        }


def _transformed(tasks: TaskGraph) -> int:
    """Bytes that algorithms such as Winograd's add to the weights."""
    plan = tasks.plan
    if not plan.algorithms:
        return 0
    from brickrt.plan.cost.conv_algorithms import added_bytes  # here: see `make_plan`
    from brickrt.plan.cost.strassen import keeps_weights

    nodes = {k: (plan.graph.nodes[k], name) for k, name in plan.algorithms.items() if not keeps_weights(name)}
    return sum(added_bytes(node.op, name, plan.graph.types[node.inputs[1]]) for node, name in nodes.values())


def _held(tasks: TaskGraph) -> int:
    """Bytes of the held weights of a worker."""
    if not tasks.plan.algorithms:
        return 0
    from brickrt.plan.cost.packed_weights import held_weights_bytes  # here: see `make_plan`

    return held_weights_bytes(tasks.plan.graph, tasks.plan.algorithms)


def project(tasks: TaskGraph, threads: int) -> MemoryProjection:
    """What a run will hold; constants without the padding of their packed form."""
    graph = tasks.plan.graph
    steps = sum(len(s.boxes) for s in tasks.steps)
    return MemoryProjection(
        constants=sum(graph.types[name].nbytes for name in graph.constants) + _transformed(tasks),
        arena=tasks.arena_bytes,
        scratch=(tasks.scratch_bytes + _held(tasks)) * threads,
        tables=8 * (RECORD_WORDS * steps + 3 * len(tasks) + len(tasks.deps)),
        io=sum(graph.types[name].nbytes for name in (*graph.inputs, *graph.outputs)),
    )


def check_io_sizes(graph: Graph) -> None:
    """Refuses, before anything is planned, inputs and outputs that this machine cannot hold together."""
    sizes = {name: graph.types[name].nbytes for name in (*graph.inputs, *graph.outputs)}
    if sum(sizes.values()) > memory_bytes():
        largest = max(sizes, key=lambda name: sizes[name])
        held = f"this machine has {memory_bytes() / GIB:.1f}"
        raise _refusal("inputs and outputs", sum(sizes.values()), held, f"'{largest}' {graph.types[largest]}")
    for name in graph.outputs:
        require_bytes(sizes[name], f"the output '{name}' {graph.types[name]}")


def check_work(graph: Graph) -> None:
    """Refuses operators that compute far more than the model and its inputs stand for. Raises BrickError."""
    allowed = allowance()
    if allowed is None:
        return
    seconds = {n: n.op.flops(graph.ins(n), graph.out(n)) / _rate(graph, n) for n in graph.nodes}
    most = max(seconds, key=lambda n: seconds[n], default=None)
    if most is not None:
        what = f"computing '{most.name}' {graph.out(most)} and the nodes around it"
        allowed.require_seconds(sum(seconds.values()), what)


def _rate(graph: Graph, node: Node) -> int:
    """Operations per second, roughly: products with enough columns fill a core's arithmetic, nothing else does."""
    products = dict.fromkeys(("MatMul", "BlockMatMul"), lambda w: w[-1])
    columns = {**products, "Conv": lambda w: w[0], "ConvTranspose": lambda w: w[1] if len(w) > 1 else 0}
    if node.op.name == "Pool":
        return TAPS_PER_SECOND
    if node.op.name not in columns or len(node.inputs) < 2:
        return SLOW_FLOPS_PER_SECOND
    groups = getattr(node.op, "groups", 1) if node.op.name == "Conv" else 1
    wide = columns[node.op.name](graph.ins(node)[1].shape) // groups >= COLUMNS
    return FLOPS_PER_SECOND if wide and is_floating(graph.out(node).dtype) else SLOW_FLOPS_PER_SECOND


def check_fits(tasks: TaskGraph, threads: int) -> None:
    """Refuses a task graph whose run this machine, or its GPU, cannot hold."""
    device, graph = tasks.plan.device, tasks.plan.graph
    projection = project(tasks, threads if device.kind == "cpu" else 1)
    needed = projection.total
    who, has = ("the GPU", device.memory) if device.kind == "cuda" else ("this machine", memory_bytes())
    if device.kind != "cuda" and needed <= has:  # inputs and constants are there already; what follows is new
        made = sum(graph.types[name].nbytes for name in graph.outputs)
        needed = projection.arena + projection.scratch + projection.tables + made
        who, has = "now this machine", min(has, available_bytes())
        allowed = allowance()
        if allowed is not None:
            allowed.require_bytes(
                needed + max(0, projection.constants - allowed.given),
                f"the run, whose largest part is {_largest(tasks)},",
            )
            hold(needed - made)
    if needed > has:
        raise _refusal("the run", needed, f"{who} has {has / GIB:.1f}", _largest(tasks), device.kind)


def check_definitions(tasks: TaskGraph) -> None:
    """Refuses a run by definitions, in NumPy, whose largest step takes more memory than the model may, or which takes
    longer. Raises BrickError."""
    graph, allowed, seconds = tasks.plan.graph, allowance(), 0.0
    for steps in tasks.steps:
        node = graph.nodes[steps.node]
        rate = DEFINED_PER_SECOND if is_floating(graph.out(node).dtype) else WHOLE_NUMBERS_PER_SECOND
        seconds += node.op.flops(graph.ins(node), graph.out(node)) / rate
        seconds += len(steps.boxes) * math.prod(getattr(node.op, "kernel", ())) / WINDOW_TAPS_PER_SECOND
        if allowed is not None:
            allowed.require_seconds(seconds, f"computing '{node.name}' {graph.out(node)} in NumPy, and all before it,")
        needed = definition_bytes(node.op, graph.ins(node), graph.out(node)) // max(1, len(steps.boxes))
        require_modest(needed, f"computing '{node.name}' {graph.out(node)} in NumPy")


def _largest(tasks: TaskGraph) -> str:
    graph = tasks.plan.graph
    stored = [name for name, one in tasks.allocations.items() if one.kind != "scratch"]
    largest = max(stored, key=lambda name: graph.types[name].nbytes, default="")
    return f"'{largest}' {graph.types[largest]}" if largest else "its scratch"


def _refusal(what: str, needed: int, held: str, largest: str, kind: str = "cpu") -> BrickError:
    sizes = f"{what} would take {needed / GIB:.1f} GiB, {held} GiB"
    remedy = "use smaller inputs" if kind == "cpu" else "use smaller inputs, or device cpu"
    return BrickError(f"{sizes}, and the largest part is {largest}: {remedy}")
