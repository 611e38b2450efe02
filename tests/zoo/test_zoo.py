"""Every network of the zoo is valid ONNX with sane numbers, whatever the batch, and refuses what it cannot take."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from brickrt import zoo
from tests.support.zoo_networks import SMALLEST, slim_model

Feeds = dict[str, np.ndarray]

# Shapes of outputs behind the batch, of sizes in SMALLEST; the others give 1000 scores, or slim ones a quarter of them.
OUTPUTS: dict[str, tuple[int, ...]] = {
    "bert": (7, 96),
    "bsrn": (3, 60, 60),
    "conformer": (3, 256),
    "darknet53": (250,),
    "deepcam": (3, 32, 48),
    "nafnet": (3, 8, 8),
    "nerf": (5, 4),
    "resnet34-3d": (400,),
    "restormer": (3, 8, 8),
    "unet": (1, 16, 16),
    "unet3d": (1, 16, 16, 16),
    "vgg16": (250,),
}
# What the first input has beside batch and space, where not 3 channels.
CHANNELS = {"bert": 0, "conformer": 80, "deepcam": 16, "unet3d": 1}
# The highest frequency of what a network encodes its inputs as, by which it moves more than they do.
FREQUENCY = {"nerf": 2**9}


@dataclass(frozen=True)
class ZooCase:
    """A network with a way to run it, an input and the output for it."""

    model: onnx.ModelProto
    run: Callable[[Feeds], np.ndarray]
    feeds: Feeds
    y: np.ndarray

    @property
    def name(self) -> str:
        """The network's name."""
        return self.model.graph.name

    def moved(self, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """The output for a first input that is changed so."""
        first = self.model.graph.input[0].name
        return self.run(self.feeds | {first: change(self.feeds[first])})


@pytest.fixture(scope="module", params=SMALLEST)
def case(request: pytest.FixtureRequest) -> ZooCase:
    """Each network in turn, at its smallest size; pytest runs all tests of one before it makes the next. Those of most
    weights are slim, BERT in all, the others in channels alone: to make and check 200 MB takes longer than all else."""
    build = slim_model if request.param in ("bert", "darknet53", "deepcam", "resnet34-3d", "vgg16") else zoo.build
    model = build(request.param, size=SMALLEST[request.param])
    run = _runner(model)
    feeds = zoo.feeds(model, seed=1)
    return ZooCase(model, run, feeds, run(feeds))


def test_the_list_is_complete() -> None:
    assert zoo.names() == sorted(SMALLEST)


@pytest.mark.parametrize("name", SMALLEST)
def test_description(name: str) -> None:
    entry = zoo.describe(name)
    assert entry.name == name
    assert entry.title and entry.source
    assert len(entry.default_size) in (1, 2, 3)
    assert entry.channels == CHANNELS.get(name, 3)


def test_listing_loads_neither_numpy_nor_onnx() -> None:
    """The parent package is stood in for, since what it loads is not the zoo's concern."""
    code = (
        "import sys, types; parent = types.ModuleType('brickrt'); parent.__path__ = [sys.argv[1]];"
        "sys.modules['brickrt'] = parent; import brickrt.zoo as zoo; zoo.describe(zoo.names()[0]);"
        "sys.exit('numpy' in sys.modules or 'onnx' in sys.modules)"
    )
    package = Path(zoo.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code, str(package)], timeout=60).returncode == 0


def test_model_is_valid(case: ZooCase) -> None:
    model = case.model
    onnx.checker.check_model(model, full_check=True)
    assert (model.ir_version, model.producer_name) == (8, "brickrt zoo")
    assert [opset.version for opset in model.opset_import] == [17]
    names = [each.name for each in zoo.describe(case.name).inputs]
    assert [info.name for info in (*model.graph.input, *model.graph.output)] == [*names, "y"]
    node_names = [node.name for node in model.graph.node]
    assert all(node_names) and len(set(node_names)) == len(node_names)


def test_output_is_of_unit_scale_and_shows_a_change_of_one_corner(case: ZooCase) -> None:
    """An error in one brick must not hide below what results may differ by, 1e-4, so the corner has to count."""
    assert case.y.shape == _shape(case.model.graph.output[0]) == (1, *OUTPUTS.get(case.name, (1000,)))
    assert np.isfinite(case.y).all()
    assert 0.1 < case.y.std() < 10
    assert np.std(case.moved(_next_in_corner) - case.y) > 3e-3 * case.y.std()


def test_small_differences_stay_small(case: ZooCase) -> None:
    """Else two right results would differ by more than they may: rounding differs from one engine to the next."""
    step = np.float32(1e-4 / FREQUENCY.get(case.name, 1))
    if case.name == "bert":  # whose inputs are whole numbers: what they stand for is moved
        moved = _run(_with_moved_weight(case.model, "embeddings.word.weight", step), case.feeds)
    else:
        moved = case.moved(lambda x: x + step * _noise(x.shape))
    assert np.std(moved - case.y) < 10 * 1e-4 * case.y.std()


@pytest.mark.parametrize("name", SMALLEST)
def test_symbolic_batch_has_the_same_weights_and_results(name: str) -> None:
    """The weights of both are drawn from the seed, each on its own: so this holds every network to determinism."""
    fixed, symbolic = (slim_model(name, batch=batch, size=SMALLEST[name]) for batch in (1, 0))
    assert _shape(symbolic.graph.input[0])[0] == _shape(symbolic.graph.output[0])[0] == "N"
    assert _weight_digests(symbolic) == _weight_digests(fixed)
    feeds, other = (zoo.feeds(fixed, seed) for seed in (1, 2))
    one, pair = _run(fixed, feeds), _run(symbolic, {key: np.concatenate([other[key], feeds[key]]) for key in feeds})
    np.testing.assert_allclose(pair[1:], one, atol=1e-3 * one.std())


