"""The least that subgraphs can take: operations of the algorithms that run, bytes that must move, and times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.ops.operators.move import Take, View
from brickrt.plan.cost.product_counts import peak_ratio, peak_work
from brickrt.plan.device.device_spec import PRESETS
from brickrt.runtime.analysis.least_time import ARITHMETIC, LeastWork, least_bytes, least_us, least_work, longest
from tests.support.graphs.plan_graphs import Sketch
from tests.support.task_checks import SERVER, lowered


@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "size"), [(3, 1, 1, 5), (3, 2, 1, 8), (1, 2, 0, 7), (5, 1, 2, 3), (2, 2, 0, 6)]
)
def test_taps_on_padding_are_not_counted(kernel, stride, pad, size):
    s = Sketch()
    s.conv(s.input(2, 4, size, size), 8, kernel, stride, groups=2, pad=pad)
    graph = s.graph()
    outputs = graph.out(graph.nodes[0]).shape[2]
    inside = sum(0 <= i * stride + t - pad < size for i in range(outputs) for t in range(kernel))
    assert peak_work(graph, graph.nodes[0], None) == 2 * 8 * 2 * inside**2


def test_algorithms_multiply_less():
    s = Sketch()
    s.matmul(s.conv(s.input(1, 16, 24, 24), 32, 3), 24)
    graph = s.graph()
    conv, product = graph.nodes
    direct = 16 * 32 * (24 * 3) ** 2
    for edge, products in ((2, 16 / 4), (4, 36 / 16)):  # F(2×2, 3×3) and F(4×4, 3×3): products per output
        assert peak_work(graph, conv, f"winograd{edge}") == pytest.approx(16 * 32 * 24 * 24 * products)
    assert peak_work(graph, conv, "winograd4") < direct / 3
    whole = 32 * 24 * 24 * 24
    assert [peak_work(graph, product, name) for name in (None, "strassen", "strassen2", "paired")] == [
        whole,
        whole * 7 / 8,
        whole * 49 / 64,
        whole * 11 / 16,
    ]


def test_bytes_are_multiplied_faster():
    bytes_of, floats = np.dtype(np.uint8), np.dtype(np.float32)
    assert peak_ratio(floats, SERVER, "fp32") == 1
    assert peak_ratio(bytes_of, replace(SERVER, byte_products=4), "fp32") == 4
    assert peak_ratio(bytes_of, SERVER, "fp32") == 2  # by words
    assert peak_ratio(floats, PRESETS["a100"], "tf32") == peak_ratio(floats, PRESETS["a100"], "fp32") * 8


def test_views_move_nothing_and_parts_their_own_bytes():
    s = Sketch()
    x = s.map("abs", s.input(1, 32, 8, 8))
    s.map("abs", s.add(Take((None, tuple(range(16)), None, None)), x))
    s.map("abs", s.add(View((1, 32, 64)), x))
    half, whole = "t2", "t4"
    tasks = lowered(s.graph(half, whole), "layerwise", replace(SERVER, l3=0, cores=1))
    work = dict(zip([tasks.plan.graph.nodes[sub.nodes[-1]].output for sub in tasks.plan.subgraphs], least_work(tasks)))
    nbytes = 4 * 32 * 64
    assert work["t1"].moved == work["t3"].moved == 0
    assert (work[half].read, work[half].written) == (nbytes // 2, nbytes // 2)
    assert (work[whole].read, work[whole].written) == (nbytes, nbytes)


@pytest.mark.parametrize("strategy", ["layerwise", "padded", "memoized"])
def test_a_subgraph_moves_its_ends_alone(strategy):
    s = Sketch()
    s.conv(s.conv(s.input(1, 16, 64, 64), 16, 1), 16, 1)
    work = least_work(lowered(s.graph(), strategy, brick=16))
    ends, weights = 4 * 16 * 64 * 64, 4 * 16 * 16  # layer by layer, inputs and outputs of four: two change the layout
    assert sum(each.moved for each in work) == (8 if strategy == "layerwise" else 2) * ends + 2 * weights
    assert sum(each.constants for each in work) == 2 * weights
    assert sum(each.operations for each in work) == 2 * 2 * 16 * ends // 4


def test_a_stride_wider_than_the_kernel_leaves_pixels_out():
    s = Sketch()
    s.conv(s.input(1, 16, 8, 8), 8, 1, stride=2, pad=0)
    _, work, _ = least_work(lowered(s.graph(), "layerwise"))
    assert work.read == 4 * (16 * 4 * 4 + 8 * 16)


def test_only_what_no_cache_holds_must_come_from_memory():
    device = replace(SERVER, l2=2**20, l3=2**25, cores=2)
    small, large = LeastWork(0, 0, 2**20, 2**20), LeastWork(0, 0, 2**26, 2**24, constants=2**26)
    assert least_bytes([small], device) == {"l3": 0, "memory": 0}
    assert least_bytes([large], device) == {"l3": 2**26 - 2**21, "memory": 2**25}
    weights = [LeastWork(0, 0, 2**24, 0, constants=2**24)] * 4  # each would fit, all together do not
    assert least_bytes(weights, device)["memory"] == 2**26 - 2**25
    assert list(least_bytes([large], replace(device, l3=0))) == ["memory"]


def test_the_longest_part_is_the_limit():
    device = replace(SERVER, cores=2)
    work = [LeastWork(3.2e6, 3.2e6, 2**26, 0)]
    one, two = least_us(work, device, 1), least_us(work, device, 2)
    assert one[ARITHMETIC] == pytest.approx(20) and two[ARITHMETIC] == pytest.approx(10)
    assert least_us(work, device, 64) == two
    assert longest(two) == two["memory"] == pytest.approx((2**26 - SERVER.l3) / 20e3)
    assert longest({}) == 0
