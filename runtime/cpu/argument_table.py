"""The argument table of a program: a record for every step, which says which kernel, where its operands are, its box.

A record is the number of the kernel; the number of operands; base and byte offset of each operand's virtual origin, the
output first; then the lower and the upper end of the box along each axis. Bases are those of a worker's table: its
scratch, the arena, inputs, outputs, constants.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from brickrt.graph.allowance import hold
from brickrt.graph.errors import BrickError
from brickrt.graph.ir import Node
from brickrt.graph.room import require_modest
from brickrt.ops.cpu.elementwise.map import MapKernel
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.operand import Operand, dense
from brickrt.ops.expr import arg
from brickrt.ops.operators.map import Map
from brickrt.ops.types import Boxes, TensorType
from brickrt.plan.layout import Layout
from brickrt.runtime.cpu.engine_memory import PackedConstants
from brickrt.runtime.cpu.memory import HugePagePool
from brickrt.runtime.cpu.step_kernels import StepKernels
from brickrt.runtime.cpu.weight_prefetch import WeightPrefetch
from brickrt.runtime.cpu.working_memory import ARENA, SCRATCH, SCRATCH_HEAD
from brickrt.runtime.lowering.operands import Bases, OperandPlaces, Origin
from brickrt.runtime.lowering.owned_constants import ConstantValues
from brickrt.runtime.lowering.record_order import Records, order_records
from brickrt.runtime.lowering.task_graph import ScratchMoves, Steps, TaskGraph

FIRST = 2  # behind the bases of scratch and arena
HEAD_WORDS = 2  # of a record, before its operands
SMALL_CONSTANT_BYTES = 1 << 16  # it is packed at once
COPIES = 2  # of a constant while it is packed
MOST_OPERANDS = 64  # of a kernel, its output and its own memory among them: a worker has room for so many addresses


@dataclass
class SharedTables:
    """What the programs of one task graph, or of the bands of one plan, have in common: kernels with their numbers, and
    packed constants. Tables of sizes, which kernels read, are constants too."""

    request: Callable[[Kernel], Future[np.ndarray]]  # of every kernel, once, in order of their numbers: its sizes
    packers: Executor | None  # constants are packed by its threads meanwhile; None until there are some
    values: ConstantValues
    packed: PackedConstants
    kernels: dict[Kernel, int] = field(default_factory=dict)
    constants: dict[bytes | int, Future[np.ndarray]] = field(default_factory=dict)  # by name, digest, kernel's number
    numbers: dict[bytes | int, int] = field(default_factory=dict)  # of constants, in the order of `constants`
    packed_as: dict[Hashable, bytes] = field(default_factory=dict)  # node, input, class and packing of a kernel → key
    memory: HugePagePool = field(default_factory=HugePagePool)  # where constants lie that are packed now

    def pack(self, kernel: Kernel, i: int, array: np.ndarray) -> Future[np.ndarray]:
        """Constant input `i` as a kernel reads it; a small one is packed at once, which takes less than to tell a
        thread."""
        found = self.packed.at_once(kernel, i, array)
        if found is None and array.nbytes > SMALL_CONSTANT_BYTES and self.packers is not None:
            return self.packers.submit(self.packed.get, self.memory, kernel, i, array)
        done: Future[np.ndarray] = Future()
        done.set_result(self.packed.get(self.memory, kernel, i, array) if found is None else found)
        return done


@dataclass
class ArgumentTable:
    """Grows step by step; `finish` gives the records as the workers read them."""

    tasks: TaskGraph
    isa: Isa
    shared: SharedTables
    records: list[Records] = field(default_factory=list)
    workspace: int = 0  # bytes that kernels need behind the scratch of padded bricks

    def __post_init__(self) -> None:
        self.places = host_places(self.tasks)
        self.prefetch = WeightPrefetch(self.tasks)
        self.chosen = StepKernels(self.tasks, self.isa, self.places)
        self._numbered: dict[int, tuple[Sequence[Kernel], np.ndarray]] = {}  # by a list's identity
        self._packed_here: dict[str, bytes] = {}  # keys of constants, which others may have packed otherwise

    # ---- steps

    def add_all(self) -> None:
        """Writes the records of all steps of the task graph."""
        for steps in self.tasks.steps:
            self.add(steps)
        for moves in self.tasks.scratch_moves:
            self.move_rows(moves)

    def add(self, steps: Steps) -> None:
        """Chooses kernels for one node's steps and writes their records."""
        if not len(steps.boxes):
            return
        node = self.tasks.plan.graph.nodes[steps.node]
        out, *ins = (self.places.operand(name) for name in (node.output, *node.inputs))
        variants, which = self.chosen.of(steps, out, tuple(ins))
        variants, asked = self.prefetch.asking(steps, variants, which)
        works = np.array([kernel.workspace > 0 for kernel in variants])
        if works.all() or not works.any():
            self._write(node, steps, variants, which, asked)
            return
        # boxes of a few rows may need no workspace, and have no pointer to it
        for alike in (works[which], ~works[which]):
            rows = np.flatnonzero(alike)
            if len(rows):
                self._write(node, steps.part(rows), variants, which[rows], None if asked is None else asked[rows])

    def _write(
        self, node: Node, steps: Steps, variants: Sequence[Kernel], which: np.ndarray, asked: np.ndarray | None
    ) -> None:
        """Writes the records of steps whose kernels, `which` of the `variants`, have pointers to the same things."""
        kernel, numbers = variants[which[0]], self._numbers(variants)[which]
        origins: list[tuple[int | np.ndarray, np.ndarray]] = [*self._origins(node, steps, kernel)]
        if kernel.sized:
            origins.append((self._sizes_of(numbers), np.zeros(len(numbers), np.int64)))
        words = words_of(numbers, origins, steps.boxes)
        if asked is not None:
            column = HEAD_WORDS + 2 * (len(node.inputs) + kernel.extra_pointers)
            self.prefetch.note(steps.node, words[:, column : column + 2], asked)
        self.records.append((steps.tasks, steps.positions, words))

    def move_rows(self, moves: ScratchMoves) -> None:
        """Writes the records that move rows inside the scratch of a tensor."""
        operand, origins = self.places.moved(moves)
        op = Map(arg(0, operand.dtype))
        which, classes = MapKernel.classify(op, (operand,), operand, moves.boxes, self.isa)
        kernels = [MapKernel(op, (operand,), operand, self.isa, (False,), c) for c in classes]
        numbers = self._numbers(kernels)[which]
        places: list[tuple[int | np.ndarray, np.ndarray]] = [*origins]
        if kernels[0].sized:
            places.append((self._sizes_of(numbers), np.zeros(len(numbers), np.int64)))
        self.records.append((moves.tasks, moves.positions, words_of(numbers, places, moves.boxes)))

    def _numbers(self, kernels: Sequence[Kernel]) -> np.ndarray:
        """The kernels' places in the table of kernels."""
        if id(kernels) not in self._numbered:
            self.workspace = max(self.workspace, *(kernel.workspace for kernel in kernels))
            self._numbered[id(kernels)] = kernels, np.array([self._number(kernel) for kernel in kernels], np.int64)
        return self._numbered[id(kernels)][1]

    def _number(self, kernel: Kernel) -> int:
        known = self.shared.kernels
        new = len(known)
        number = known.setdefault(kernel, new)  # a kernel is hashed once: that takes as long as all else here
        if number == new:
            sizes = self.shared.request(kernel)
            if kernel.sized:
                self.shared.constants[number] = sizes
        return number

    def _sizes_of(self, numbers: np.ndarray) -> int | np.ndarray:
        """The base of the tables of sizes that kernels of these numbers read: of each step, where it is not one."""
        if (numbers == numbers[0]).all():
            return self.base_of(int(numbers[0]))
        known, which = np.unique(numbers, return_inverse=True)
        return np.array([self.base_of(number) for number in known.tolist()], np.int64)[which.reshape(-1)]

    def _origins(self, node: Node, steps: Steps, kernel: Kernel) -> list[Origin]:
        """Where all that a kernel has pointers to begins: output, inputs, what it fetches or asks for, workspace."""
        zeros = np.zeros(len(steps.boxes), np.int64)
        found = [self.places.origin(node.output, kernel.out, steps)]
        for i, (name, operand) in enumerate(zip(node.inputs, kernel.ins, strict=True)):
            if kernel.packed[i]:
                found.append((self.constant(steps.node, i, kernel), zeros))
            else:
                found.append(self.places.origin(name, operand, steps))
        for fetched, (name, target) in zip(kernel.prefetched, steps.prefetches.items(), strict=False):
            base, offsets = self.places.origin(name, fetched.operand, steps)
            found.append((base, offsets + fetched.operand.byte_offsets(np.array([target.shift], np.int64))))
        if kernel.prefetch_bytes is not None:
            found.append((SCRATCH, zeros))  # filled in by `WeightPrefetch`
        if kernel.workspace:
            found.append((SCRATCH, zeros + self.tasks.scratch_bytes))
        if kernel.keeps_workspace:
            found.append((SCRATCH, zeros - SCRATCH_HEAD))
        if len(found) + kernel.sized > MOST_OPERANDS:
            count = 1 + len(node.inputs)
            raise BrickError(f"node '{node.name}': kernels take at most {MOST_OPERANDS} tensors, not {count}")
        return found

    # ---- constants

    @property
    def first_constant(self) -> int:
        """The base of the first packed constant; the others follow."""
        graph = self.tasks.plan.graph
        return FIRST + len(graph.inputs) + len(graph.outputs)

    def constant(self, k: int, i: int, kernel: Kernel) -> int:
        """The base of a constant that is packed as input `i` of this kernel of node `k`. Raises BrickError where the
        model may not have the memory for that."""
        shared, name = self.shared, self.tasks.plan.graph.nodes[k].inputs[i]
        # the kernels of a node are cut alike in one program, and in several they need not be
        reader = (k, i, type(kernel), kernel.packing(i) if shared.values.stay else None)
        key = shared.packed_as.get(reader)
        if key is None:
            nbytes = kernel.packed_elements(i) * shared.values[name].itemsize
            require_modest(COPIES * nbytes, f"bringing the constant '{name}' into the layout of its kernel")
            hold(nbytes)
            packed = shared.pack(kernel, i, shared.values[name])
            several = shared.values.is_shared(name) or name.encode() in shared.constants
            key = hashlib.sha256(packed.result().data).digest() if several else name.encode()
            shared.constants.setdefault(key, packed)
            shared.values.done(name)
            shared.packed_as[reader] = key
        self._packed_here[name] = key
        return self.base_of(key)

    def base_of(self, key: bytes | int) -> int:
        """The base of a packed constant, or of the sizes of the kernel of a number."""
        known = self.shared.numbers
        for each in islice(self.shared.constants, len(known), None):
            known[each] = len(known)
        return self.first_constant + known[key]

    def where_constant(self, name: str) -> tuple[int, int]:
        """Base and bytes of a packed constant that one node reads."""
        key = self._packed_here[name]
        return self.base_of(key), self.shared.constants[key].result().nbytes

    # ---- what the workers read

    def finish(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(first step of each task [T + 1], word at which each step's record begins [S], records)."""
        self.prefetch.fill(self.where_constant)
        found = order_records(self.records)
        starts = np.cumsum(found.widths) - found.widths
        first = np.searchsorted(found.tasks[found.order], np.arange(len(self.tasks) + 1)).astype(np.int64)
        flat = np.concatenate([np.zeros(0, np.int64), *(words.reshape(-1) for _, _, words in self.records)])
        return first, starts[found.order].astype(np.int64), flat


def host_places(tasks: TaskGraph) -> OperandPlaces[Operand]:
    """Where operands lie on the host: a block has as many channels as a vector has lanes."""
    lanes = tasks.plan.device.lanes

    def lay_out(kind: TensorType, layout: Layout, extents: Sequence[int] | None = None) -> Operand:
        return dense(kind, lanes if layout == "blocked" else 1, extents)

    return OperandPlaces(tasks, lay_out, Bases(SCRATCH, ARENA, FIRST))


def words_of(numbers: np.ndarray, origins: Sequence[tuple[int | np.ndarray, np.ndarray]], boxes: Boxes) -> np.ndarray:
    """Records of the kernels with these numbers [n] on operands at these origins, int64 [n, words]; a base may be
    another for each step."""
    end = HEAD_WORDS + 2 * len(origins)
    words = np.empty((len(boxes), end + 2 * boxes.rank), np.int64)
    words[:, 0], words[:, 1] = numbers, len(origins)
    for k, (base, offsets) in enumerate(origins):
        words[:, HEAD_WORDS + 2 * k], words[:, HEAD_WORDS + 2 * k + 1] = base, offsets
    words[:, end::2], words[:, end + 1 :: 2] = boxes.lo, boxes.hi
    return words
