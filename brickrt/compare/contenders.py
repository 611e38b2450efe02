"""brickrt and other engines behind one small interface: a function without arguments that runs a model on one input.

Peers are imported when they are made. All compute in float32 with the given number of threads.
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
class Contender:
    """An engine ready to run one model on one input; `run` returns the outputs in the model's order."""

    name: str
    run: Callable[[], list[Any]]


def ours(runtime: Runtime, feeds: Feeds) -> Contender:
    return Contender(OURS, lambda: list(runtime.execute(feeds).values()))


def onnxruntime(model: Model, feeds: Feeds, threads: int) -> Contender:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3  # errors
    session = ort.InferenceSession(_file_or_bytes(model), options, providers=["CPUExecutionProvider"])
    return Contender("onnxruntime", lambda: session.run(None, dict(feeds)))


def openvino(model: Model, feeds: Feeds, threads: int) -> Contender:
    """Inputs and outputs are shared with it, not copied."""
    import openvino as ov

    core = ov.Core()
    config = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    given = _file_or_bytes(model)
    read = core.read_model(given) if isinstance(given, str) else core.read_model(given, b"")
    request = core.compile_model(read, "CPU", config).create_infer_request()

    def run() -> list[Any]:
        return list(request.infer(dict(feeds), share_inputs=True, share_outputs=True).values())

    return Contender("openvino", run)


def torch(model: Model, feeds: Feeds, threads: int) -> Contender:
    """Its own operators on the same graph, traced and frozen, which lets it fuse and arrange weights as it likes."""
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

    return Contender("torch", run)


PEERS: dict[str, Callable[[Model, Feeds, int], Contender]] = {
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "torch": torch,
}
_EXTRA = 'pip install "brickrt[bench]"'
_GET = {"onnxruntime": _EXTRA, "openvino": _EXTRA, "torch": "pip install torch"}


def lacking(peer: str) -> str | None:
    """Why a peer cannot be used here and how to get it, or None where it can."""
    return f"not installed: {_GET[peer]}" if find_spec(peer) is None else None


def _file_or_bytes(model: Model) -> str | bytes:
    """A file by its path, since its weights may lie beside it."""
    return str(model) if isinstance(model, Path) else model.SerializeToString()
