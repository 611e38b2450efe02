"""Networks of the zoo with the CUDA engine's own kernels, on the host; each in one strategy and way to launch.

DarkNet-53, Inception-v4, ResNet-50 and VGG16 have no operator that the others lack.
"""

from __future__ import annotations

import pytest

from tests.support.cuda.host_driver import HostDriver
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.cuda.zoo_runs import check_network

pytestmark = needs_compiler

RUNS = [
    ("deepcam", "padded", "persistent"),
    ("drn-c-26", "memoized", "persistent"),
    ("mobilenetv2", "layerwise", "graph"),
    ("nafnet", "fused", "dynamic"),
    ("nafnet", "memoized", "dynamic"),
    ("nafnet", "padded", "graph"),
    ("resnet34-3d", "padded", "streams"),
    ("unet", "auto", "persistent"),
    ("unet3d", "memoized", "graph"),
    ("vit-s16", "layerwise", "streams"),
]
LARGE = ("deepcam", "resnet34-3d")  # they run once
# Others have 4 pixels: here bricks of 4 would mostly compute the halos of many layers, or be 64 where 8 do as well.
BRICKS = {"deepcam": 8, "resnet34-3d": 8, "unet3d": 8}
# Most kernels run so shortly that better code would take longer to make than it saves.
SLOW = ("unet", "unet3d", "vit-s16")


@pytest.mark.parametrize(("name", "strategy", "launch"), RUNS)
def test_network(monkeypatch, name, strategy, launch):
    driver = HostDriver(flags=() if name in SLOW else ("-O0",))
    check_network(monkeypatch, name, driver, strategy, launch, BRICKS.get(name, 4), again=name not in LARGE)
