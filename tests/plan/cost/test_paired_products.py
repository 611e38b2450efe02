"""Which products pair elements of K: those of some rows, on processors that add beside their multiply-adds."""

import pytest

from brickrt.ops.cpu.paired.pairing import LEFT
from brickrt.ops.operators.matmul import MatMul
from brickrt.plan.cost.conv_algorithms import layer_us, weight_growth
from tests.plan.cost.test_strassen import PAIRING, SERVER, chosen, narrow_weights, pointwise, product


@pytest.mark.parametrize("graph", [narrow_weights(512, 768, 3072), product(512, 768, columns=3072)], ids=["16", "32"])
def test_weights_stay_as_they_are(graph):
    assert chosen(graph, PAIRING) == "paired"
    assert chosen(graph, PAIRING, exact=True) is None
    assert chosen(graph, SERVER) != "paired"
    assert weight_growth(MatMul(), "paired") == 1


def test_no_more_is_saved_than_multiplications():
    graph = narrow_weights(512, 768, 3072)
    paired, halved, direct = (
        layer_us(graph, graph.nodes[0], PAIRING, name) for name in ("paired", "strassen2-raw", None)
    )
    assert LEFT * direct < paired < halved < direct


def test_few_rows_and_few_columns_are_multiplied_directly():
    assert chosen(narrow_weights(40, 768, 3072), PAIRING) == "paired"
    assert chosen(narrow_weights(8, 768, 3072), PAIRING) is None
    assert chosen(narrow_weights(1, 768, 3072), PAIRING) is None
    assert chosen(product(1000, 256, columns=16), PAIRING) is None


def test_pointwise_convolutions():
    graph = pointwise(1, 256, 28, 28, channels=512)
    assert chosen(graph, PAIRING, layout="blocked") == "paired"
    assert chosen(graph, PAIRING) is None
    assert chosen(pointwise(1, 256, 28, 28, channels=512, groups=2), PAIRING, layout="blocked") is None
