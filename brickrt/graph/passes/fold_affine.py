"""Folds scales and shifts per channel after a convolution or matrix product into its weights and bias.

So batch normalization costs nothing: it is a multiplication and an addition with constants of [1, C, 1, …].
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brickrt.graph.derived_constants import DERIVED
from brickrt.graph.ir import Node
from brickrt.graph.rewriter import Rewriter, origins
from brickrt.ops.base import Op
from brickrt.ops.expr import Apply, Arg, Const, Expr
from brickrt.ops.operators.block_matmul import BlockMatMul
from brickrt.ops.operators.conv import ConvTranspose
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.product import Product

Affine = tuple[np.ndarray, np.ndarray]
"""Scale and shift in float64, each [channels]."""


def fold_affine(rewriter: Rewriter) -> None:
    """Folds chains of affine Maps into the node they follow, as long as nobody else reads what lies between."""
    for node in rewriter.walk():
        merged: Node | None = node
        while merged is not None:
            merged = _folded(rewriter, merged)


def _folded(rewriter: Rewriter, node: Node) -> Node | None:
    """The node with its only reader folded in, None if that is impossible."""
    if not isinstance(node.op, Product) or node.op.epilogue is not None:
        return None
    reader, dtype = rewriter.only_reader(node.output), rewriter.types[node.output].dtype
    if (
        reader is None
        or dtype not in (np.float32, np.float64)
        or rewriter.types[reader.output] != rewriter.types[node.output]
    ):
        return None
    affine = _affine(rewriter, reader, node)
    operands = None if affine is None else _operands(rewriter, node, affine)
    if operands is None:
        return None
    op = replace(node.op, bias=len(operands) == 3)
    merged = replace(node, op=op, inputs=operands, output=reader.output, origin=origins([node, reader]))
    rewriter.put(merged)
    rewriter.remove(node.output)
    return merged


def _affine(rewriter: Rewriter, reader: Node, node: Node) -> Affine | None:
    """Scale and shift that the reader applies to channels of the node's output; None where it does anything else."""
    return _affine_of(rewriter, reader, reader.op.expr, node) if isinstance(reader.op, Map) else None


def _affine_of(rewriter: Rewriter, reader: Node, expr: Expr, node: Node) -> Affine | None:
    """The same of an expression of the reader's operands."""
    if isinstance(expr, Arg) and reader.inputs[expr.index] == node.output:
        channels = _channels(rewriter, node)
        return np.ones(channels), np.zeros(channels)
    if not isinstance(expr, Apply) or expr.fn not in ("add", "sub", "mul", "div") or len(expr.args) != 2:
        return None
    mine = [isinstance(a, Apply) or (isinstance(a, Arg) and reader.inputs[a.index] == node.output) for a in expr.args]
    if sum(mine) != 1:
        return None
    operand = _per_channel(rewriter, reader, expr.args[mine.index(False)], node)
    inner = None if operand is None else _affine_of(rewriter, reader, expr.args[mine.index(True)], node)
    return None if operand is None or inner is None else _applied(expr.fn, mine[0], inner, operand)


def _applied(fn: str, first: bool, inner: Affine, operand: np.ndarray) -> Affine | None:
    """Scale and shift of `inner` and then `fn` with an operand, of which `inner` is the first or the second one."""
    scale, shift = inner
    match fn, first:
        case "add", _:
            return scale, shift + operand
        case "mul", _:
            return scale * operand, shift * operand
        case "sub", True:
            return scale, shift - operand
        case "sub", False:
            return -scale, operand - shift
        case "div", True if np.all(operand):
            return scale / operand, shift / operand
    return None


def _per_channel(rewriter: Rewriter, reader: Node, operand: Expr, node: Node) -> np.ndarray | None:
    """A constant operand as float64 [channels]; None if it varies along anything else."""
    channels, shape = _channels(rewriter, node), rewriter.types[node.output].shape
    if isinstance(operand, Const):
        return np.full(channels, operand.value, np.float64)
    array = rewriter.constants.get(reader.inputs[operand.index]) if isinstance(operand, Arg) else None
    axis = len(shape) - 1 if isinstance(node.op, MatMul) else 1
    if array is None:
        return None
    full = (1,) * (len(shape) - array.ndim) + array.shape
    if any(d != 1 for k, d in enumerate(full) if k != axis):
        return None
    return np.broadcast_to(array.reshape(-1).astype(np.float64), (channels,))


def _operands(rewriter: Rewriter, node: Node, affine: Affine) -> tuple[str, ...] | None:
    """The node's inputs with new weights and bias; None where what must change is no constant."""
    scale, shift = affine
    if isinstance(node.op, BlockMatMul):
        return None  # its epilogue scales
    x, weights, *biases = node.inputs
    bias = rewriter.constants.get(biases[0]) if biases else np.zeros(len(scale))
    if np.any(scale != 1):
        w = rewriter.constants.get(weights)
        if w is None or bias is None:
            return None
        weights = rewriter.constant(_kept_scaled(w, _along_channels(node.op, scale, w.shape)), f"{node.name}/weights")
    if not biases and not np.any(shift):
        return (x, weights)
    if bias is None:
        return None
    moved = (bias.astype(np.float64) * scale + shift).astype(rewriter.types[node.output].dtype)
    return (x, weights, rewriter.constant(moved, f"{node.name}/bias"))


def _kept_scaled(w: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """`_scaled`, as it was made for another size of the model."""
    return DERIVED.get(("scaled", scale.shape, scale.tobytes()), (w,), lambda: _scaled(w, scale))


def _scaled(w: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """w times scale in w's type, computed in float64 a piece at a time, so that memory does not grow."""
    return np.multiply(w, scale, out=np.empty_like(w), dtype=np.float64, casting="same_kind")


def _along_channels(op: Op, scale: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The scale of the output channels in the shape of weights of this operator."""
    if isinstance(op, MatMul):
        return scale
    ones = (1,) * (len(shape) - 2)
    if not isinstance(op, ConvTranspose):
        return scale.reshape(-1, 1, *ones)
    rows = np.repeat(scale.reshape(op.groups, shape[1]), shape[0] // op.groups, axis=0)
    return rows.reshape(*shape[:2], *ones)


def _channels(rewriter: Rewriter, node: Node) -> int:
    shape = rewriter.types[node.output].shape
    return shape[-1] if isinstance(node.op, MatMul) else shape[1]
