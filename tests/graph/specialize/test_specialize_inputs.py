"""Arrays that do not fit the model are refused in one line."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.check_inputs import check_inputs
from brickrt.graph.onnx_import.source import load
from tests.support.graphs.onnx_models import model, node, tensor

SOURCE = load(
    model(
        [node("Add", "image w", "a"), node("Identity", "mask", "m")],
        [tensor("image", ["N", 3, "H"]), tensor("mask", ["N", None], bool), tensor("w", [1])],
        "a m",
        w=np.zeros(1, np.float32),
    )
)
IMAGE, MASK = np.zeros((2, 3, 5), np.float32), np.zeros((2, 7), bool)


def test_fitting_inputs_come_back_in_the_models_order():
    given = {"mask": MASK, "image": IMAGE.transpose(0, 2, 1).copy().transpose(0, 2, 1)}
    checked = check_inputs(SOURCE, given)
    assert list(checked) == ["image", "mask"]
    assert checked["image"].flags.c_contiguous
    assert checked["mask"] is MASK


def test_optional_inputs_are_checked_too():
    given = {"mask": MASK, "image": IMAGE, "w": np.ones(1, np.float32)}
    assert list(check_inputs(SOURCE, given)) == ["image", "mask", "w"]
    with pytest.raises(InputError, match="'w'"):
        check_inputs(SOURCE, given | {"w": np.ones(2, np.float32)})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mask": ...}, ["'mask'", "bool[N,?]", "missing"]),
        ({"imgae": IMAGE}, ["'imgae'", "did you mean 'image'"]),
        ({"zzz": IMAGE}, ["'zzz'", "'image', 'mask', 'w'"]),
        ({"image": IMAGE[0]}, ["'image'", "2 dimensions [3,5]", "float32[N,3,H]", "x[None]"]),
        ({"image": IMAGE[None]}, ["4 dimensions", "reshape"]),
        ({"image": IMAGE.astype(np.float64)}, ["'image'", "float64", "image.astype('float32')"]),
        ({"image": IMAGE.astype(">f4")}, ["float32 in another byte order", "image.astype('float32')"]),
        ({"image": IMAGE.tolist()}, ["float64", "astype"]),
        ({"image": None}, ["'image'", "NoneType"]),
        ({"image": [[1.0, 2.0], [3.0]]}, ["'image'", "no array", "float32[N,3,H]"]),
        ({7: IMAGE}, ["'7'", "'image', 'mask', 'w'"]),
        ({"image": np.zeros((2, 4, 5), np.float32)}, ["[2,4,5]", "[N,3,H]", "dimension 1 must be 3"]),
        ({"mask": np.zeros((3, 7), bool)}, ["'mask'", "'N' is 3 here and 2 in 'image'"]),
    ],
    ids=range(13),
)
def test_what_does_not_fit(change, words):
    given = {name: a for name, a in ({"image": IMAGE, "mask": MASK} | change).items() if a is not ...}
    with pytest.raises(InputError) as caught:
        check_inputs(SOURCE, given)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message
