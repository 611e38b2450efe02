"""Networks of the zoo with the CUDA engine's own kernels, on the host; each in one strategy and way to launch."""

from __future__ import annotations

import pytest

from tests.support.cuda.host_driver import HostDriver
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.cuda.zoo_runs import check_network

pytestmark = needs_compiler

RUNS = [
    ("darknet53", "layerwise", "graph"),
    ("deepcam", "padded", "persistent"),
    ("drn-c-26", "memoized", "persistent"),
    ("inception-v4", "auto", "streams"),
    ("mobilenetv2", "memoized", "streams"),
    ("nafnet", "memoized", "dynamic"),
    ("nafnet", "padded", "graph"),
    ("resnet34-3d", "padded", "streams"),
    ("resnet50", "memoized", "persistent"),
    ("unet", "padded", "persistent"),
    ("unet3d", "memoized", "graph"),
    ("vgg16", "auto", "persistent"),
    ("vit-s16", "layerwise", "streams"),
]
LARGE = ("deepcam", "resnet34-3d")  # bricks of 4 pixels would mostly compute the halos of many layers
ONCE = (*LARGE, "darknet53", "inception-v4", "vgg16")  # the others run again, in each way to launch


@pytest.mark.parametrize(("name", "strategy", "launch"), RUNS)
def test_network(monkeypatch, name, strategy, launch):
    brick = 8 if name in LARGE else 4
    check_network(monkeypatch, name, HostDriver(), strategy, launch, brick, again=name not in ONCE)
