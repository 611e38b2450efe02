"""Folding: batch norm into weights, pads into convolutions, scalars into expressions, identities away."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.builder import Builder
from brickrt.graph.passes.fold import fold
from brickrt.ops.expr import Const, apply, arg, cast, walk
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Take, Transpose, View
from tests.support.graphs.small_graphs import ADD, MUL, RELU, X, Y, array, conv3, make, number, ops, same_results


def norm(b: Builder, x: str, seed: int = 3) -> str:
    """Batch normalization as the builder emits it: a scale and a shift of [1, C, 1, 1]."""
    channels = b.type(x).shape[1]
    shape = (1, channels, *(1,) * (b.type(x).rank - 2))
    scaled = b.emit(MUL, x, b.constant(array(*shape, seed=seed), "scale"))
    return b.emit(ADD, scaled, b.constant(array(*shape, seed=seed + 1), "shift"))


@pytest.mark.parametrize("bias", [False, True])
def test_batch_norm_goes_into_a_convolution(bias):
    before = make(lambda b: norm(b, conv3(b, "x", 4, bias=bias)), x=(1, 3, 5, 5))
    after = same_results(before, fold(before))
    assert ops(after) == ["Conv"]
    assert after.nodes[0].op.bias


@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_goes_into_a_transposed_convolution(groups):
    def build(b: Builder) -> str:
        op = ConvTranspose((2, 2), (2, 2), (1, 1), (0, 0), (0, 0), (0, 0), groups)
        return norm(b, b.emit(op, "x", b.constant(array(4, 3, 2, 2), "w")))

    before = make(build, x=(1, 4, 5, 5))
    assert ops(same_results(before, fold(before))) == ["ConvTranspose"]


def test_scale_and_shift_go_into_a_matrix_product():
    def build(b: Builder) -> str:
        y = b.emit(MatMul(), "x", b.constant(array(3, 5), "w"))
        y = b.emit(Map(apply("div", X, Y)), y, b.constant(np.abs(array(5)) + 1, "d"))
        return b.emit(Map(apply("sub", number(1), X)), y)

    before = make(build, x=(2, 4, 3))
    assert ops(same_results(before, fold(before))) == ["MatMul"]


def test_shared_weights_are_scaled_apart():
    """
    x ─┬─ conv(w) ─ norm ─ (output)
       └─ conv(w) ─ (output)
    """

    def build(b: Builder) -> tuple[str, str]:
        w, op = b.constant(array(4, 3, 1, 1), "w"), Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
        return norm(b, b.emit(op, "x", w)), b.emit(op, "x", w)

    before = make(build, x=(1, 3, 5, 5))
    assert ops(same_results(before, fold(before))) == ["Conv", "Conv"]


def test_norm_stays_where_somebody_else_reads_the_convolution():
    before = make(lambda b: (c := conv3(b, "x", 4), norm(b, c)), x=(1, 3, 5, 5))
    assert ops(same_results(before, fold(before))) == ["Conv", "Map", "Map"]


def test_scale_per_column_stays():
    def build(b: Builder) -> str:
        return b.emit(MUL, conv3(b, "x", 4), b.constant(array(1, 1, 1, 5), "c"))

    before = make(build, x=(1, 3, 5, 5))
    assert ops(same_results(before, fold(before))) == ["Conv", "Map"]


def test_shift_goes_into_the_bias_where_weights_are_computed():
    def build(b: Builder) -> str:
        op = Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
        return b.emit(ADD, b.emit(op, "x", "w"), b.constant(array(4, 1, 1), "c"))

    before = make(build, x=(1, 3, 5, 5), w=(4, 3, 1, 1))
    assert ops(same_results(before, fold(before))) == ["Conv"]


def test_zero_padding_goes_into_the_convolution():
    """x ─ pad ─┬─ conv ─ (output); the other reader still gets the padded tensor"""

    def build(b: Builder) -> tuple[str, str]:
        rows, columns = (-1, 0, 1, 2, 3, 4, -1), (0, 1, 2, 3, 4, -1, -1)
        padded = b.emit(Take((None, None, rows, columns)), "x")
        return conv3(b, padded, 4), b.emit(RELU, padded)

    before = make(build, x=(1, 3, 5, 5))
    after = same_results(before, fold(before))
    conv = next(node for node in after.nodes if isinstance(node.op, Conv))
    assert (conv.inputs[0], conv.op.pads, conv.op.pads_end) == ("x", (2, 1), (2, 3))


@pytest.mark.parametrize(
    ("rows", "fill"),
    [((-1, 0, 1, 2, 3, 4), 1.0), ((-1, 0, 1, 2), 0), ((1, 0, 1, 2, 3, 4, 3), 0), ((-1, -1), 0)],
    ids=["fill 1", "crops", "reflects", "only zeros"],
)
def test_other_padding_stays(rows, fill):
    before = make(lambda b: conv3(b, b.emit(Take((None, None, rows, None), fill), "x"), 4), x=(1, 3, 5, 5))
    assert ops(same_results(before, fold(before))) == ["Take", "Conv"]


def test_scalar_constant_becomes_part_of_the_expression():
    before = make(lambda b: b.emit(ADD, "x", b.constant(np.float32(3).reshape(1, 1), "c")), x=(4, 6))
    after = same_results(before, fold(before))
    assert after.nodes[0].inputs == ("x",)
    assert any(isinstance(e, Const) for e in walk(after.nodes[0].op.expr))


def test_scalar_that_raises_the_rank_stays_an_operand():
    before = make(lambda b: b.emit(ADD, "x", b.constant(array(1, 1, 1), "c")), x=(4, 6))
    assert len(same_results(before, fold(before)).nodes[0].inputs) == 2


def test_what_follows_from_constants_is_computed():
    def build(b: Builder) -> str:
        return b.emit(ADD, "x", b.emit(RELU, b.constant(array(6), "c")))

    before = make(build, x=(4, 6))
    assert ops(same_results(before, fold(before))) == ["Map"]


def test_constant_that_would_grow_too_much_is_not_computed():
    def build(b: Builder) -> str:
        big = b.emit(Take(((0,) * 3000, (0,) * 3000)), b.constant(array(1, 1), "c"))
        return b.emit(ADD, "x", big)

    graph = fold(make(build, x=(3000, 3000)))
    assert ops(graph) == ["Take", "Map"]


def test_weights_of_float16_are_widened_whatever_their_size(monkeypatch):
    """They become as narrow again; else each run would widen them, and turn them where a Gemm has them turned."""
    monkeypatch.setattr("brickrt.graph.host.static_values.FOLDED_GROWTH_BYTES", 0)

    def build(b: Builder) -> str:
        weights = array(9, 8).astype(np.float16)
        return b.emit(MatMul(), "x", b.emit(Map(cast(arg(0, weights.dtype), np.float32)), b.constant(weights.T, "w")))

    before = make(build, x=(5, 8))
    after = same_results(before, fold(before))
    assert ops(after) == ["MatMul"]
    (folded,) = after.constants.values()
    assert folded.flags.f_contiguous  # turned by its strides
    monkeypatch.setattr("brickrt.graph.passes.fold.available_bytes", lambda: 500)  # of which they need 288
    assert ops(fold(before)) == ["Map", "MatMul"]


def test_weights_of_bytes_times_a_scale_are_computed_whatever_their_size(monkeypatch):
    """Cast and Mul in front of a product, as some quantizers write them."""
    monkeypatch.setattr("brickrt.graph.host.static_values.FOLDED_GROWTH_BYTES", 0)

    def build(b: Builder) -> str:
        weights = np.arange(72, dtype=np.int8).reshape(8, 9)
        scaled = Map(apply("mul", cast(arg(0, np.int8), np.float32), arg(1, np.float32)))
        return b.emit(MatMul(), "x", b.emit(scaled, b.constant(weights, "w"), b.constant(array(9), "s")))

    before = make(build, x=(5, 8))
    assert ops(same_results(before, fold(before))) == ["MatMul"]


def test_identities_disappear():
    """x ─ ·1 ─ view ─ view back ─ transpose ─ transpose back ─ relu"""

    def build(b: Builder) -> str:
        x = b.emit(Map(apply("mul", X, number(1))), "x")
        x = b.emit(View((4, 6)), b.emit(View((24,)), x))
        x = b.emit(Transpose((1, 0)), b.emit(Transpose((1, 0)), x))
        return b.emit(RELU, b.emit(Take((None, tuple(range(6)))), x))

    before = make(build, x=(4, 6))
    assert ops(same_results(before, fold(before))) == ["Map"]


def test_identity_that_is_an_output_gives_its_name_away():
    """x ─ relu ─ view ─ (output): relu writes the output"""
    before = make(lambda b: b.emit(View((4, 6)), b.emit(RELU, "x")), x=(4, 6))
    after = same_results(before, fold(before))
    assert ops(after) == ["Map"]
    assert after.outputs == before.outputs


def test_identity_from_input_to_output_stays():
    before = make(lambda b: b.emit(View((4, 6)), "x"), x=(4, 6))
    assert ops(same_results(before, fold(before))) == ["View"]


def test_transpose_of_short_axes_is_a_view():
    before = make(lambda b: b.emit(Transpose((0, 2, 1, 3)), "x"), x=(2, 1, 5, 3))
    assert ops(same_results(before, fold(before))) == ["View"]
