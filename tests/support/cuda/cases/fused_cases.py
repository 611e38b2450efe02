"""Models in whose fused bricks every family of kernels has a part, and the kernels that they have."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from brickrt.ops.cuda.kernel import Kernel
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.merging.build_subgraphs import brick_subgraph
from brickrt.plan.merging.propose_merges import Proposal
from brickrt.plan.merging.split_reductions import attach_partial_reductions
from brickrt.plan.plan import Plan, with_subgraphs
from brickrt.runtime.cuda.schedule.argument_table import ArgumentTable
from brickrt.runtime.lowering.task_graph import TaskGraph
from tests.support.graphs.onnx_models import model, node, tensor

SIZE = (1, 8, 14, 18)
ROWS = (2, 40, 64)


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    """Such that sums stay about as large as what they are of."""
    w = np.random.default_rng(sum(shape) + seed).standard_normal(shape)
    return (w / max(1, np.prod(shape[1:])) ** 0.5).astype(np.float32)


def same(kernel: int, dilation: int = 1) -> dict[str, Any]:
    """A window that keeps height and width."""
    return {"kernel_shape": [kernel] * 2, "pads": [dilation * (kernel // 2)] * 4}


def images() -> onnx.ModelProto:
    """x → 1×1 → softmax of channels → 3×3 of groups, gated → depthwise a → concat of b, c, d, e → dilated → 1×1 → y

    a → max pool → average pool → abs → transposed b
    a → slice → pad c
    a → average pool → resize d
    a → largest of the channels e
    """
    half, two = {"kernel_shape": [2, 2], "strides": [2, 2]}, np.float32([1, 1, 2, 2])
    nodes = [
        node("Conv", "x w1 b1", "a1", kernel_shape=[1, 1]),
        node("Softmax", "a1", "a2", axis=1),
        node("Conv", "a2 w2 b2", "a3", **same(3), group=2),
        node("Sigmoid", "a3", "s3"),
        node("Mul", "a3 s3", "a4"),
        node("Conv", "a4 w3", "a5", **same(3), group=32),
        node("MaxPool", "a5", "a6", **same(3)),
        node("AveragePool", "a6", "p6", **half),
        node("Abs", "p6", "q6"),
        node("ConvTranspose", "q6 w4", "t6", **half),
        node("Slice", "a5 from to axes", "c5"),
        node("Pad", "c5 around", "c6", mode="reflect"),
        node("AveragePool", "a5", "p5", **half),
        node("Resize", "p5 _ two", "r5", mode="linear"),
        node("ReduceMax", "a5", "m5", axes=[1], keepdims=1),
        node("Concat", "t6 c6 r5 m5", "a8", axis=1),
        node("Conv", "a8 w5", "a9", **same(3, 2), dilations=[2, 2]),
        node("Conv", "a9 w6 b6", "y", kernel_shape=[1, 1]),
    ]
    held = {
        "w1": weights(32, 8, 1, 1), "b1": weights(32, seed=1), "w2": weights(32, 16, 3, 3), "b2": weights(32, seed=2),
        "w3": weights(32, 1, 3, 3), "w4": weights(32, 16, 2, 2), "w5": weights(64, 65, 3, 3), "two": two,
        "w6": weights(16, 64, 1, 1), "b6": weights(16, seed=3), "from": np.int64([4, 1]), "to": np.int64([20, 13]),
        "axes": np.int64([1, 2]), "around": np.int64([0, 0, 1, 0, 0, 0, 1, 0]),
    }  # fmt: skip
    return model(nodes, [tensor("x", SIZE)], **held)


def rows() -> onnx.ModelProto:
    """x → norm → product → its squares, as of transformers."""
    nodes = [
        node("LayerNormalization", "x scale shift", "n", axis=-1),
        node("MatMul", "n w", "p"),
        node("Mul", "p p", "y"),
    ]
    held = {"scale": weights(ROWS[-1], seed=1), "shift": weights(ROWS[-1], seed=2), "w": weights(ROWS[-1], 48)}
    return model(nodes, [tensor("x", ROWS)], **held)


def cut_along_channels(plan: Plan) -> Plan:
    """The plan with fused bricks of half as many channels, or columns, where these are whole vectors."""
    cost, made = CostModel(plan.graph, plan.layouts, plan.device, precision=plan.options.precision), []
    for s in plan.subgraphs:
        shape, brick = plan.graph.out(plan.graph.nodes[s.nodes[-1]]).shape, list(s.brick)
        axis = 1 if cost.node_costs[s.nodes[-1]].image else len(shape) - 1
        if s.strategy == "fused" and shape[axis] % 16 == 0:
            brick[axis] = shape[axis] // 2
            s = brick_subgraph(cost, s.nodes, Proposal("fused", tuple(brick), tuple(brick), len(s.nodes)))
        made.append(s)
    return with_subgraphs(plan, tuple(attach_partial_reductions(plan.graph, made, "cuda")))


def kernels_of(tasks: TaskGraph) -> list[Kernel]:
    """The kernels of the fused bricks of a task graph that still has its constants."""
    fused = {k for s in tasks.plan.subgraphs if s.strategy == "fused" for k in s.members}
    table = ArgumentTable(tasks)
    return [each.kernel for i, steps in enumerate(tasks.steps) if steps.node in fused for each in table.of(i)]
