"""What is known of the runs that a dashboard shows."""

from __future__ import annotations

import numpy as np
import onnx

from brickrt import Runtime
from brickrt.cli.layerwise_traffic import layerwise_traffic
from brickrt.dashboard.live.watched_runs import WatchedRuns


def test_stages_compiled_later_count_in_memory_and_traffic():
    """x → Relu → NonZero (on the host) → Cast → Relu"""
    x = np.ones((1, 3, 8, 8), np.float32)
    names = "xabcy"
    ops = [("Relu", {}), ("NonZero", {}), ("Cast", {"to": onnx.TensorProto.FLOAT}), ("Relu", {})]
    nodes = [onnx.helper.make_node(op, [a], [b], **more) for (op, more), a, b in zip(ops, names, names[1:])]
    ends = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in (("x", x.shape), ("y", None))]
    graph = onnx.helper.make_graph(nodes, "late", ends[:1], ends[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    runtime, watched = Runtime(model, threads=1), WatchedRuns("late", 1)
    prepared = runtime.prepare({"x": x})
    watched.compiled(prepared, layerwise_traffic(prepared))
    before = watched.peak_bytes, watched.projected_bytes
    runtime.execute({"x": x})
    watched.compiled(runtime.plan, layerwise_traffic(runtime.plan))
    assert len(runtime.plan.programs) == 2
    assert watched.peak_bytes > before[0] > 0 and watched.projected_bytes > before[1] > 0
