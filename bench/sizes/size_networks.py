"""Networks whose sizes are open, for counting the kernels that new sizes ask for (`size_codes.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from brickrt import zoo
from brickrt.demo.network import network

WORDS, LONGEST = 1000, 512
Sizes = tuple[int, ...]


class OpenNetwork(NamedTuple):
    """How a network is made, drawn a size for, and fed."""

    build: Callable[[], onnx.ModelProto]
    draw: Callable[[np.random.Generator], Sizes]
    feed: Callable[[Sizes], dict[str, np.ndarray]]


class OpenNetworkWriter:
    """Nodes and weights of a network; outputs have names of their own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """A weight."""
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """The output of a new node."""
        number = len(self.nodes)
        self.nodes.append(helper.make_node(op, inputs, [f"t{number}"], f"n{number}", **attributes))
        return f"t{number}"

    def conv(self, x: str, fan_in: int, channels: int, kernel: int = 3, stride: int = 1, **attributes: Any) -> str:
        """A convolution that keeps the extents at stride 1."""
        groups = attributes.get("group", 1)
        shape = channels, fan_in // groups, kernel, kernel
        w = self.rng.standard_normal(shape) * (2 / (fan_in // groups * kernel**2)) ** 0.5
        window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        bias = self.constant(self.rng.standard_normal(channels) * 0.1)
        return self.node("Conv", x, self.constant(w), bias, **{**window, **attributes})

    def up(self, x: str, mode: str, factor: float = 2.0) -> str:
        """Resize of both extents of an image."""
        scales = self.constant([1, 1, factor, factor])
        how = "asymmetric" if mode == "nearest" else "half_pixel"
        rounding = {"nearest_mode": "floor"} if mode == "nearest" else {}
        return self.node("Resize", x, "", scales, mode=mode, coordinate_transformation_mode=how, **rounding)

    def dense(self, x: str, fan_in: int, features: int) -> str:
        """A fully connected layer on each token."""
        y = self.node("MatMul", x, self.constant(self.rng.standard_normal((fan_in, features)) / fan_in**0.5))
        return self.node("Add", y, self.constant(self.rng.standard_normal(features) * 0.1))

    def image_model(self, channels: int, y: str) -> onnx.ModelProto:
        """The model from an image `x` to `y`."""
        self.nodes[-1].output[0] = "y"
        ends = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", channels, None, None]),
        ]
        return self.model(ends)

    def model(self, ends: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
        """The finished model; the last of the `ends` is its output."""
        graph = helper.make_graph(self.nodes, "network", ends[:-1], ends[-1:], self.weights)
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def plain_convs() -> onnx.ModelProto:
    """Seven convolutions 3x3 in a row, as small networks for restoration have."""
    net = OpenNetworkWriter()
    x, fan_in = "x", 3
    for channels in (32, 64, 64, 64, 64, 32):
        x, fan_in = net.node("Relu", net.conv(x, fan_in, channels)), channels
    return net.image_model(3, net.node("Add", "x", net.conv(x, fan_in, 3)))


def segmenter() -> onnx.ModelProto:
    """Strides down, linear Resize up, skips joined: 5 classes."""
    net = OpenNetworkWriter()
    x = net.node("Relu", net.conv("x", 3, 24, stride=2))
    skip = net.node("Relu", net.conv(x, 24, 48, stride=2))
    x = net.node("Relu", net.conv(skip, 48, 96, stride=2))
    x = net.node("Relu", net.conv(x, 96, 96))
    shape = net.node("Shape", skip)
    sizes = net.node("Slice", shape, net.constant([2], np.int64), net.constant([4], np.int64))
    head = net.node("Slice", net.node("Shape", x), net.constant([0], np.int64), net.constant([2], np.int64))
    sizes = net.node("Concat", head, sizes, axis=0)
    x = net.node("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode="half_pixel")
    x = net.node("Relu", net.conv(net.node("Concat", x, skip, axis=1), 144, 48))
    return net.image_model(5, net.up(net.conv(x, 48, 5, 1), "linear", 4.0))


def styler() -> onnx.ModelProto:
    """Reflected edges, instance norms, nearest Resize."""
    net = OpenNetworkWriter()

    def layer(x: str, fan_in: int, channels: int, kernel: int = 3, stride: int = 1) -> str:
        pads = net.constant([0, 0, kernel // 2, kernel // 2] * 2, np.int64)
        x = net.conv(net.node("Pad", x, pads, mode="reflect"), fan_in, channels, kernel, stride, pads=[0] * 4)
        scale, bias = net.constant(np.ones(channels)), net.constant(np.zeros(channels))
        return net.node("InstanceNormalization", x, scale, bias)

    x = net.node("Relu", layer("x", 3, 16, 9))
    x = net.node("Relu", layer(x, 16, 32, 3, 2))
    x = net.node("Relu", layer(x, 32, 64, 3, 2))
    for _ in range(2):
        x = net.node("Add", x, layer(net.node("Relu", layer(x, 64, 64)), 64, 64))
    x = net.node("Relu", layer(net.up(x, "nearest"), 64, 32))
    return net.image_model(3, net.conv(net.up(x, "nearest"), 32, 3, 9))


def upscaler() -> onnx.ModelProto:
    """Twice the size, by DepthToSpace, with a global gate over channels."""
    net = OpenNetworkWriter()
    x = net.node("PRelu", net.conv("x", 3, 40, 5), net.constant(np.full((40, 1, 1), 0.1)))
    for _ in range(2):
        y = net.conv(net.node("Relu", net.conv(x, 40, 40)), 40, 40)
        gate = net.conv(net.node("Relu", net.conv(net.node("GlobalAveragePool", y), 40, 8, 1)), 8, 40, 1)
        x = net.node("Add", x, net.node("Mul", y, net.node("Sigmoid", gate)))
    return net.image_model(3, net.node("DepthToSpace", net.conv(x, 40, 12), blocksize=2, mode="CRD"))


class TextBlocks(OpenNetworkWriter):
    """The blocks of an encoder as PyTorch writes them."""

    width, heads = 192, 6

    def ints(self, *values: int) -> str:
        """A constant as shapes and indices are."""
        return self.constant(values, np.int64)

    def norm(self, x: str) -> str:
        """A layer norm."""
        scale, bias = self.constant(np.ones(self.width)), self.constant(np.zeros(self.width))
        return self.node("LayerNormalization", x, scale, bias)

    def split(self, x: str, perm: list[int]) -> str:
        """A projection, split into heads."""
        shape = self.ints(0, 0, self.heads, self.width // self.heads)
        return self.node("Transpose", self.node("Reshape", self.dense(x, self.width, self.width), shape), perm=perm)

    def positions(self, ids: str) -> str:
        """What is known of each place in the text."""
        length = self.node("Gather", self.node("Shape", ids), self.ints(1), axis=0)
        table = self.constant(self.rng.standard_normal((1, LONGEST, self.width)))
        return self.node("Slice", table, self.ints(0), length, self.ints(1))

    def attention(self, x: str, mask: str) -> str:
        """Attention of all tokens to those that the mask leaves."""
        q, k, v = (self.split(x, perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = self.node("Div", self.node("MatMul", q, k), self.constant((self.width // self.heads) ** 0.5))
        y = self.node("MatMul", self.node("Softmax", self.node("Add", scores, mask), axis=-1), v)
        y = self.node("Reshape", self.node("Transpose", y, perm=[0, 2, 1, 3]), self.ints(0, 0, self.width))
        return self.dense(y, self.width, self.width)

    def gelu(self, x: str) -> str:
        """x times the share of a normal distribution below it."""
        half = self.node("Erf", self.node("Div", x, self.constant(2**0.5)))
        return self.node("Mul", self.node("Mul", x, self.node("Add", half, self.constant(1.0))), self.constant(0.5))


def masked_text() -> onnx.ModelProto:
    """A post-norm encoder with positions, a mask and GELU: ids and mask int64 [batch, length]."""
    net = TextBlocks()
    x = net.node("Gather", net.constant(net.rng.standard_normal((WORDS, net.width))), "ids")
    x = net.norm(net.node("Add", x, net.positions("ids")))
    mask = net.node("Cast", net.node("Unsqueeze", "mask", net.ints(1, 2)), to=TensorProto.FLOAT)
    mask = net.node("Mul", net.node("Sub", net.constant(1.0), mask), net.constant(-1e9))
    for _ in range(3):
        x = net.norm(net.node("Add", x, net.attention(x, mask)))
        y = net.dense(net.gelu(net.dense(x, net.width, 4 * net.width)), 4 * net.width, net.width)
        x = net.norm(net.node("Add", x, y))
    first = net.node("Gather", x, net.constant(0, np.int64), axis=1)
    net.node("Tanh", net.dense(first, net.width, 32))
    net.nodes[-1].output[0] = "y"
    ends = [helper.make_tensor_value_info(name, TensorProto.INT64, ["N", "L"]) for name in ("ids", "mask")]
    return net.model([*ends, helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 32])])


def tagger() -> onnx.ModelProto:
    """An embedding, convolutions along the text, a bidirectional LSTM, a class for each token."""
    width, hidden = 96, 64
    net = OpenNetworkWriter()
    x = net.node("Gather", net.constant(net.rng.standard_normal((WORDS, width))), "ids")
    x = net.node("Transpose", x, perm=[0, 2, 1])
    for _ in range(2):
        w = net.constant(net.rng.standard_normal((width, width, 3)) / (3 * width) ** 0.5)
        x = net.node("Relu", net.node("Conv", x, w, kernel_shape=[3], pads=[1, 1]))
    x = net.node("Transpose", x, perm=[2, 0, 1])
    w = net.constant(net.rng.standard_normal((2, 4 * hidden, width)) / width**0.5)
    r = net.constant(net.rng.standard_normal((2, 4 * hidden, hidden)) / hidden**0.5)
    x = net.node("LSTM", x, w, r, hidden_size=hidden, direction="bidirectional")
    x = net.node("Reshape", net.node("Transpose", x, perm=[2, 0, 1, 3]), net.constant([0, 0, -1], np.int64))
    net.node("Softmax", net.dense(x, 2 * hidden, 17), axis=-1)
    net.nodes[-1].output[0] = "y"
    ends = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["N", "L"])]
    return net.model([*ends, helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "L", 17])])


def image_sizes(step: int, least: int, most: int) -> Callable[[np.random.Generator], Sizes]:
    """Heights and widths that are multiples of `step`."""
    return lambda rng: tuple(int(n) * step for n in rng.integers(least // step, most // step + 1, 2))


def lengths(rng: np.random.Generator) -> Sizes:
    """A number of tokens."""
    return (int(rng.integers(5, LONGEST + 1)),)


def images(name: str) -> Callable[[Sizes], dict[str, np.ndarray]]:
    """An image of these sizes, from 0 to 1."""
    return lambda size: {name: np.random.default_rng(0).random((1, 3, *size), dtype=np.float32)}


def words(name: str, *masks: str) -> Callable[[Sizes], dict[str, np.ndarray]]:
    """A sequence of words, and masks that leave all of them."""

    def feed(size: Sizes) -> dict[str, np.ndarray]:
        ids = np.random.default_rng(0).integers(0, WORDS, (1, *size))
        return {name: ids, **{mask: np.ones((1, *size), np.int64) for mask in masks}}

    return feed


def zoo_network(name: str) -> Callable[[], onnx.ModelProto]:
    """A network of the zoo with open sizes."""
    return lambda: zoo.build(name, size=0)


OPEN_NETWORKS: dict[str, OpenNetwork] = {
    "denoiser": OpenNetwork(network, image_sizes(1, 100, 600), images("noisy")),
    "plain": OpenNetwork(plain_convs, image_sizes(1, 64, 512), images("x")),
    "unet": OpenNetwork(zoo_network("unet"), image_sizes(16, 128, 512), images("x")),
    "resnet50": OpenNetwork(zoo_network("resnet50"), image_sizes(1, 160, 480), images("x")),
    "mobilenetv2": OpenNetwork(zoo_network("mobilenetv2"), image_sizes(1, 160, 480), images("x")),
    "drn": OpenNetwork(zoo_network("drn-c-26"), image_sizes(8, 128, 512), images("x")),
    "segmenter": OpenNetwork(segmenter, image_sizes(1, 100, 600), images("x")),
    "styler": OpenNetwork(styler, image_sizes(4, 100, 600), images("x")),
    "upscaler": OpenNetwork(upscaler, image_sizes(1, 64, 320), images("x")),
    "masked_text": OpenNetwork(masked_text, lengths, words("ids", "mask")),
    "tagger": OpenNetwork(tagger, lengths, words("ids")),
}
