"""The registry of builders, which translate ONNX nodes to brick operators, and the `Builder` they work with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from brickrt.graph.allowance import hold
from brickrt.graph.errors import NeedValue, Unsupported
from brickrt.graph.ir import Node
from brickrt.graph.room import UNASKED_BYTES, own_bytes, require_modest, require_room, require_table_room
from brickrt.ops.base import Op
from brickrt.ops.types import MOST_DIMENSIONS, TensorType

if TYPE_CHECKING:
    import onnx

KERNEL_TYPES = frozenset(
    np.dtype(t)
    for t in (
        *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
        *(np.float16, np.float32, np.float64),
    )
)


@dataclass(frozen=True, eq=False)
class OnnxNode:
    """A node of the imported model; `name` is unique in it, `version` the opset version of `domain`.

    `inputs` has '' for an omitted optional input, `outputs` for one the model does not name. Attributes are Python
    values: tensors as arrays, subgraphs as `GraphProto`, strings decoded.
    """

    name: str
    op_type: str
    domain: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any]
    proto: onnx.NodeProto


ADDRESSABLE_BYTES = 1 << 47
"""Bytes that a process can address: no tensor can be larger, not even one that is never stored whole."""

COUNTABLE_BYTES = 1 << 60
"""Bytes of a tensor whose offsets 64 bits count: what is never whole in memory may have more than can be addressed."""

CONSTANT_COPIES = 4
"""Of a constant that the model makes: as it is made, as kernels read it, and what is computed from it."""

BuilderFunction = Callable[["Builder", OnnxNode], "str | tuple[str, ...]"]

_BUILDERS: dict[tuple[str, str], BuilderFunction] = {}


def builds(*op_types: str, domain: str = "", replaces: bool = False) -> Callable[[BuilderFunction], BuilderFunction]:
    """Registers a builder: a function `f(b, node)` that emits operators and returns the tensor names of the outputs.

    It returns '' for an output that nobody reads, and raises `Unsupported` where the node must run on the host. Raises
    ValueError where an operator has a builder already, unless this one `replaces` it.
    """

    def register(function: BuilderFunction) -> BuilderFunction:
        twice = [op_type for op_type in op_types if (domain, op_type) in _BUILDERS]
        if twice and not replaces:
            raise ValueError(f"{', '.join(twice)} has a builder already: say replaces=True where it is to be replaced")
        for op_type in op_types:
            _BUILDERS[domain, op_type] = function
        return function

    return register


def builder_for(node: OnnxNode) -> BuilderFunction | None:
    """The builder of a node, None where there is none."""
    return _BUILDERS.get((node.domain, node.op_type))


def no_kernels(dtype: np.dtype) -> str:
    """Says why a node with such elements runs on the host."""
    return f"no kernels for elements of type {'string' if dtype.kind in 'OUS' else dtype.name}"


@dataclass(frozen=True, eq=False)
class Quantized:
    """What DequantizeLinear gives: (`tensor` - `zero`) · `scale`, arrays of one entry or one per index of `axis`."""

    tensor: str
    scale: np.ndarray
    zero: np.ndarray
    axis: int


@dataclass(frozen=True)
class Mark:
    """A state of a builder that it can return to: the lengths of its tables."""

    nodes: int
    types: int
    constants: int


class Builder:
    """Collects brick nodes. Tensors go by ONNX name, or by the name that `emit` and `constant` return."""

    def __init__(
        self,
        reserved: Iterable[str] = (),
        used: Iterable[str] = (),
        integers: bool = False,
        cpu_operators: bool = False,
        addressable: int = ADDRESSABLE_BYTES,
    ) -> None:
        """`reserved` names are not given to new tensors; `used` are the ONNX tensors that anybody reads. With
        `integers`, products of quantized tensors are computed as such; with `cpu_operators`, recurrent
        layers, sums so far and images at points by kernels. No tensor may have more bytes than are `addressable`."""
        self.addressable = addressable
        self.integers, self.cpu_operators = integers, cpu_operators
        self.quantized: dict[str, Quantized] = {}  # by the ONNX name of what DequantizeLinear gives
        self.twins: dict[str, str] = {}  # signed bytes, by ONNX name → unsigned ones, 128 more
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.deferred: dict[str, Callable[[], np.ndarray]] = {}  # constants that are made when they are asked for
        self.aliases: dict[str, str] = {}
        self.spread: dict[str, str] = {}  # what Expand gives → what it is of, which broadcasts to the same
        self.bounds: dict[str, int] = {}  # what all elements of positions along an axis are below
        self.one_hot: dict[str, str] = {}  # zeros with a one in each row → the positions of these
        self.nodes: list[Node] = []
        self.current: OnnxNode | None = None
        self._taken = set(reserved)
        self._used = set(used)
        self._named: set[str] = set()

    def type(self, name: str) -> TensorType:
        """A tensor's type."""
        return self.types[self.resolve(name)]

    def value(self, name: str) -> np.ndarray:
        """The value of a constant. Raises NeedValue where the tensor is not known to be one."""
        array = self.known(name)
        if array is None:
            raise NeedValue([name])
        return array

    def scalar(self, name: str) -> Any:
        """The only element of a constant. Raises NeedValue where it is not known, ValueError for other than one."""
        array = self.value(name)
        if array.size != 1:
            raise ValueError(f"'{name}' has {array.size} elements, not one")
        return array.reshape(-1)[0]

    def known(self, name: str) -> np.ndarray | None:
        """The value of a constant, None for any other tensor and for an omitted input."""
        name = self.resolve(name)
        if name in self.deferred and name not in self.constants:
            self.check_constant(self.types[name].shape, self.types[name].dtype)
            self.bind_new(name, self.deferred[name]())
        return self.constants.get(name)

    def defer(self, name: str, kind: TensorType, make: Callable[[], np.ndarray]) -> None:
        """Makes `name` a constant of a type that is computed when somebody asks for it."""
        self.types[name], self.deferred[name] = kind, make

    def constant(self, array: np.ndarray, hint: str = "c") -> str:
        """Adds a constant and returns its tensor name."""
        array = np.asarray(array)
        name = self.fresh(hint)
        self.bind_new(name, array)
        return name

    def emit(self, op: Op, *inputs: str, hint: str = "") -> str:
        """Appends a node that stands for the current ONNX node; returns its output's name.

        Raises ValueError where the inputs do not fit, Unsupported where an element type has no kernels.
        """
        names = tuple(self.resolve(name) for name in inputs)
        ins = [self.types[name] for name in names]
        out = op.infer(ins)
        for t in (*ins, out):
            if t.dtype not in KERNEL_TYPES:
                raise Unsupported(no_kernels(t.dtype))
        self.check_room(out.shape, out.dtype)
        needed = out.size * max(8, 2 * out.dtype.itemsize)
        if needed > UNASKED_BYTES:  # else what is told is not put in words
            require_modest(needed, f"{self.what()} gives {out}, which with copies")
        name = self.fresh(hint or op.name)
        self.types[name] = out
        origin = (self.current.name,) if self.current else ()
        self.nodes.append(Node(name, op, names, name, origin))
        return name

    def check_room(self, shape: Sequence[int], dtype: np.dtype) -> None:
        """Raises ValueError for a tensor of more dimensions than NumPy broadcasts, and for one larger than memory can
        be, even one that is empty along an axis: NumPy counts its other axes."""
        if len(shape) > MOST_DIMENSIONS:
            raise ValueError(f"a tensor of {len(shape)} dimensions has more than {MOST_DIMENSIONS}: use fewer")
        if math.prod(d for d in shape if d) * dtype.itemsize > self.addressable:
            extents = ",".join(map(str, shape))
            raise ValueError(f"the result {dtype.name}[{extents}] would be larger than memory can be")

    def check_tables(self, shape: Sequence[int], dtype: np.dtype) -> None:
        """Raises BrickError where a tensor, or tables with an entry for each position along its axes, have no room.

        To be called before such tables are made.
        """
        self.check_room(shape, dtype)
        require_table_room(sum(shape), f"{self.what()} gives {dtype.name}[{','.join(map(str, shape))}]")

    def check_constant(self, shape: Sequence[int], dtype: np.dtype) -> None:
        """Raises BrickError for a constant that has no room, ValueError for one of negative extents. To be called
        before it is made."""
        if any(d < 0 for d in shape):
            raise ValueError(f"the extents {list(shape)} are not all positive or 0")
        require_room(shape, dtype, f"{self.what()} gives a constant which")
        require_modest(
            CONSTANT_COPIES * math.prod(shape) * dtype.itemsize, f"{self.what()} gives a constant which, with copies,"
        )

    def what(self) -> str:
        """The node that is being built, for errors."""
        node = self.current
        return f"{node.op_type} node '{node.name}'" if node else "the model"

    def used(self, name: str) -> bool:
        """Whether anybody reads this output of the model's node, or it is an output of the model."""
        return name in self._used

    def use(self, names: Iterable[str]) -> None:
        """Marks tensors as read, for readers that turn up while the model is built, as in the branches of an If."""
        self._used.update(names)

    def mark(self) -> Mark:
        """Where `rollback` returns to."""
        return Mark(len(self.nodes), len(self.types), len(self.constants))

    def rollback(self, mark: Mark) -> None:
        """Forgets the nodes and tensors added since."""
        del self.nodes[mark.nodes :]
        for table, size in ((self.types, mark.types), (self.constants, mark.constants)):
            while len(table) > size:
                table.popitem()

    def name_output(self, name: str, tensor: str, start: int) -> None:
        """Gives `tensor` an ONNX name: its own if a node from number `start` on writes it, else as an alias."""
        tensor, added = self.resolve(tensor), self.nodes[start:]
        if tensor in self._named or all(node.output != tensor for node in added):
            self.aliases[name] = tensor
            return
        self._named.add(name)
        self.types[name] = self.types.pop(tensor)
        notes: Sequence[dict[str, Any]] = self.spread, self.bounds, self.one_hot
        for noted in notes:
            if tensor in noted:
                noted[name] = noted.pop(tensor)
        for k, node in enumerate(added):
            if node.output == tensor or tensor in node.inputs:
                inputs = tuple(name if i == tensor else i for i in node.inputs)
                output = name if node.output == tensor else node.output
                self.nodes[start + k] = Node(node.name, node.op, inputs, output, node.origin)

    def resolve(self, name: str) -> str:
        """The tensor that an ONNX name stands for."""
        return self.aliases.get(name, name)

    def bind(self, name: str, array: np.ndarray) -> None:
        """Makes `name` a constant."""
        self.constants[name] = array
        self.types[name] = TensorType(array.shape, array.dtype)

    def bind_new(self, name: str, array: np.ndarray) -> None:
        """Makes `name` a constant that was computed, and takes memory of its own."""
        hold(own_bytes(array, ()))
        self.bind(name, array)

    def fresh(self, hint: str) -> str:
        """A new tensor name."""
        stem = f"{self.current.name}/{hint}" if self.current else hint
        name, k = stem, 1
        while name in self._taken:
            name, k = f"{stem}_{k}", k + 1
        self._taken.add(name)
        return name
