"""Values of rounds, one behind the other."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.runtime.execution.control.stacked import Stacked


def stacked(values: list[np.ndarray], most: float, backward: bool = False, write: bool = True) -> Stacked:
    stack = Stacked(most, "Loop node 'l'", backward)
    for value in values:
        slot = stack.slot()
        if write and slot is not None:
            slot[...] = value
            stack.add(slot)
        else:
            stack.add(value)
    return stack


@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize("most", [40, float("inf")])
@pytest.mark.parametrize("shape", [(), (2, 3), (0,)])
def test_as_many_as_there_are(most, shape, write):
    values = [np.full(shape, k, np.float32) for k in range(40)]
    np.testing.assert_array_equal(stacked(values, most, write=write).result(), np.stack(values))


def test_backwards():
    values = [np.array([k, -k]) for k in range(40)]
    np.testing.assert_array_equal(stacked(values, 40, True).result(), np.stack(values[::-1]))


def test_texts_of_any_length():
    result = stacked([np.array(["a"]), np.array(["bcd"])], 5, write=False).result()
    assert result is not None and result.tolist() == [["a"], ["bcd"]]


def test_what_is_no_tensor_of_one_type():
    for other in (np.zeros(3, np.float32), np.zeros(2, np.int64)):
        with pytest.raises(ValueError, match=r"round 1 gives .* of one type"):
            stacked([np.zeros(2, np.float32), other], 5, write=False)
    with pytest.raises(TypeError, match="round 0 gives a list"):
        stacked([[1]], 5)


def test_nothing_yet():
    stack = Stacked(3, "Loop node 'l'")
    assert stack.slot() is None and stack.result() is None


def test_few_of_many_hold_no_more_than_they_need():
    result = stacked([np.zeros(4)], 1000).result()
    assert result is not None and result.base is None and result.shape == (1, 4)
