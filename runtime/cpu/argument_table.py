"""The argument table of a program: for every step, which kernel, where its operands begin, and its box.

Operands are found through a table of bases: a worker's scratch, the arena, then constants, inputs and outputs. An
operand is written as (base, byte offset) such that adding the strides of any index gives the element: the virtual
origin.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.graph.ir import Node
from brickrt.ops.cpu.all_kernels import ALGORITHMS
from brickrt.ops.cpu.elementwise.map import MapKernel
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, PrefetchedOperand, choose_kernel
from brickrt.ops.cpu.operand import Operand, dense
from brickrt.ops.expr import arg
from brickrt.ops.operators.map import Map
from brickrt.runtime.cpu.memory import HugePagePool
from brickrt.runtime.cpu.weight_prefetch import WeightPrefetch
from brickrt.runtime.lowering.inplace_slices import start_of
from brickrt.runtime.lowering.task_graph import ScratchMoves, Steps, TaskGraph

SCRATCH, ARENA, FIRST = 0, 1, 2
MOST_OPERANDS = 64  # of a kernel, its output and its own memory among them: a worker has room for so many addresses


@dataclass
class Records:
    """Grows step by step; `finish` orders the records as the workers want them."""

    tasks: TaskGraph
    isa: Isa
    want: Callable[[Kernel], None]  # told of every kernel, once, in the order of their numbers
    packers: Executor  # constants are packed by its threads meanwhile
    kernels: dict[Kernel, int] = field(default_factory=dict)
    constants: dict[bytes, Future[np.ndarray]] = field(default_factory=dict)  # name, or digest where shared → packed
    rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)  # tasks, ranks, records
    memory: HugePagePool = field(default_factory=HugePagePool)  # where packed constants lie
    workspace: int = 0  # bytes that kernels need behind the scratch of padded bricks

    def __post_init__(self) -> None:
        nodes = self.tasks.plan.graph.nodes
        self.later = WeightPrefetch(self.tasks)
        self.readers = Counter(name for steps in self.tasks.steps for name in nodes[steps.node].inputs)
        self.left = self.readers.copy()

    # ---- bases

    def base_of_end(self, kind: str, slot: int) -> int:
        """Bases of inputs, then outputs, follow scratch and arena; constants come last."""
        return FIRST + slot + (len(self.tasks.plan.graph.inputs) if kind == "output" else 0)

    @property
    def first_constant(self) -> int:
        graph = self.tasks.plan.graph
        return FIRST + len(graph.inputs) + len(graph.outputs)

    # ---- operands

    def operand(self, name: str) -> Operand:
        """How a tensor lies in memory."""
        graph, plan = self.tasks.plan.graph, self.tasks.plan
        kind = graph.types[name]
        if name in graph.constants:
            return dense(kind, plan.device.lanes if plan.layouts[name] == "blocked" else 1)
        if name in self.tasks.inplace_slices:
            return replace(self.operand(self.tasks.inplace_slices[name].source), type=kind)
        if self.tasks.root(name) != name:
            return dense(kind)
        place = self.tasks.allocations[name]
        return dense(kind, place.block, place.extents)

    def origin(self, name: str, operand: Operand, steps: Steps) -> tuple[int, np.ndarray]:
        """Base and byte offsets, one per step, of a tensor that is no constant."""
        root = self.tasks.root(name)
        place = self.tasks.allocations[root]
        n = len(steps.boxes)
        offsets = np.full(n, place.offset + self.shift(name, operand), np.int64)
        if place.kind in ("input", "output"):
            return self.base_of_end(place.kind, place.slot), offsets
        if place.kind == "arena":
            return ARENA, offsets
        return SCRATCH, offsets - byte_offsets(operand, steps.origins[root])

    def shift(self, name: str, operand: Operand) -> int:
        """Bytes from the origin of the stored tensor to that of a part of it."""
        return int(byte_offsets(operand, start_of(self.tasks.inplace_slices, name, operand.type.rank))[0])

    # ---- steps

    def add(self, steps: Steps) -> None:
        """Chooses kernels for one node's steps and writes their records."""
        graph = self.tasks.plan.graph
        node = graph.nodes[steps.node]
        if not len(steps.boxes):
            return
        ins, out = tuple(self.operand(n) for n in node.inputs), self.operand(node.output)
        packed = tuple(n in graph.constants for n in node.inputs)
        algorithm = self.tasks.plan.algorithms.get(steps.node)
        family = ALGORITHMS[algorithm] if algorithm else choose_kernel(node.op, ins, out, self.isa)
        which, classes = family.classify(node.op, ins, out, steps.boxes, self.isa)
        streams = steps.prefetches.items() if family.prefetches else ()
        prefetched = tuple(PrefetchedOperand(self.operand(name), stream.write) for name, stream in streams)
        variants = [family(node.op, ins, out, self.isa, packed, c, prefetched) for c in classes]
        variants, asked = self.later.asking(steps, variants, which)
        self.workspace = max(self.workspace, *(v.workspace for v in variants))
        numbers = np.array([self.number(v) for v in variants], np.int64)
        table = self.table(node, steps, [out, *ins], variants[0], numbers[which])
        if asked is not None:
            self.later.note(steps.node, table[:, 2 + 2 * (len(ins) + variants[0].extra_pointers) :][:, :2], asked)
        self.rows.append((steps.tasks, steps.ranks, table))

    def carry(self, carries: ScratchMoves) -> None:
        """Writes the records that move rows inside the scratch of a tensor."""
        operand = self.operand(carries.tensor)
        op = Map(arg(0, operand.dtype))
        which, classes = MapKernel.classify(op, (operand,), operand, carries.boxes, self.isa)
        variants = [MapKernel(op, (operand,), operand, self.isa, (False,), c) for c in classes]
        numbers = np.array([self.number(v) for v in variants], np.int64)
        base = self.tasks.allocations[carries.tensor].offset
        places = [base - byte_offsets(operand, origins) for origins in (carries.after, carries.before)]
        n = len(carries.boxes)
        heads = [numbers[which], np.full(n, 2), *(w for at in places for w in (np.full(n, SCRATCH), at))]
        ends = [end for axis in zip(carries.boxes.lo.T, carries.boxes.hi.T, strict=True) for end in axis]
        self.rows.append((carries.tasks, carries.ranks, np.stack([*heads, *ends], axis=1)))

    def number(self, kernel: Kernel) -> int:
        """A kernel's place in the table of kernels."""
        if kernel not in self.kernels:
            self.kernels[kernel] = len(self.kernels)
            self.want(kernel)
        return self.kernels[kernel]

    def table(
        self, node: Node, steps: Steps, operands: list[Operand], kernel: Kernel, numbers: np.ndarray
    ) -> np.ndarray:
        """Records of one node's steps, [n, words]."""
        n, rank = len(steps.boxes), steps.boxes.rank
        extra = int(kernel.workspace > 0) + kernel.extra_pointers
        if len(operands) + extra > MOST_OPERANDS:
            raise BrickError(f"node '{node.name}': kernels take at most {MOST_OPERANDS} tensors, not {len(operands)}")
        end = 2 + 2 * (len(operands) + extra)
        records = np.empty((n, end + 2 * rank), np.int64)
        records[:, 0], records[:, 1] = numbers, len(operands) + extra
        if kernel.workspace:
            records[:, end - 2], records[:, end - 1] = SCRATCH, self.tasks.scratch_bytes
        for k, (name, operand) in enumerate(zip((node.output, *node.inputs), operands, strict=True)):
            if k and kernel.packed[k - 1]:
                records[:, 2 + 2 * k], records[:, 3 + 2 * k] = self.constant(name, kernel, k - 1), 0
            else:
                records[:, 2 + 2 * k], records[:, 3 + 2 * k] = self.origin(name, operand, steps)
        for k, (later, (name, stream)) in enumerate(
            zip(kernel.prefetched, steps.prefetches.items(), strict=False), len(operands)
        ):
            base, offsets = self.origin(name, later.operand, steps)
            further = byte_offsets(later.operand, np.array([stream.shift], np.int64))
            records[:, 2 + 2 * k], records[:, 3 + 2 * k] = base, offsets + further
        box = records[:, end:]
        box[:, 0::2], box[:, 1::2] = steps.boxes.lo, steps.boxes.hi
        return records

    def constant(self, name: str, kernel: Kernel, i: int) -> int:
        """Base of a constant as this kernel wants it."""
        packed = self.packers.submit(_packed, self.memory, kernel, i, self.tasks.plan.graph.constants[name])
        shared = self.readers[name] > 1
        key = hashlib.sha256(packed.result().data).digest() if shared else name.encode()
        self.constants.setdefault(key, packed)
        self.release(name)
        return self.first_constant + list(self.constants).index(key)

    def where_constant(self, name: str) -> tuple[int, int]:
        """Base and bytes of a packed constant that one node reads."""
        base = self.first_constant + list(self.constants).index(name.encode())
        return base, self.constants[name.encode()].result().nbytes

    def release(self, name: str) -> None:
        """Gives up a constant that no step is still to read: a packed copy is what stays. Its type remains known."""
        self.left[name] -= 1
        if not self.left[name]:
            constants = self.tasks.plan.graph.constants
            constants[name] = np.broadcast_to(np.zeros((), constants[name].dtype), constants[name].shape)

    def finish(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(first step of each task [T + 1], offset of each step's record [S], records)."""
        self.later.fill(self.where_constant)
        tasks = np.concatenate([np.zeros(0, np.int64), *(t for t, _, _ in self.rows)])
        ranks = np.concatenate([np.zeros(0, np.int64), *(r for _, r, _ in self.rows)])
        sizes = np.concatenate([np.zeros(0, np.int64), *(np.full(len(t), r.shape[1]) for t, _, r in self.rows)])
        starts = np.cumsum(sizes) - sizes
        order = np.lexsort((ranks, tasks))
        first = np.searchsorted(tasks[order], np.arange(len(self.tasks) + 1)).astype(np.int64)
        flat = np.concatenate([np.zeros(0, np.int64), *(r.reshape(-1) for _, _, r in self.rows)])
        return first, starts[order].astype(np.int64), flat.astype(np.int64)


def _packed(memory: HugePagePool, kernel: Kernel, i: int, array: np.ndarray) -> np.ndarray:
    return memory.copy(kernel.pack(i, array))


def byte_offsets(operand: Operand, indices: np.ndarray) -> np.ndarray:
    """Bytes from the virtual origin to elements [n, d], whose channels are the first of a block."""
    scaled = indices.copy()
    if operand.block > 1:
        scaled[:, 1] //= operand.block
    return scaled @ np.asarray(operand.strides, np.int64) * operand.dtype.itemsize
