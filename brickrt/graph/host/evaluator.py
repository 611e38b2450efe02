"""ONNX's reference evaluator, with the operators of this package instead of those that it lacks or that are slow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from brickrt.graph.allowance import held_inside
from brickrt.graph.contrib.body import CONTRIB, OPSET, body_of, contributed
from brickrt.graph.host import operators
from brickrt.graph.host.guarded import GuardedNode
from brickrt.graph.host.host_operator import OPERATORS, HostOperator, evaluates, operator_of
from brickrt.graph.onnx_import.element_types import element_type
from brickrt.ops.types import TensorType

for _module in walk_packages(operators.__path__, f"{operators.__name__}."):
    import_module(_module.name)  # which registers the operators in it


@evaluates(HostOperator(elements=None), *sorted(contributed()), domain=CONTRIB)
class _Contributed(OpRun):
    """A contributed operator, as the standard ones that it stands for."""

    def _run(self, *inputs: Any, **_: Any):
        types = [TensorType(x.shape, x.dtype) if isinstance(x, np.ndarray) else None for x in inputs]
        body = body_of(self.onnx_node, types)
        values = dict(zip(body.input, inputs))
        for node in body.node:
            feeds = {name: values[name] for name in node.input if name}
            evaluator = node_evaluator(node, {"": OPSET}, {name: element_type(x) for name, x in feeds.items()})
            values |= dict(zip(node.output, evaluator.run(list(node.output), feeds), strict=True))
        return tuple(values.get(name, _NOTHING) for name in body.output)


_NOTHING = np.empty(0)
"""What stands for an output that the node does not name."""


class HostEvaluator(ReferenceEvaluator):
    """The reference with the operators of this package, in function bodies too: these it evaluates by its own class."""

    def __init__(self, proto: Any, opsets: dict[str, int] | None = None, **options: Any) -> None:
        imports = opsets or {o.domain: o.version for o in getattr(proto, "opset_import", ())}
        options["new_ops"] = _classes(imports.get("", 0))
        super().__init__(proto, opsets, **options)
        self.rt_nodes_ = [GuardedNode(node, operator_of(node.onnx_node)) for node in self.rt_nodes_]

    def run(self, *args: Any, **options: Any) -> Any:
        """The outputs. What nodes give is counted as held until then."""
        with held_inside():
            return super().run(*args, **options)


@cache
def _classes(opset: int) -> list[type[OpRun]]:
    """What computes operators instead of the reference, as it takes it: classes of their names."""
    found = [(key, o.evaluated) for key, o in OPERATORS.items() if o.evaluated is not None and opset in o.opsets]
    return [
        type(op_type, (made,), {"op_domain": domain})
        if isinstance(made, type)
        else type(op_type, (OpRun,), {"op_domain": domain, "_run": staticmethod(made)})
        for (domain, op_type), made in found
    ]


def node_evaluator(node: onnx.NodeProto, opsets: dict[str, int], types: Mapping[str, int | str]) -> HostEvaluator:
    """What evaluates one node, whose inputs have these element types, as `element_type` tells them."""
    inputs = [_value_info(name, kind) for name, kind in types.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    return HostEvaluator(helper.make_graph([node], "host", inputs, outputs), opsets=opsets)


def _value_info(name: str, kind: int | str) -> onnx.ValueInfoProto:
    if not isinstance(kind, int):
        return onnx.ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, kind, None)
