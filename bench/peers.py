"""Other engines behind one small interface: a function from inputs to nothing, timed by the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import onnx

Feeds = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Contender:
    """An engine ready to run one model on one input; `run` returns the outputs in the model's order."""

    name: str
    run: Callable[[], list[np.ndarray]]


def brickrt(model: onnx.ModelProto, feeds: Feeds, threads: int, **options) -> Contender:
    from brickrt import Runtime

    runtime = Runtime(model, threads=threads, **options)
    names = [o.name for o in model.graph.output]
    return Contender("brickrt", lambda: [runtime.execute(feeds)[n] for n in names[:1]])


def onnxruntime(model: onnx.ModelProto, feeds: Feeds, threads: int) -> Contender:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Contender("onnxruntime", lambda: session.run(None, dict(feeds)))


def openvino(model: onnx.ModelProto, feeds: Feeds, threads: int) -> Contender:
    import openvino as ov

    core = ov.Core()
    config = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(model.SerializeToString(), b""), "CPU", config)
    request = compiled.create_infer_request()
    return Contender("openvino", lambda: list(request.infer(dict(feeds)).values()))


PEERS = {"onnxruntime": onnxruntime, "openvino": openvino}


def installed() -> list[str]:
    return [name for name in PEERS if find_spec(name)]
