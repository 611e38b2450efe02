"""In how many passes a network runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from brickrt.graph.errors import BrickError
from brickrt.graph.passes import stitch
from brickrt.plan.merging import split_moments
from brickrt.plan.stream.swept_tensors import check_resident_units
from tests.support.cpu.streams import plan_of, planner_of
from tests.support.graphs.onnx_models import model, node, tensor

SHAPE = (1, 3, 400, 500)


def norm(kind: str, x: str, y: str) -> list[onnx.NodeProto]:
    """One norm of 8 channels, or what exporters write for it."""
    if kind == "instance":
        return [node("InstanceNormalization", f"{x} one zero", y)]
    if kind == "group":
        return [node("GroupNormalization", f"{x} one zero", y, num_groups=2)]
    if kind == "layer":
        return [node("LayerNormalization", f"{x} pixels", y, axis=1)]
    if kind == "mean and variance":
        return [node("MeanVarianceNormalization", x, y)]
    squared = node("Mul", f"{y}d {y}d", f"{y}p") if kind == "product" else node("Pow", f"{y}d two", f"{y}p")
    return [
        node("ReduceMean", f"{x} axes", f"{y}m"),
        node("Sub", f"{x} {y}m", f"{y}d"),
        squared,
        node("ReduceMean", f"{y}p axes", f"{y}v"),
        node("Add", f"{y}v eps", f"{y}e"),
        node("Sqrt", f"{y}e", f"{y}s"),
        node("Div", f"{y}d {y}s", y),
    ]


def network(kind: str, layers: int) -> onnx.ModelProto:
    """x ─ (conv ─ norm) … ─ y"""
    rng, nodes = np.random.default_rng(0), []
    values = {"one": np.ones(8), "zero": np.zeros(8), "two": 2, "eps": 1e-5, "pixels": np.ones((8, 1, 1))}
    for k in range(layers):
        name = "y" if k == layers - 1 else f"b{k}"
        nodes += [node("Conv", f"b{k - 1} w{k}" if k else "x w0", f"a{k}", pads=[1] * 4), *norm(kind, f"a{k}", name)]
        values[f"w{k}"] = rng.standard_normal((8, 8 if k else 3, 3, 3))
    values = {name: np.asarray(value, np.float32) for name, value in values.items()}
    return model(nodes, [tensor("x", SHAPE)], opset=21, axes=np.array([2, 3]), **values)


def passes(network: onnx.ModelProto) -> int:
    return planner_of(plan_of(network)).network.swept.passes


KINDS = ["instance", "group", "layer", "mean and variance", "power", "product"]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_norm_ends_one_pass(kind: str, layers: int):
    assert passes(network(kind, layers)) == 1 + layers


def test_without_moments_each_ended_two(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(split_moments, "split_moments", lambda graph, layouts, device: (graph, layouts))
    assert passes(network("instance", 2)) == 5


def test_what_runs_between_passes_reads_no_rows_that_are_gone():
    """A plan whose collected tensors are forgotten is refused by the name of a node that reads one of them."""
    found = planner_of(plan_of(network("instance", 1))).network
    check_resident_units(found.graph, found.units, found.swept, found.inplace)
    forgotten = replace(found.swept, collected={})
    with pytest.raises(BrickError, match=r"node .* needs all of '.*' .* at once, which is kept by rows"):
        check_resident_units(found.graph, found.units, forgotten, found.inplace)


@pytest.mark.parametrize(("edge", "refused"), [(8, False), (2, True)])
def test_a_tensor_much_smaller_than_the_largest_may_be_needed_whole(
    edge: int, refused: bool, monkeypatch: pytest.MonkeyPatch
):
    """As in networks that attend between channels where images have an eighth of their edges."""
    monkeypatch.setattr(stitch, "LARGE_IMAGE_BYTES", 2**40)  # or columns would be reduced band by band
    nodes = [
        node("MaxPool", "x", "p", kernel_shape=[edge] * 2, strides=[edge] * 2),
        node("Conv", "p w", "c"),
        node("Softmax", "c", "s", name="columns", axis=2),
        node("ReduceMean", "s axes", "y"),
    ]
    weights = np.zeros((1024, 256, 1, 1), np.float32)
    graph = model(nodes, [tensor("x", (1, 256, 1024, 2048))], opset=18, w=weights, axes=np.array([2, 3]))
    if refused:
        with pytest.raises(BrickError, match=r"'columns' .* needs all of .* 2\.00 GiB, at once"):
            planner_of(plan_of(graph))
        return
    swept = planner_of(plan_of(graph)).network.swept
    assert any(name.startswith("c") for name in swept.collected) and swept.passes == 1
