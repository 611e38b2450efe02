"""Grey TIFF files where a model takes colours are read as if each channel were the grey one."""

from __future__ import annotations

import numpy as np
import pytest
import tifffile

from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.source import load
from brickrt.runtime.files.grey import GreyAsColours, in_colours
from brickrt.runtime.files.model_inputs import Pixels, source_of
from brickrt.runtime.files.source import open_source
from brickrt.runtime.files.tensors import as_file, as_tensor
from tests.runtime.files.helpers import check_reads, values
from tests.support.graphs.onnx_models import model, node, tensor

NCHW, NHWC = (1, 3, None, None), (1, None, None, 3)


@pytest.mark.parametrize("how", [{}, {"tile": (32, 16)}, {"tile": (16, 16), "compression": "zlib"}])
def test_boxes_of_three_channels(tmp_path, how):
    want = values((50, 41), "u2")
    tifffile.imwrite(tmp_path / "a.tif", want, **how)
    with_channels = in_colours(open_source(tmp_path / "a.tif"), NCHW)
    assert isinstance(with_channels, GreyAsColours)
    check_reads(with_channels, np.repeat(want[..., None], 3, -1), times=6)
    with_channels.close()


@pytest.mark.parametrize("wanted", [NCHW, NHWC])
@pytest.mark.parametrize("shape", [(50, 41), (1, 50, 41)])
def test_as_a_models_input(tmp_path, wanted, shape):
    want = values(shape, "u1").reshape(50, 41)
    tifffile.imwrite(tmp_path / "a.tif", want.reshape(shape), photometric="minisblack")
    made = as_tensor(in_colours(open_source(tmp_path / "a.tif"), wanted), wanted, np.float32, mean=(1.0, 2.0, 3.0))
    got = np.empty(made.shape, np.float32)
    made.read((0, 0, 0, 0), got)
    channels = got[0] if wanted == NCHW else got[0].transpose(2, 0, 1)
    np.testing.assert_array_equal(channels, [want.astype("f4") - mean for mean in (1, 2, 3)])


def test_others_are_as_they_were(tmp_path):
    for shape, wanted in (((3, 20, 30), NCHW), ((20, 30), (1, 1, None, None)), ((20, 30, 3), NHWC), ((20, 30), (4, 5))):
        array = values(shape, "u1")
        np.save(tmp_path / "a.npy", array)
        source = open_source(tmp_path / "a.npy")
        assert in_colours(source, wanted) is source


def test_files_of_a_run(tmp_path):
    want = values((20, 30), "u2")
    tifffile.imwrite(tmp_path / "a.tif", want)
    np.save(tmp_path / "a.npy", want)
    source = load(model([node("Neg", "x", "y")], [tensor("x", (1, 3, "h", "w"))], [tensor("y", (1, 3, "h", "w"))]))
    made = source_of(source, "x", tmp_path / "a.tif", Pixels(images=True))
    got = np.empty(made.shape, np.float32)
    made.read((0, 0, 0, 0), got)
    np.testing.assert_array_equal(got[0], np.repeat((want * np.float32(1 / 65535))[None], 3, 0))
    result = as_file(tmp_path / "b.tif", got.shape, np.float32, like=made)
    result.write((0, 0, 0, 0), got)
    result.close()
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "b.tif"), got[0].transpose(1, 2, 0))
    with pytest.raises(InputError, match=r"has the shape \[20, 30\], the model takes \[1, 3, any, any\]"):
        source_of(source, "x", tmp_path / "a.npy", Pixels(images=True))  # an array is no picture
