"""What a user writes; `tests/test_typing.py` shows it to type checkers. It is not run."""

import numpy as np

import brickrt

graph = brickrt.load("model.onnx")
with brickrt.Runtime(graph, device="cpu", strategy="padded", threads=2) as rt:
    outputs: dict[str, np.ndarray] = rt.execute({"x": np.ones((1, 3, 8, 8), np.float32)})
    plan: brickrt.Plan = rt.plans[0]
    stats: brickrt.Stats = rt.stats
    print(outputs["y"].shape, len(plan.subgraphs), stats.run_ms + 1.0, brickrt.__version__.upper())
try:
    rt.execute({})
except brickrt.BrickError as error:
    print(error.args)
