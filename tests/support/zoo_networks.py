"""Networks of the zoo at small sizes, with an input and what ONNX Runtime computes of it.

Those of most weights are slim here: a quarter of the channels, and few of the layers that are repeated. To make, fold,
pack and copy their weights took longer than all that is tested with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from brickrt import zoo
from brickrt.zoo.layers import Activation, Net
from brickrt.zoo.registry import lookup

Size = int | tuple[int, ...]

# The smallest sizes that the networks take.
SMALLEST: dict[str, Size] = {
    "bert": 7,
    "bsrn": 15,
    "conformer": 16,
    "darknet53": 32,
    "deepcam": (32, 48),
    "drn-c-26": 32,
    "inception-v4": 75,
    "mobilenetv2": 32,
    "mobilevit-s": 64,
    "nafnet": 8,
    "nerf": 5,
    "resnet34-3d": (8, 32, 32),
    "resnet50": 32,
    "restormer": 8,
    "swin-t": 32,
    "unet": 16,
    "unet3d": 16,
    "vgg16": 32,
    "vit-s16": 16,
}


# The table of a network whose rows begin with channels, where its layers ask whether a shape changes.
TABLES = {"resnet34-3d": "BLOCKS", "resnet50": "BLOCKS", "drn-c-26": "LEVELS"}
# Constants of a network's file that are others: fewer layers that are repeated, fewer features.
OTHERS: dict[str, dict[str, object]] = {
    "bert": {"DEPTH": 3, "WIDTH": 96, "HEADS": 4, "MLP_WIDTH": 384},
    "bsrn": {"BLOCKS": 3},
    "conformer": {"DEPTH": 3, "WIDTH": 64, "MLP_WIDTH": 256},
    "deepcam": {"MIDDLE_BLOCKS": 3},
    "inception-v4": {"REPEATS": (2, 2, 1)},
    "mobilevit-s": {"BLOCKS": ((32, 1, 1, 0, 0), (48, 2, 2, 0, 0), (64, 1, 2, 48, 2), (64, 1, 2, 64, 1)), "LAST": 128},
    "swin-t": {"WIDTH": 24, "BLOCKS": ((2, 3), (2, 6), (1, 12))},
    "vit-s16": {"DEPTH": 4},
}
# Constants and options that say how often a network repeats blocks that are alike.
REPEATS = {"conformer": {"DEPTH": 2}, "deepcam": {"MIDDLE_BLOCKS": 2}}
FEW_BLOCKS: dict[str, dict[str, Any]] = {"restormer": {"blocks": (2, 2, 2, 2), "refinement": 1}}
# Options of slim networks.
OPTIONS: dict[str, dict[str, Any]] = {"restormer": {"width": 8, "blocks": (1, 1, 1), "refinement": 0}}
SLIM = {"darknet53", "deepcam", "inception-v4", "vgg16", *TABLES}
SLIMMER = 4


def fewer(channels: int) -> int:
    """So many channels of a slim network; few, such as classes of pixels, stay."""
    return max(8, channels // SLIMMER) if channels > 8 else channels


@contextmanager
def slim(name: str) -> Iterator[None]:
    """While it is open, `zoo.build` writes the network with fewer channels."""
    conv, linear = Net.conv, Net.linear

    def narrow_conv(net: Net, x: Activation, layer: str, channels: int, *window: object, **more: object) -> Activation:
        kept = channels if channels == x.channels else fewer(channels)  # a layer asks for as many as it is given
        return conv(net, x, layer, kept, *window, **more)  # type: ignore[arg-type]

    def narrow_linear(net: Net, x: Activation, layer: str, features: int, rectified: bool = True) -> Activation:
        return linear(net, x, layer, fewer(features), rectified)

    with pytest.MonkeyPatch.context() as patch:
        module = import_module(lookup(name)[1].__module__)
        for constant, value in OTHERS.get(name, {}).items():
            patch.setattr(module, constant, value)
        if name in TABLES:
            rows = getattr(module, TABLES[name])
            patch.setattr(module, TABLES[name], tuple((fewer(channels), *row) for channels, *row in rows))
        elif name in SLIM:
            patch.setattr(Net, "conv", narrow_conv)
            patch.setattr(Net, "linear", narrow_linear)
        yield


def shallow_model(name: str) -> onnx.ModelProto:
    """What `zoo.build` writes, where blocks that are alike are repeated less often: no operator of another shape."""
    with pytest.MonkeyPatch.context() as patch:
        for constant, value in REPEATS.get(name, {}).items():
            patch.setattr(import_module(lookup(name)[1].__module__), constant, value)
        return zoo.build(name, **FEW_BLOCKS.get(name, {}))


def slim_model(name: str, **arguments: Any) -> onnx.ModelProto:
    """What `zoo.build` writes, with fewer channels and layers."""
    with slim(name):
        return zoo.build(name, **arguments, **OPTIONS.get(name, {}))


@cache
def network(name: str, size: Size) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Model and inputs."""
    model = slim_model(name, size=size)
    return model, zoo.feeds(model)


@cache
def expected(name: str, size: Size) -> np.ndarray:
    """What ONNX Runtime computes."""
    model, feeds = network(name, size)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )  # it takes longer than the run
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]
