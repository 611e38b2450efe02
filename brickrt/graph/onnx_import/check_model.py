"""Checks that a model is valid ONNX of known operators; errors are one line that says what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import onnx
from onnx import checker, defs

import brickrt.graph.contrib  # noqa: F401  (registers the definitions)
from brickrt.graph.contrib.body import CONTRIB, contributed
from brickrt.graph.errors import ModelError
from brickrt.graph.onnx_import.protobuf import bodies, standard_domain

OLDEST_OPSET = 6
DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.preview")


def check_header(model: onnx.ModelProto, label: str) -> dict[str, int]:
    """The opset version of each domain. Raises ModelError for none, too old or too new ones."""
    if not model.ir_version and not model.graph.node:
        raise ModelError(f"{label}: not an ONNX model: give the .onnx file that the exporter wrote")
    opsets: dict[str, int] = {}
    for entry in model.opset_import:
        domain = standard_domain(entry.domain)
        opsets[domain] = max(entry.version, opsets.get(domain, 0))
    if not opsets:
        raise ModelError(f"{label}: the model names no opset: export it again with an opset of {OLDEST_OPSET} or later")
    if opsets.get("", OLDEST_OPSET) < OLDEST_OPSET:
        raise ModelError(
            f"{label}: opset {opsets['']} is older than {OLDEST_OPSET}: "
            "convert the model with onnx.version_converter, or export it again"
        )
    for domain, version in opsets.items():
        newest = _newest(domain)
        if newest and version > newest:  # of the schemas there were; a program may have registered more
            _newest.cache_clear()
            newest = _newest(domain)
        if newest and version > newest:
            raise ModelError(
                f"{label}: opset {version} of domain '{domain or 'ai.onnx'}' is newer than the {newest} that "
                f"onnx {onnx.__version__} knows: upgrade onnx, or export with opset {newest}"
            )
    return opsets


def check_graph(light: onnx.ModelProto, opsets: dict[str, int], label: str) -> None:
    """Raises ModelError for unknown domains and operators and invalid graphs. `light` is the model without weights."""
    for node in _all_nodes(light.graph):
        _check_node(node, opsets, label)
    try:
        checker.check_model(_typed(light))
    except checker.ValidationError as e:
        raise ModelError(f"{label}: invalid model: {_first_line(e)}: export it again") from e


def _typed(light: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a type for every input and output: the checker insists, though nothing needs them."""
    model = onnx.ModelProto()
    model.CopyFrom(light)
    for value in (*model.graph.input, *model.graph.output):
        if value.type.WhichOneof("value") in (None, "tensor_type"):
            tensor = value.type.tensor_type
            tensor.elem_type = tensor.elem_type or onnx.TensorProto.FLOAT
            tensor.shape.SetInParent()
    return model


def _check_node(node: onnx.NodeProto, opsets: dict[str, int], label: str) -> None:
    domain = standard_domain(node.domain)
    what = f"node '{node.name or node.output[0]}'" if node.output else f"node '{node.name}'"
    if domain == CONTRIB and node.op_type in contributed():
        return
    if domain not in DOMAINS:
        raise ModelError(
            f"{label}: {what}: operator {node.op_type} of domain '{domain}' is unknown: "
            "export the model with standard ONNX operators, or with the function's body included"
        )
    if domain not in opsets:
        raise ModelError(
            f"{label}: {what}: the model imports no opset of domain '{domain or 'ai.onnx'}': export it again"
        )
    if not defs.has(node.op_type, opsets[domain], domain):
        raise ModelError(
            f"{label}: {what}: operator {node.op_type} does not exist in opset {opsets[domain]} "
            f"of domain '{domain or 'ai.onnx'}': check its spelling and the opset"
        )


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of all bodies inside."""
    for node in graph.node:
        yield node
        for sub in bodies(node):
            yield from _all_nodes(sub)


@cache
def _newest(domain: str) -> int:
    """The newest opset of a domain, 0 where ONNX has none; to look through all schemas takes over a millisecond."""
    if domain == "":
        return defs.onnx_opset_version()
    return max((s.since_version for s in defs.get_all_schemas() if s.domain == domain), default=0)


def _first_line(error: Exception) -> str:
    return next((line.strip(" .") for line in str(error).splitlines() if line.strip()), "no reason given")
