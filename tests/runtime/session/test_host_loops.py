"""Compiled loops of the host are shared by the threads of a run, whatever number of them gives the same bits."""

from __future__ import annotations

import numpy as np

from brickrt.runtime.cpu.workers.thread_pool import ThreadPool
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import by_onnxruntime, model, node, tensor


def test_regions_by_threads(monkeypatch):
    """x → Relu, rois → RoiAlign → r"""
    rng = np.random.default_rng(0)
    nodes = [
        node("Relu", "x", "a"),
        node("RoiAlign", "a rois images", "r", output_height=3, output_width=5, sampling_ratio=2),
    ]
    inputs = [
        tensor("x", [2, 20, 12, 14]),
        tensor("rois", [9, 4]),
        tensor("images", [9], np.int64),
    ]
    proto = model(nodes, inputs, "r", opset=16)
    feeds = {one.name: np.zeros([d.dim_value for d in one.type.tensor_type.shape.dim], np.float32) for one in inputs}
    feeds = {name: rng.standard_normal(a.shape).astype(np.float32) for name, a in feeds.items()}
    feeds |= {"images": rng.integers(0, 2, 9), "rois": np.sort(rng.uniform(0, 12, (9, 2, 2)), 1).reshape(9, 4)}
    feeds["rois"] = feeds["rois"].astype(np.float32)
    jobs, run = [], ThreadPool.run
    monkeypatch.setattr(ThreadPool, "run", lambda self, one: (jobs.append(one.n), run(self, one))[1])
    alone = Runtime(proto, device="cpu", threads=1).execute(feeds)
    assert set(jobs) == {1}
    for threads in (2, 5):
        jobs.clear()
        shared = Runtime(proto, device="cpu", threads=threads).execute(feeds)
        assert jobs.count(threads) >= 3  # a program, the image turned, regions
        for name, value in by_onnxruntime(proto, feeds).items():
            np.testing.assert_array_equal(shared[name], alone[name])
            np.testing.assert_allclose(alone[name], value, 1e-4, 1e-5)
