"""The examples do what they say, on small inputs and networks."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import nibabel as nib
import numpy as np
import onnx
import pytest
from PIL import Image

from brickrt import zoo

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> ModuleType:
    """An example as a module, none of which runs by itself."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested_and_told_of():
    names = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text("utf-8")
    here = Path(__file__).read_text("utf-8")
    assert names and all(name in page and Path(name).stem in here for name in names)


def test_denoise_photo():
    clean = np.linspace(60, 200, 40 * 32 * 3).reshape(40, 32, 3)
    noisy = np.clip(clean + np.random.default_rng(0).normal(0, 25, clean.shape), 0, 255).astype(np.uint8)
    result = np.asarray(example("denoise_photo").denoised(Image.fromarray(noisy)), np.float64)
    assert result.shape == clean.shape
    assert np.square(result - clean).mean() < np.square(noisy - clean).mean() / 4


def test_label_folder(tmp_path):
    onnx.save(zoo.build("mobilenetv2", size=32), tmp_path / "m.onnx")
    (tmp_path / "photos").mkdir()
    for name in ("b.png", "a.jpg"):
        Image.effect_noise((50, 40), 60).convert("RGB").save(tmp_path / "photos" / name)
    found = list(example("label_folder").labelled(tmp_path / "m.onnx", tmp_path / "photos"))
    assert [name for name, _ in found] == ["a.jpg", "b.png"]
    for _, classes in found:
        shares = [share for _, share in classes]
        assert len(classes) == 5 and shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1


def test_segment_volume(tmp_path):
    onnx.save(zoo.build("unet3d", size=0, width=4, levels=1), tmp_path / "m.onnx")
    values = np.random.default_rng(0).normal(0, 400, (8, 12, 16)).astype(np.int16)
    affine = np.diag([2.0, 3.0, 4.0, 1.0])
    labels = example("segment_volume").segmented(tmp_path / "m.onnx", nib.Nifti1Image(values, affine))
    assert labels.shape == values.shape and np.array_equal(labels.affine, affine)
    assert set(np.unique(np.asarray(labels.dataobj))) <= {0, 1}


def test_quantized():
    """A chain of convolutions, as the eight inputs of the example are more than a small test needs."""
    module, rng = example("quantized"), np.random.default_rng(0)
    model = zoo.build("unet", size=16, width=4, levels=1)
    feeds = [{"x": rng.standard_normal((1, 3, 16, 16), np.float32)} for _ in range(2)]
    result, ratio = module.quantized(model, feeds)
    assert any(node.op_type == "QuantizeLinear" for node in result.graph.node)
    assert ratio > 15


def test_any_size():
    module = example("any_size")
    with module.brickrt.Runtime(module.network(blocks=1, width=8)) as runtime:
        assert all(second > 0 for size in ((32, 48), (24, 40)) for second in module.seconds(runtime, size))


@pytest.mark.parametrize("name", ["first_steps.ipynb"])
def test_the_notebook_runs(name):
    notebook = json.loads((EXAMPLES / name).read_text("utf-8"))
    assert notebook["nbformat"] == 4
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec(compile("".join(cell["source"]), name, "exec"), names)
    assert names["y"].shape == (1, 3, 32, 48)  # type: ignore[attr-defined]
