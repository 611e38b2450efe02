"""Nodes of ONNX's reference that ask before they run: whether the run goes on, and whether memory has room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import defs

from brickrt.graph.allowance import allowance, hold
from brickrt.graph.contrib.body import CONTRIB
from brickrt.graph.errors import BrickError
from brickrt.graph.host.host_operator import HostOperator
from brickrt.graph.host.node_arrays import memory_of
from brickrt.graph.room import UNASKED_BYTES, own_bytes, require_bytes
from brickrt.graph.time_budget import TooLong, at_calls

_ask: ContextVar[Callable[[], None] | None] = ContextVar("ask", default=None)


@contextmanager
def asking(ask: Callable[[], None]) -> Iterator[None]:
    """Inside, `ask` is called before each node that the reference runs, also in loops; what it raises ends the run."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def ask_whether_to_go_on() -> None:
    """Raises what the function given to `asking` raises."""
    ask = _ask.get()
    if ask is not None:
        ask()


class GuardedNode:
    """A node of the reference, of which nothing else changes."""

    def __init__(self, node: Any, operator: HostOperator) -> None:
        self._node, self._operator = node, operator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def run(self, *inputs: Any, **more: Any) -> tuple[Any, ...]:
        """Runs the node. Raises BrickError where there is no room for it or it would compute too long."""
        ask_whether_to_go_on()
        proto = self._node.onnx_node
        arrays = [x if isinstance(x, np.ndarray) else None for x in inputs]
        if self._operator.check is not None:
            self._operator.check(proto, inputs)
        _check_kinds(proto, inputs)
        if proto.op_type in CONTROL or proto.domain == CONTRIB:
            return self._node.run(*inputs, **more)
        heavy = _require(self._operator, proto, arrays)
        ask = _ask.get()
        with at_calls(ask) if heavy and ask is not None else nullcontext():
            outputs = self._node.run(*inputs, **more)
        given = [x for x in arrays if x is not None]
        hold(sum(memory_of(y) for y in outputs if isinstance(y, np.ndarray) and own_bytes(y, given)))
        return outputs


def _check_kinds(proto: onnx.NodeProto, inputs: Sequence[Any]) -> None:
    """Raises BrickError for a tensor where the operator takes a sequence, and the reverse: the reference takes either
    for the other, a tensor for the sequence of its rows."""
    for name, kinds, value in zip(proto.input, _kinds(proto.domain, proto.op_type), inputs):
        given = "seq" if isinstance(value, list) else "tensor" if isinstance(value, np.ndarray) else ""
        if given and kinds and given not in kinds:
            raise BrickError(
                f"{proto.op_type} node '{proto.name}' takes a {'tensor' if given == 'seq' else 'sequence'}, and "
                f"'{name}' is a {'sequence' if given == 'seq' else 'tensor'}: give it the other"
            )


@cache
def _kinds(domain: str, op_type: str) -> tuple[frozenset[str], ...]:
    """What each input of a standard operator may be, `tensor` and `seq`; nothing where it may be anything."""
    if not defs.has(op_type, domain):
        return ()
    return tuple(
        frozenset()
        if any(t.startswith(("optional", "map", "sparse")) for t in one.types)
        else frozenset(t.partition("(")[0] for t in one.types)
        for one in defs.get_schema(op_type, domain=domain).inputs
    )


def _require(operator: HostOperator, proto: onnx.NodeProto, arrays: Sequence[np.ndarray | None]) -> bool:
    """Raises BrickError where a node has no room or takes too long; whether it may take long in Python's loops."""
    what, given = f"{proto.op_type} node '{proto.name}'", [x for x in arrays if x is not None]
    elements = operator.most_elements(proto, arrays)
    largest = max((x.itemsize for x in given), default=4)
    if elements:
        require_bytes(elements * largest, f"{what} gives {elements} elements, which")
    allowed = allowance()
    if allowed is not None:
        read = sum(memory_of(x) for x in given)
        wide = max((memory_of(x) // max(1, x.size) for x in given), default=8)
        between = operator.needed_bytes(proto, arrays, elements * wide, read)
        if between > UNASKED_BYTES:
            require_bytes(between, f"{what}, with all that it needs while it computes,")
        seconds = operator.seconds(proto, arrays)
        if _ask.get() is None and seconds > FOLDED_SECONDS:
            raise TooLong
        allowed.require_seconds(seconds, what)
    return max(elements, *(x.size for x in given), *_integers_of(proto), 0) > LIGHT_ELEMENTS


def _integers_of(node: onnx.NodeProto) -> Iterator[int]:
    """The integers among a node's attributes."""
    for a in node.attribute:
        yield a.i
        yield from a.ints


LIGHT_ELEMENTS = 1 << 14
"""Elements for which no loop in Python takes long: it is left at its end."""
FOLDED_SECONDS = 2.0
"""What a call of NumPy may take before the model runs, where nobody asks."""
CONTROL = frozenset(("If", "Loop", "Scan"))
"""Operators that only run others, which are guarded themselves, as are those that contributed ones stand for."""
