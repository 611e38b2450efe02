"""What is known of operators that run on the host is said once, and in full."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import defs

from brickrt.graph.contrib.body import CONTRIB, contributed
from brickrt.graph.host import evaluator  # noqa: F401  (registers the operators)
from brickrt.graph.host.host_operator import OPERATORS, HostOperator, evaluates, operator_of, register
from tests.support.graphs.onnx_models import node


def test_an_operator_is_registered_once():
    before = dict(OPERATORS)
    with pytest.raises(ValueError, match=r"^TopK is registered twice"):
        register(HostOperator(elements=None, temporaries=6), "TopK")
    with pytest.raises(ValueError, match=r"^ZipMap is registered twice"):
        evaluates(HostOperator(elements=None), "ZipMap", domain="ai.onnx.ml")(lambda x: x)
    assert before == OPERATORS


def test_an_entry_says_how_large_outputs_are():
    incomplete: Callable[..., HostOperator] = HostOperator
    with pytest.raises(TypeError, match="'elements'"):
        incomplete(temporaries=8)


@pytest.mark.parametrize(("domain", "op_type"), sorted(OPERATORS))
def test_each_is_an_operator_and_its_entry_says_something(domain: str, op_type: str):
    assert op_type in contributed() if domain == CONTRIB else defs.has(op_type, domain)
    operator = OPERATORS[domain, op_type]
    assert operator != HostOperator(elements=None)
    assert operator.by_library or operator.products


def test_operators_of_other_domains_are_not_taken_for_standard_ones():
    product = node("MatMul", "a b", "y")
    own, square = onnx.NodeProto(), [np.ones((64, 64), np.float32)] * 2
    own.CopyFrom(product)
    own.domain = "own"
    assert operator_of(product).seconds(product, square) > 0 == operator_of(own).seconds(own, square)


def test_a_wrong_equation_is_left_to_what_computes_it():
    """It says what is wrong in better words than counting does."""
    wrong = node("Einsum", "a b", "y", equation="abc,cd->abd")
    assert operator_of(wrong).needed_bytes(wrong, [np.ones((2, 3)), np.ones((3, 4))], 0, 8) == 24