@pytest.mark.parametrize("name", ["mobilenetv2", "nafnet", "unet", "unet3d", "vit-s16", "swin-t"])
def test_equal_seeds_give_equal_bytes(name: str) -> None:
    first, again, other = (slim_model(name, size=SMALLEST[name], seed=seed).SerializeToString() for seed in (7, 7, 8))
    assert first == again != other


def test_batch_may_be_fixed_or_named() -> None:
    fixed = slim_model("vit-s16", batch=3, size=32)
    onnx.checker.check_model(fixed, full_check=True)
    assert _run(fixed, zoo.feeds(fixed)).shape == (3, 1000)
    named = slim_model("vit-s16", batch="images", size=32)
    onnx.checker.check_model(named, full_check=True)
    assert _shape(named.graph.input[0]) == ("images", 3, 32, 32)


@pytest.mark.parametrize(
    ("name", "size", "options"),
    [
        ("nafnet", 16, {"width": 8, "blocks": 1, "encoder": (1, 2), "decoder": (2, 1)}),
        ("unet", (8, 12), {"width": 4, "levels": 2}),
        ("unet3d", 4, {"width": 2, "levels": 1}),
        ("restormer", (8, 12), {"width": 4, "blocks": (1,), "refinement": 0}),
        ("restormer", 16, {"width": 6, "blocks": (1, 0, 1, 2)}),
    ],
)
def test_options(name: str, size: int | tuple[int, ...], options: dict[str, Any]) -> None:
    model = zoo.build(name, size=size, **options)
    onnx.checker.check_model(model, full_check=True)
    feeds = zoo.feeds(model)
    assert _run(model, feeds).shape[2:] == feeds["x"].shape[2:]


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("unet", 100, "unet: size 100x100 does not fit.* multiple of 16.* try 96x96$"),
        ("unet3d", (96, 96, 90), "unet3d: size 96x96x90 .* try 96x96x96$"),
        ("deepcam", (768, 1150), "deepcam: size 768x1150 .* multiple of 16; try 768x1152$"),
        ("vit-s16", 8, "vit-s16: size 8x8 .* at least 16x16.* try 16x16$"),
        ("vgg16", 1024, "vgg16: size 1024x1024 .* none above 480; try 480x480$"),
        ("inception-v4", 64, "inception-v4: size 64x64 .* at least 75x75; try 75x75$"),
        ("resnet34-3d", (4, 112, 112), "resnet34-3d: size 4x112x112 .* try 8x112x112$"),
        ("bert", 513, "bert: size 513 .* none above 512; try 512$"),
        ("bsrn", 14, "bsrn: size 14x14 .* at least 15x15; try 15x15$"),
        ("conformer", 15, "conformer: size 15 .* at least 16.* try 16$"),
        ("mobilevit-s", (64, 96), "mobilevit-s: size 64x96 .* multiple of 64; try 64x128$"),
        ("restormer", 100, "restormer: size 100x100 .* multiple of 8; try 96x96$"),
        ("swin-t", (32, 30), "swin-t: size 32x30 .* try 32x32$"),
        ("resnet50", (224, 224, 3), "resnet50: size .* is not 2 positive integers, such as 224x224$"),
        ("resnet50", -224, "resnet50: size .* is not 2 positive integers"),
    ],
)
def test_unsuitable_size_is_refused(name: str, size: int | tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        zoo.build(name, size=size)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("alexnet", {}, "no network is called 'alexnet'; known: bert, bsrn, "),
        ("unet", {"batch": -1}, "unet: batch -1 is neither"),
        ("unet", {"batch": ""}, "unet: batch '' is neither"),
        ("unet", {"depth": 3}, "unet: no option is called 'depth'; it takes width, levels$"),
        ("vgg16", {"width": 3}, "vgg16: no option is called 'width'; it takes none$"),
        ("restormer", {"width": 3}, "restormer: 4 levels of width 3: use 1 to 4 and an even width$"),
        ("restormer", {"blocks": (1,) * 5}, "restormer: 5 levels of width 48: use 1 to 4"),
        ("nafnet", {"encoder": (1,)}, "nafnet: encoder has 1 levels and decoder 0"),
    ],
)
def test_unsuitable_argument_is_refused(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        zoo.build(name, **arguments)


def _runner(model: onnx.ModelProto) -> Callable[[Feeds], np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # it takes longer than the run
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)[0]


def _run(model: onnx.ModelProto, feeds: Feeds) -> np.ndarray:
    return _runner(model)(feeds)


def _noise(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


def _next_in_corner(x: np.ndarray) -> np.ndarray:
    """One more, in the first rows and columns of each channel, or in the first three of a sequence."""
    corner = x.copy()
    corner[..., :3, :3] += 1
    return corner


def _with_moved_weight(model: onnx.ModelProto, name: str, step: np.float32) -> onnx.ModelProto:
    moved = onnx.ModelProto()
    moved.CopyFrom(model)
    (weight,) = (each for each in moved.graph.initializer if each.name == name)
    values = onnx.numpy_helper.to_array(weight)
    weight.CopyFrom(onnx.numpy_helper.from_array(values + step * _noise(values.shape), name))
    return moved


def _shape(info: onnx.ValueInfoProto) -> tuple[Any, ...]:
    return tuple(dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim)


def _weight_digests(model: onnx.ModelProto) -> dict[str, bytes]:
    weights = (tensor for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT)
    return {tensor.name: hashlib.sha1(tensor.raw_data).digest() for tensor in weights}
