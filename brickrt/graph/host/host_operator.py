"""What is known of operators that run on the host. Each says it once: where its function stands, or in
`operators/of_reference/` where ONNX's reference computes it. `evaluator.py` imports all modules in `operators/`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import helper

from brickrt.graph.host.node_arrays import Arrays
from brickrt.graph.onnx_import.protobuf import standard_domain

Attributes = dict[str, Any]
Evaluated = TypeVar("Evaluated", bound=Callable[..., Any])

PRODUCTS_PER_SECOND = 1 << 32
"""Products of float32 and float64, as a library for matrices computes them with one core."""
SLOW_PRODUCTS_PER_SECOND = 1 << 29
"""Products of other types, and sums that are no matrix products, which NumPy computes one by one."""
USUAL_TEMPORARIES = 3
"""Arrays of the size of its inputs and outputs that a node makes, itself in NumPy's terms."""


@dataclass(frozen=True)
class HostOperator:
    """What is known of an operator. What counts takes the node's arrays and attributes, and may fail where they make no
    sense: running the node says what is wrong in better words."""

    elements: Callable[[Arrays, Attributes], int] | None
    """Elements of the first output, at most; None where they are not far more than the inputs have, or not known."""
    products: Callable[[Arrays, Attributes], float] | None = None
    """Products that it computes at least, where they may take long. Nothing interrupts a call of NumPy, so it is asked
    before."""
    by_library: bool = True
    """Whether a library for matrices computes those of floats."""
    temporaries: int = USUAL_TEMPORARIES
    """Arrays of the size of inputs and outputs together, in which they and all between are; 0 for views."""
    working_bytes: Callable[[Arrays, Attributes, int, float], float] | None = None
    """Bytes of the outputs, of which the first has the number given, and of all between, where they are known better
    than the usual number, which is given too."""
    check: Callable[[onnx.NodeProto, Sequence[Any]], None] | None = None
    """Raises BrickError for values that a node cannot have, before it is asked how much they take."""
    evaluated: Callable[..., Any] | None = None
    """What computes it instead of ONNX's reference: a function of inputs and attributes, or a class like those of the
    reference, which sees the node too."""
    opsets: range = range(sys.maxsize)
    """The versions of the standard operators in which it does."""

    def most_elements(self, node: onnx.NodeProto, arrays: Arrays) -> int:
        """Elements of the first output, an upper bound; 0 where they are not far more than the inputs have, or not
        known. ONNX's own inference is native code, which broken models bring down."""
        return int(_counted(self.elements, node, arrays) or 0)

    def seconds(self, node: onnx.NodeProto, arrays: Arrays) -> float:
        """Seconds that the node's products take at least; 0 where there are none, or it makes no sense."""
        count = float(_counted(self.products, node, arrays) or 0)
        quick = self.by_library and arrays and arrays[0] is not None and arrays[0].dtype in (np.float32, np.float64)
        return count / (PRODUCTS_PER_SECOND if quick else SLOW_PRODUCTS_PER_SECOND)

    def needed_bytes(self, node: onnx.NodeProto, arrays: Arrays, made: int, read: int) -> float:
        """Bytes of the outputs, of which the first has `made`, and of what the node computes on its way there from so
        many that it reads."""
        usual = self.temporaries * (made + read)
        known = _counted(self.working_bytes, node, arrays, made, usual) if arrays and arrays[0] is not None else None
        return usual if known is None else known


def _counted(count: Callable[..., float] | None, node: onnx.NodeProto, arrays: Arrays, *more: float) -> float | None:
    """What counts the node's elements, products or bytes, asked; None where there is nothing that does, or it fails."""
    if count is None:
        return None
    try:
        return count(arrays, {a.name: helper.get_attribute_value(a) for a in node.attribute}, *more)
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None  # running the node says what is wrong in better words


OPERATORS: dict[tuple[str, str], HostOperator] = {}
"""By domain and type."""
_UNKNOWN = HostOperator(elements=None)


def register(operator: HostOperator, *op_types: str, domain: str = "") -> None:
    """Makes known what these operators have in common. Raises ValueError where something is known of one already."""
    for op_type in op_types:
        if (domain, op_type) in OPERATORS:
            raise ValueError(f"{op_type} is registered twice: say what is known of it in one place")
        OPERATORS[domain, op_type] = operator


def evaluates(operator: HostOperator, *op_types: str, domain: str = "") -> Callable[[Evaluated], Evaluated]:
    """Registers what computes these operators, with what else is known of them."""

    def registered(evaluated: Evaluated) -> Evaluated:
        register(replace(operator, evaluated=evaluated), *op_types, domain=domain)
        return evaluated

    return registered


def operator_of(node: onnx.NodeProto) -> HostOperator:
    """What is known of a node's operator."""
    return OPERATORS.get((standard_domain(node.domain), node.op_type), _UNKNOWN)
