"""`ContributedBody`: the standard operators that a contributed one stands for, written down while the types of its
inputs are known, and `defines`, which registers who writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from brickrt.graph.errors import described
from brickrt.ops.types import TensorType

CONTRIB = "com.microsoft"
"""The domain of ONNX Runtime's contributed operators."""
OPSET = 21
"""Of the standard operators in bodies, whatever opset the model has."""


class ContributedBody:
    """The nodes of a contributed operator. Tensors go by name; input k is `inputs[k]`, '' where it is left out."""

    def __init__(self, node: onnx.NodeProto, types: Sequence[TensorType | None]) -> None:
        self.op_type = node.op_type
        self.inputs = [f"input {k}" if name else "" for k, name in enumerate(node.input)]
        self.wanted = [bool(name) for name in node.output]
        self.attributes = {a.name: _value(a) for a in node.attribute}
        self._types = types
        self._nodes: list[onnx.NodeProto] = []
        self._outputs = [""] * len(node.output)

    def input(self, k: int) -> str:
        """The name of an input, '' where it is left out."""
        return self.inputs[k] if k < len(self.inputs) else ""

    def type(self, k: int) -> TensorType:
        """The type of an input. Raises ValueError where it is left out or no tensor."""
        found = self._types[k] if k < len(self._types) else None
        if found is None:
            raise ValueError(f"input {k} is left out, which the operator needs")
        return found

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value. Raises ValueError where it is missing and has no default."""
        found = self.attributes.get(name, default)
        if found is None:
            raise ValueError(f"attribute {name} is missing")
        return found

    def kept(self, *names: str) -> dict[str, Any]:
        """Those of these attributes that the node has, for a node that means the same by them."""
        return {name: self.attributes[name] for name in names if name in self.attributes}

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds a standard operator of one output, whose name is returned."""
        return self.add_all(kind, inputs, 1, **attributes)[0]

    def add_all(self, kind: str, inputs: Iterable[str], count: int, **attributes: Any) -> list[str]:
        """Adds a standard operator of `count` outputs, whose names are returned."""
        at = len(self._nodes)
        outputs = [f"{kind} {at}" if count == 1 else f"{kind} {at}.{k}" for k in range(count)]
        self._nodes.append(helper.make_node(kind, list(inputs), outputs, name=f"{kind}_{at}", **attributes))
        return outputs

    def constant(self, array: np.ndarray) -> str:
        """A constant."""
        return self.add("Constant", value=numpy_helper.from_array(np.asarray(array)))

    def integers(self, *values: int) -> str:
        """A constant vector of int64, such as a shape or axes."""
        return self.constant(np.array(values, np.int64))

    def number(self, value: float, like: int) -> str:
        """A scalar constant of the element type of an input."""
        return self.constant(np.array(value, self.type(like).dtype))

    def wants(self, k: int) -> bool:
        """Whether the node names its output k."""
        return k < len(self.wanted) and self.wanted[k]

    def give(self, name: str, k: int = 0) -> None:
        """Makes a tensor the node's output k, if the node has that many."""
        if k < len(self._outputs):
            taken = name in self._outputs or name in self.inputs
            self._outputs[k] = self.add("Identity", name) if taken else name

    def function(self) -> onnx.FunctionProto:
        """The body as an ONNX function. Outputs that nothing was given for are named by no node."""
        inputs = [name or f"no input {k}" for k, name in enumerate(self.inputs)]
        outputs = [name or f"no output {k}" for k, name in enumerate(self._outputs)]
        opset = [helper.make_opsetid("", OPSET)]
        return helper.make_function(CONTRIB, self.op_type, inputs, outputs, self._nodes, opset)


UNDER_STANDARD_NAMES = frozenset(("LayerNormalization", "SimplifiedLayerNormalization"))
"""Contributed operators that ONNX Runtime writes in the standard domain, whatever opset the model has."""

Definition = Callable[[ContributedBody], None]

_DEFINITIONS: dict[str, tuple[Iterable[int], Definition]] = {}


def defines(*op_types: str, needs: Iterable[int]) -> Callable[[Definition], Definition]:
    """Registers a function that writes the bodies of operators, of which the inputs `needs` must be there."""

    def register(function: Definition) -> Definition:
        for op_type in op_types:
            _DEFINITIONS[op_type] = needs, function
        return function

    return register


def contributed() -> frozenset[str]:
    """The operators that have a definition."""
    return frozenset(_DEFINITIONS)


def body_of(node: onnx.NodeProto, types: Sequence[TensorType | None]) -> onnx.FunctionProto:
    """What a contributed node stands for, with inputs of these types. Raises ValueError where it makes no sense."""
    needs, write = _DEFINITIONS[node.op_type]
    body = ContributedBody(node, types)
    missing = next((k for k in needs if not body.input(k)), None)
    if missing is not None:
        raise ValueError(f"input {missing} is left out, which the operator needs")
    try:
        write(body)
    except (ArithmeticError, IndexError, TypeError) as e:
        raise ValueError(f"its attributes do not fit its inputs ({described(e)})") from e
    return body.function()


def _value(attribute: AttributeProto) -> Any:
    """An attribute as a Python value, text decoded."""
    value = helper.get_attribute_value(attribute)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
