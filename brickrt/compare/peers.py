"""brickrt and its peers on a CPU as engines: each a function without arguments that runs a model on one input.

A peer is imported when its engine is made. All compute in float32 with the given number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx

from brickrt.runtime.session.runtime import Runtime

OURS = "brickrt"
Feeds: TypeAlias = Mapping[str, np.ndarray]
Model: TypeAlias = Path | onnx.ModelProto


@dataclass(frozen=True)
class ComparedEngine:
    """An engine ready to run one model on one input; `run` returns the outputs in the model's order."""

    name: str
    run: Callable[[], list[Any]]


def ours(runtime: Runtime, feeds: Feeds) -> ComparedEngine:
    """brickrt, by a runtime that has the model loaded."""
    return ComparedEngine(OURS, lambda: list(runtime.execute(feeds).values()))


def onnxruntime(model: Model, feeds: Feeds, threads: int) -> ComparedEngine:
    """ONNX Runtime on the CPU, with all of its optimizations, as is its default."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3  # errors
    session = ort.InferenceSession(_file_or_bytes(model), options, providers=["CPUExecutionProvider"])
    return ComparedEngine("onnxruntime", lambda: session.run(None, dict(feeds)))


def openvino(model: Model, feeds: Feeds, threads: int) -> ComparedEngine:
    """OpenVINO on the CPU, for latency: one stream. Inputs and outputs are shared with it, not copied."""
    import openvino as ov

    core = ov.Core()
    config = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    given = _file_or_bytes(model)
    read = core.read_model(given) if isinstance(given, str) else core.read_model(given, b"")
    request = core.compile_model(read, "CPU", config).create_infer_request()

    def run() -> list[Any]:
        return list(request.infer(dict(feeds), share_inputs=True, share_outputs=True).values())

    return ComparedEngine("openvino", run)


def torch(model: Model, feeds: Feeds, threads: int) -> ComparedEngine:
    """PyTorch on the CPU: the network translated, traced and frozen, so that it can fuse and pack weights."""
    import torch as pt

    from brickrt.compare.torch_backend import TorchNetwork
    from brickrt.compare.translate import network

    net = network(onnx.load(model) if isinstance(model, Path) else model)
    pt.set_num_threads(threads)
    tensors = [pt.from_numpy(np.array(feeds[name])) for name in net.inputs]
    with pt.inference_mode():
        module = pt.jit.freeze(pt.jit.trace(TorchNetwork(net).eval(), tensors, check_trace=False))

    def run() -> list[Any]:
        pt.set_num_threads(threads)
        with pt.inference_mode():
            return [t.numpy() for t in module(*tensors)]

    return ComparedEngine("torch", run)


PEERS: dict[str, Callable[[Model, Feeds, int], ComparedEngine]] = {
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "torch": torch,
}
_EXTRA = 'pip install "brickrt[bench]"'
_GET = {"onnxruntime": _EXTRA, "openvino": _EXTRA, "torch": "pip install torch"}


def lacking(peer: str) -> str | None:
    """Why a peer cannot be used here, and how to get it; None where it can be used."""
    return f"not installed: {_GET[peer]}" if find_spec(peer) is None else None


def _file_or_bytes(model: Model) -> str | bytes:
    """A file by its path, since its weights may lie beside it."""
    return str(model) if isinstance(model, Path) else model.SerializeToString()
