"""Winograd kernels that go on with the weights that they transformed for the box before."""

import numpy as np
import pytest

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.winograd.kernel import WinogradMaker
from brickrt.ops.types import Boxes
from tests.ops.cpu.winograd.test_winograd import KINDS, TOLERANCE, arrays, compare, conv, types_of
from tests.support.cpu.harness import AVX2, HOST, GuardedMemory, call, packed_constant, random_boxes, run_kernel, stored

HELD = WinogradMaker(4, raw=True, held=True)
SHAPE = (1, 40, 72, 13, 18)
BOXES = [([0, 0, 0, 0], [1, 32, 8, 18]), ([0, 32, 0, 0], [1, 72, 8, 18]), ([0, 0, 8, 0], [1, 72, 13, 18])]


class LayerOnWorker:
    """One layer, or two with the same code, on a worker whose scratch and word stay from box to box."""

    def __init__(self, *weights: np.ndarray) -> None:
        self.op, (self.x, _, self.bias) = conv(), arrays(*SHAPE)
        self.layers = [[self.x, w, self.bias] for w in weights]
        kind = self.op.infer(types_of(self.op, self.layers[0])[0])
        self.ins = [stored(a, HOST.lanes if i == 0 else 1) for i, a in enumerate(self.layers[0])]
        self.out = stored(np.zeros(kind.shape, np.float32), HOST.lanes)
        operands = tuple(one.operand for one in self.ins)
        whole = Boxes.whole(kind.shape)
        _, classes = HELD.classify(self.op, operands, self.out.operand, whole, HOST)
        self.kernel: Kernel = HELD(self.op, operands, self.out.operand, HOST, (False, True, True), classes[0])
        self.packed = [GuardedMemory(packed_constant(self.kernel, 1, w)) for w in weights]
        self.packed_bias = GuardedMemory(packed_constant(self.kernel, 2, self.bias))
        self.scratch = GuardedMemory(np.full(self.kernel.workspace // 4, np.nan, np.float32))
        self.word = GuardedMemory(np.zeros(1, np.int64))

    def run(self, layer: int, box: tuple[list[int], list[int]]) -> None:
        """Computes a box, and compares it with the definition."""
        weights = self.packed[layer].address
        origins = [self.out.origin, self.ins[0].origin, weights, self.packed_bias.address]
        call(self.kernel, [*origins, self.scratch.address, self.word.address], Boxes.one(*box))
        n, blocks, h, w, lanes = self.out.memory.array.shape
        found = np.moveaxis(self.out.memory.array, -1, 2).reshape(n, blocks * lanes, h, w)
        want = evaluate_whole(self.op, [a.astype(np.float64) for a in self.layers[layer]])
        (lo, hi), scale = box, np.abs(want).max()
        at = tuple(slice(a, b) for a, b in zip(lo, hi, strict=True))
        np.testing.assert_allclose(found[at], want[at], rtol=0, atol=TOLERANCE * scale)


def half_weights(seed: int) -> np.ndarray:
    return arrays(*SHAPE, seed=seed)[1].astype(np.float16)


@pytest.mark.parametrize(("kind", "isa"), [("3d", HOST), ("2d-5x5-odd", AVX2), ("2d-1x7", HOST), ("1d-5", AVX2)])
def test_kernels_of_any_dimension(kind, isa):
    shape, kernel, dilations, pads, pads_end, edge = KINDS[kind]
    op, given = conv(pads, pads_end, kernel=kernel, dilations=dilations), arrays(*shape, kernel=kernel)
    given[1] = given[1].astype(np.float16)
    whole, _, part = random_boxes(types_of(op, given)[1].shape, 1, isa.lanes)
    compare(WinogradMaker(edge, raw=True, held=True), op, given, isa, boxes=[whole, part])


def test_bits_are_those_of_weights_transformed_for_each_group():
    given = arrays(*SHAPE)
    given[1] = given[1].astype(np.float16)
    how = {"blocks": [HOST.lanes, 1, 1], "out_block": HOST.lanes, "packed": [False, True, True]}
    box = Boxes.whole((1, 72, 13, 18))
    found = [run_kernel(conv(), given, box, kernel_cls=WinogradMaker(4, raw=True, held=held), **how) for held in (0, 1)]
    np.testing.assert_array_equal(*found)


def test_what_a_box_has_transformed_the_next_one_reads():
    """The second and third boxes read nothing of the weights but what must not be transformed, which is the last."""
    one = LayerOnWorker(half_weights(1))
    one.run(0, BOXES[0])
    one.run(0, BOXES[1])
    one.packed[0].array[:-1] = 0
    one.run(0, BOXES[2])


def test_channels_of_which_no_box_was_are_transformed():
    one = LayerOnWorker(half_weights(1))
    for box in (BOXES[1], BOXES[2], BOXES[0]):
        one.run(0, box)


def test_another_layer_with_the_same_code():
    one = LayerOnWorker(half_weights(1), half_weights(2))
    for layer, box in ((0, BOXES[2]), (1, BOXES[2]), (1, BOXES[0]), (0, BOXES[0]), (0, BOXES[1])):
        one.run(layer, box)


def test_another_kernel_may_have_overwritten_all():
    """The worker's loop clears the word then."""
    one = LayerOnWorker(half_weights(1))
    one.run(0, BOXES[2])
    one.scratch.array[:] = np.nan
    one.word.array[:] = 0
    one.run(0, BOXES[2])
