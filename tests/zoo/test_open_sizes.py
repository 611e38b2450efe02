"""Networks of the zoo whose extents of space are open."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from brickrt import Runtime, zoo
from tests.support.graphs.onnx_models import by_onnxruntime
from tests.support.zoo_networks import Size, slim_model

FIXED = {"swin-t", "vgg16", "vit-s16"}


# Networks that ask for the extents of what they are given, to tile, resize or reshape, or to count positions.
ASKING: list[tuple[str, Size]] = [
    ("bert", 9),
    ("bsrn", (17, 23)),
    ("conformer", 43),
    ("deepcam", (32, 48)),
    ("mobilevit-s", (64, 128)),
    ("restormer", (12, 20)),
]


def test_open_extents_have_names():
    model = zoo.build("unet3d", size=0)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param for d in dims[2:]] == ["depth", "height", "width"] and dims[1].dim_value == 1
    assert [d.dim_param for d in model.graph.output[0].type.tensor_type.shape.dim[2:]] == ["depth", "height", "width"]


@pytest.mark.parametrize("name", sorted(FIXED))
def test_weights_for_one_size_leave_none_open(name):
    with pytest.raises(ValueError, match=f"{name}: its weights are for one size: give one, such as 224x224"):
        zoo.build(name, size=0)


@pytest.mark.parametrize(("name", "size"), ASKING)
def test_an_open_network_computes_what_one_of_the_size_does(name, size):
    """With the batch open too, and by another number of threads."""
    opened, fixed = slim_model(name, batch=0, size=0), slim_model(name, size=size)
    onnx.checker.check_model(opened, full_check=True)
    feeds = zoo.feeds(fixed)
    found = [Runtime(opened, device="cpu", threads=1), Runtime(fixed, device="cpu", threads=3)]
    results = [runtime.execute(feeds)["y"] for runtime in found]
    np.testing.assert_array_equal(*results)
    want = by_onnxruntime(fixed, feeds)["y"]
    assert results[0].shape == want.shape and results[0].dtype == want.dtype
    np.testing.assert_allclose(results[0], want, rtol=0, atol=1e-4 * np.abs(want).max())
