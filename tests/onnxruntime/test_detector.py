"""A program that was written for ONNX Runtime runs with its import changed, and finds the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.support import detector_program
from tests.support.graphs.onnx_models import model, node, tensor

SIZE, CLASSES = 64, 3
PROGRAM = Path(detector_program.__file__).read_text("utf-8")
CELLS = (SIZE // 8) ** 2


def network(batch: int | str) -> onnx.ModelProto:
    """images → three convolutions of stride 2 with SiLU → 1×1 → found [batch, cells, 4 + classes], whose centres lie
    around their cells, with sizes by exp and scores by sigmoid"""
    rng, nodes, weights = np.random.default_rng(0), [], dict[str, np.ndarray]()
    for k, (into, out) in enumerate([(3, 8), (8, 16), (16, 16)]):
        weights[f"w{k}"] = rng.normal(0, 2 / np.sqrt(9 * into), (out, into, 3, 3)).astype("f4")
        at = "x" if k == 0 else f"a{k - 1}"
        nodes += [node("Conv", f"{at} w{k}", f"c{k}", strides=[2, 2], pads=[1, 1, 1, 1])]
        nodes += [node("Sigmoid", f"c{k}", f"s{k}"), node("Mul", f"c{k} s{k}", f"a{k}")]
    weights["head"] = rng.normal(0, 1, (4 + CLASSES, 16, 1, 1)).astype("f4")
    cells = np.stack(np.meshgrid(*2 * [np.arange(SIZE // 8)], indexing="xy"), -1).reshape(-1, 2)
    nodes += [
        node("Conv", "a2 head", "h"),
        node("Reshape", "h flat", "f"),
        node("Transpose", "f", "t", perm=[0, 2, 1]),
        node("Split", "t parts", "where size scores", axis=2),
        *(node("Sigmoid", name, f"{name}_") for name in ("where", "scores")),
        *(node("Mul", "where_ eight", "moved"), node("Add", "moved cells", "centre")),
        *(node("Tanh", "size", "size_"), node("Exp", "size_", "e"), node("Mul", "e eight", "edges")),
        node("Concat", "centre edges scores_", "found", axis=2),
    ]
    made = model(
        nodes,
        [tensor("images", (batch, 3, SIZE, SIZE))],
        [tensor("found", (batch, CELLS, 4 + CLASSES))],
        flat=np.array([0, 4 + CLASSES, CELLS]),
        parts=np.array([2, 2, CLASSES]),
        eight=np.float32(8),
        cells=(8 * cells).astype("f4"),
        **weights,
    )
    made.graph.node[0].input[0] = "images"
    made.metadata_props.add(key="names", value="cat,dog,boat")
    return made


def detector(changed: bool, path: Path):
    """The class of the program; its import is changed, or not."""
    old, new = "import onnxruntime as ort", "import brickrt.onnxruntime as ort"
    assert PROGRAM.count(old) == 1
    names: dict[str, object] = {}
    exec(compile(PROGRAM.replace(old, new) if changed else PROGRAM, "program", "exec"), names)
    return names["Detector"](path)


@pytest.mark.parametrize("batch", [1, "batch"])
def test_a_detector_with_its_import_changed(batch, tmp_path):
    onnx.save(network(batch), tmp_path / "detector.onnx")
    rng = np.random.default_rng(1)
    pictures = [rng.integers(0, 256, (*size, 3), np.uint8) for size in ((48, 80), (64, 64))]
    mine, theirs = (detector(changed, tmp_path / "detector.onnx")(pictures) for changed in (True, False))
    for (boxes, scores, names), (wanted, sure, known) in zip(mine, theirs, strict=True):
        assert len(boxes) > 3 and names == known
        np.testing.assert_allclose(boxes, wanted, atol=1e-3)
        np.testing.assert_allclose(scores, sure, atol=1e-5)
