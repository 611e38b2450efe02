"""What a size costs that a runtime has not seen: its first result beside its second, over many sizes of a network.

    python bench/sizes/new_sizes.py [denoiser unet resnet50 text FILE.onnx:64:512:32] [--sizes 20] [--warm 12] [--apart]

A network is one of those here, or a file with open extents (`file_networks.py`: least, most and step of an extent). A
process runs `--warm` other sizes first, as those before it have that use the same cache of kernels; another process
then runs the sizes that count, once with a cache that was so warmed, or with `--apart` a process each. Kernels that a
size compiles are counted. The text network is a transformer encoder over
tokens, of which sequences have 5 to 512. ONNX Runtime runs the same sizes where it is installed. Seconds are a clock's;
those of all threads' processor time tell more on a machine that does other things too.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from file_networks import file_network
from onnx import TensorProto, helper, numpy_helper

from brickrt import zoo
from brickrt.compare.machine import machine
from brickrt.demo.network import network
from brickrt.plan.device.device_spec import host_device
from brickrt.runtime.session.runtime import Runtime

WIDTH, HEADS, LAYERS, WORDS = 128, 4, 4, 1000
Sizes = tuple[int, ...]


class TextWriter:
    """The nodes and weights of the text network; outputs have names of their own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, values: np.ndarray) -> str:
        """A weight."""
        self.weights.append(numpy_helper.from_array(values, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """The output of a new node."""
        number = len(self.nodes)
        self.nodes.append(helper.make_node(op, inputs, [f"t{number}"], f"n{number}", **attributes))
        return f"t{number}"

    def dense(self, x: str, fan_in: int, features: int) -> str:
        """A fully connected layer on each token."""
        weight = self.rng.standard_normal((fan_in, features)).astype(np.float32) / np.float32(fan_in**0.5)
        y = self.node("MatMul", x, self.constant(weight))
        return self.node("Add", y, self.constant(np.zeros(features, np.float32)))

    def norm(self, x: str) -> str:
        """A layer norm."""
        scale, bias = (self.constant(np.full(WIDTH, value, np.float32)) for value in (1, 0))
        return self.node("LayerNormalization", x, scale, bias)

    def heads(self, x: str, perm: list[int]) -> str:
        """A projection, split into heads."""
        shape = self.constant(np.array([0, 0, HEADS, WIDTH // HEADS], np.int64))
        return self.node("Transpose", self.node("Reshape", self.dense(x, WIDTH, WIDTH), shape), perm=perm)

    def attention(self, x: str) -> str:
        """Attention of all tokens to all."""
        scores = self.node("MatMul", self.heads(x, [0, 2, 1, 3]), self.heads(x, [0, 2, 3, 1]))
        scores = self.node("Mul", scores, self.constant(np.array((WIDTH // HEADS) ** -0.5, np.float32)))
        y = self.node("MatMul", self.node("Softmax", scores, axis=-1), self.heads(x, [0, 2, 1, 3]))
        merged = self.constant(np.array([0, 0, WIDTH], np.int64))
        y = self.node("Reshape", self.node("Transpose", y, perm=[0, 2, 1, 3]), merged)
        return self.dense(y, WIDTH, WIDTH)


def text_network() -> onnx.ModelProto:
    """A pre-norm transformer encoder, `tokens` int64 [batch, length] → `y` float32 [batch, length, WIDTH]."""
    net = TextWriter()
    x = net.node("Gather", net.constant(net.rng.standard_normal((WORDS, WIDTH)).astype(np.float32)), "tokens")
    for _ in range(LAYERS):
        x = net.node("Add", x, net.attention(net.norm(x)))
        inner = net.node("Relu", net.dense(net.norm(x), WIDTH, 4 * WIDTH))
        x = net.node("Add", x, net.dense(inner, 4 * WIDTH, WIDTH))
    net.norm(x)
    net.nodes[-1].output[0] = "y"
    ends = [
        helper.make_tensor_value_info("tokens", TensorProto.INT64, ["N", "L"]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "L", WIDTH]),
    ]
    graph = helper.make_graph(net.nodes, "text", ends[:1], ends[1:], net.weights)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def free(name: str, size: int) -> onnx.ModelProto:
    """A network of the zoo whose height and width are open."""
    model = zoo.build(name, size=size)
    for end in (*model.graph.input, *model.graph.output):
        for k, dim in enumerate(end.type.tensor_type.shape.dim):
            if k > 1:
                dim.dim_param = "HW"[k - 2]
    return model


def image_sizes(step: int, least: int, most: int) -> Callable[[np.random.Generator], Sizes]:
    """Heights and widths that are multiples of `step`."""
    return lambda rng: tuple(int(n) * step for n in rng.integers(least // step, most // step + 1, 2))


def images(name: str) -> Callable[[Sizes], dict[str, np.ndarray]]:
    """An image of these sizes, from 0 to 1."""
    return lambda size: {name: np.random.default_rng(0).random((1, 3, *size), dtype=np.float32)}


def tokens(size: Sizes) -> dict[str, np.ndarray]:
    """A sequence of words."""
    return {"tokens": np.random.default_rng(0).integers(0, WORDS, (1, *size))}


NETWORKS: dict[str, tuple[Callable[[], onnx.ModelProto], Callable, Callable]] = {
    "denoiser": (network, image_sizes(1, 100, 600), images("noisy")),
    "unet": (lambda: free("unet", 64), image_sizes(16, 128, 512), images("x")),
    "resnet50": (lambda: free("resnet50", 64), image_sizes(1, 160, 480), images("x")),
    "text": (text_network, lambda rng: (int(rng.integers(5, 513)),), tokens),
}


def distinct(draw: Callable[[np.random.Generator], Sizes], seed: int) -> Iterator[Sizes]:
    """Sizes, none twice."""
    rng, seen = np.random.default_rng(seed), set()
    while True:
        size = draw(rng)
        if size not in seen:
            seen.add(size)
            yield size


def seconds(run: Callable[[], object]) -> tuple[float, float]:
    """How long a call takes, and its processor time."""
    started, spent = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - started, time.process_time() - spent


def run_sizes(name: str, first: int, count: int) -> list[dict[str, Any]]:
    """First and second calls of `count` sizes, after the first `first` of all, by one runtime."""
    build, draw, feed = NETWORKS[name] if name in NETWORKS else file_network(name)
    model, compiled = build(), CompiledKernels()
    runtime, peer = Runtime(model, device="cpu", progress=compiled), _peer(model)
    sizes = islice(distinct(draw, 1), first, first + count)
    return [timed(runtime, peer, size, feed(size), compiled) for size in sizes]


class CompiledKernels:
    """Counts what a runtime compiles."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        """Is told of progress."""
        self.count += what.startswith("compile") and done > 0


def timed(
    runtime: Runtime, peer: Any, size: Sizes, inputs: dict[str, np.ndarray], compiled: CompiledKernels
) -> dict[str, Any]:
    """First and later calls with these inputs, and the first of ONNX Runtime where it is there."""
    compiled.count = 0
    first, first_cpu = seconds(lambda: runtime.execute(inputs))
    second, second_cpu = map(min, zip(*(seconds(lambda: runtime.execute(inputs)) for _ in range(3)), strict=True))
    row: dict[str, Any] = {"size": size, "first_s": first, "second_s": second, "compiled": compiled.count}
    row |= {"later_s": first - second, "later_cpu_s": first_cpu - second_cpu}
    return row | ({"peer_first_s": seconds(lambda: peer.run(None, inputs))[0]} if peer else {})


def _peer(model: onnx.ModelProto) -> Any:
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def in_process(name: str, first: int, count: int, cache: str) -> list[dict[str, Any]]:
    """`run_sizes` in a fresh process."""
    env = os.environ | {"BRICKRT_CACHE_DIR": cache}
    code = f"import json, new_sizes; print(json.dumps(new_sizes.run_sizes({name!r}, {first}, {count})))"
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *filter(None, [env.get("PYTHONPATH")])])
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def report(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Prints a row per size; gives the figures."""
    columns = {"first_s": "first", "second_s": "second", "later_s": "later", "later_cpu_s": "in CPU time"}
    columns |= {"peer_first_s": "peer's first"} if "peer_first_s" in rows[0] else {}
    print(f"\n{name:12}" + "".join(f"{title:>14}" for title in columns.values()) + "  ms")
    for row in rows:
        figures = "".join(f"{1e3 * row[column]:14.1f}" for column in columns)
        compiled = f"  {row['compiled']} compiled" if row["compiled"] else ""
        print(f"{'x'.join(map(str, row['size'])):12}{figures}{compiled}")
    measured = rows[1:]  # a process's first size loads LLVM, and all kernels
    summary = {
        "process_first_s": rows[0]["later_s"],
        "later_median_s": median(row["later_s"] for row in measured),
        "later_max_s": max(row["later_s"] for row in measured),
        "later_cpu_median_s": median(row["later_cpu_s"] for row in measured),
        "later_cpu_max_s": max(row["later_cpu_s"] for row in measured),
        "second_median_s": median(row["second_s"] for row in measured),
    }
    for what in ("later", "later_cpu"):
        middle, most = (1e3 * summary[f"{what}_{which}_s"] for which in ("median", "max"))
        print(f"{what.replace('_', ' in ')} time: median {middle:.0f} ms, most {most:.0f} ms")
    return {**summary, "sizes": rows}


def main() -> None:
    """Measures each network, prints it, and writes all to --out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--sizes", type=int, default=20)
    parser.add_argument("--warm", type=int, default=12)
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    figures = {}
    for name in asked.networks:
        with tempfile.TemporaryDirectory() as cache:
            in_process(name, 0, asked.warm, cache)
            first, sizes = asked.warm, asked.sizes + 1
            starts = range(first, first + sizes) if asked.apart else [first]
            rows = [row for k in starts for row in in_process(name, k, 1 if asked.apart else sizes, cache)]
            figures[name] = report(name, rows)
    if asked.out:
        asked.out.write_text(json.dumps({"machine": machine(host_device()), "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
