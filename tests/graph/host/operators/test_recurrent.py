"""LSTM, GRU and RNN on the host, with everything the operators may be told, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.graph.host.run_host_node import run_node
from brickrt.graph.onnx_import.protobuf import onnx_node
from tests.support.graphs.builders_harness import one_node
from tests.support.graphs.onnx_models import by_onnxruntime
from tests.support.graphs.recurrent_models import GATES, recurrent_model


def compare(op_type: str, **how: object) -> None:
    """Runs a model of `recurrent_model`."""
    model, feeds = recurrent_model(op_type, **how)
    opsets = {"": 14}
    actual = run_node(onnx_node(model.graph.node[0], opsets, "n"), opsets, feeds)
    for name, value in zip(model.graph.node[0].output, actual, strict=True):
        expected = by_onnxruntime(model, feeds)[name]
        assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(value, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("op_type", GATES)
def test_weights_alone(op_type):
    compare(op_type)


@pytest.mark.parametrize("op_type", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions_with_sequences_of_different_lengths(op_type, direction):
    optional = ("B", "lengths", "h", "c", "P")
    compare(op_type, directions=1 + (direction == "bidirectional"), optional=optional, direction=direction)


@pytest.mark.parametrize("length", [-1, 6])
def test_a_length_beyond_the_steps_is_refused(length):
    lengths = np.array([5, 2, length], np.int32)
    model, feeds = one_node("RNN", 14, [np.zeros((5, 3, 6)), *np.zeros((2, 1, 6, 6)), None, lengths], 2, hidden_size=6)
    with pytest.raises(BrickError, match=f"sequence_lens has {length}, the input has 5 steps"):
        run_node(onnx_node(model.graph.node[0], {"": 14}, "n"), {"": 14}, feeds)


def test_activations_take_their_parameters_in_turn():
    names = ["HardSigmoid", "ScaledTanh", "LeakyRelu"]
    compare("LSTM", activations=names, activation_alpha=[0.3, 1.1, 0.05], activation_beta=[0.4, 0.9])


@pytest.mark.parametrize("name", ["Relu", "Softsign", "Softplus", "Elu", "ThresholdedRelu", "Sigmoid"])
def test_activations(name):
    compare("RNN", activations=[name], activation_alpha=[0.7], optional=("B", "h"))


def test_clip():
    compare("LSTM", clip=0.5, optional=("B",))
    compare("GRU", clip=0.5, optional=("B",))


def test_coupled_gates():
    compare("LSTM", input_forget=1, optional=("B",))


def test_reset_after_the_product():
    compare("GRU", linear_before_reset=1, optional=("B", "h"))
