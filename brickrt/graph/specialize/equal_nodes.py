"""Nodes on constants that compute what an earlier one of the same walk does: exporters write masks and tables of
positions once for each layer that reads them. Each is computed once, and is in memory once."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import onnx

from brickrt.graph.builder import Builder, OnnxNode
from brickrt.graph.host.run_host_node import deterministic

COMPARED_BYTES = 1 << 22
"""Bytes of a constant up to which equal ones count as one; larger ones are compared by name."""

_LARGE = (onnx.AttributeProto.TENSOR, onnx.AttributeProto.GRAPH)


class EqualNodes:
    """Which nodes on constants a walk has met so far, and what they gave, in a `Builder`."""

    def __init__(self, b: Builder) -> None:
        self._b = b
        self._found: dict[tuple, tuple[str, ...]] = {}
        self._contents: dict[str, tuple] = {}  # of constants, by name

    def key(self, node: OnnxNode) -> tuple | None:
        """What two nodes share that give the same; None where a node is compared with no other."""
        attributes = node.proto.attribute
        if not deterministic(node) or any(a.type in _LARGE or a.graphs or a.tensors for a in attributes):
            return None
        said = tuple(sorted(a.SerializeToString(deterministic=True) for a in attributes))
        operands = (self._content(self._b.resolve(name)) for name in node.inputs)
        return node.op_type, node.domain, node.version, said, len(node.outputs), *operands

    def take(self, node: OnnxNode, key: tuple | None) -> bool:
        """Makes the outputs of a node other names of those of an earlier one; False where none has its key."""
        earlier = None if key is None else self._found.get(key)
        if earlier is None or any(name and not other for name, other in zip(node.outputs, earlier, strict=True)):
            return False
        self._b.aliases |= {name: self._b.resolve(other) for name, other in zip(node.outputs, earlier) if name}
        return True

    def add(self, node: OnnxNode, key: tuple | None) -> None:
        """Takes up a node whose outputs, as far as they are named, the builder has."""
        if key is not None and all(self._b.resolve(name) in self._b.types for name in node.outputs if name):
            self._found.setdefault(key, node.outputs)

    def _content(self, tensor: str) -> tuple:
        array = self._b.constants.get(tensor)
        if array is None or array.nbytes > COMPARED_BYTES or array.dtype.hasobject:
            return (tensor,)
        if tensor not in self._contents:
            digest = blake2b(np.ascontiguousarray(array).tobytes()).digest()
            self._contents[tensor] = array.dtype, array.shape, digest
        return self._contents[tensor]
