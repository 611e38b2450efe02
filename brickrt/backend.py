"""brickrt behind ONNX's own interface of backends: `prepare`, `run_model`, `run_node` and `supports_device`.

    import brickrt.backend as backend

    outputs = backend.prepare(model).run([x])

`BrickBackend` is what `onnx.backend.test` takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep

from brickrt.graph.errors import InputError
from brickrt.runtime.cuda.driver.detect_gpu import gpu_present
from brickrt.runtime.engines import Device
from brickrt.runtime.session.runtime import Runtime


class BrickBackendRep(BackendRep):
    """A model ready to run; inputs and outputs go by position."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs in the model's order. `inputs` are arrays in its order, one alone, or by name. Raises BrickError
        where they do not fit."""
        names = list(self.runtime.source.inputs)
        if isinstance(inputs, Mapping):
            return tuple(self.runtime.execute(inputs).values())
        given = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        if len(given) != len(names):
            raise InputError(f"{len(given)} inputs are given, the model takes {len(names)}: {', '.join(names)}")
        return tuple(self.runtime.execute(dict(zip(names, given, strict=True))).values())


class BrickBackend(Backend):
    """The engines by ONNX's names of devices: "CPU", and "CUDA" where there is a GPU."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> BrickBackendRep:
        """A model ready to run. Keywords are those of `brickrt.Runtime`."""
        return BrickBackendRep(Runtime(model, device=_engine_name(device), **kwargs))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """The outputs of a model, once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node of the newest operator set, or of `opset_version`. `inputs` are those that it has a
        name for, in its order."""
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        return cls.run_model(_model_of(node, inputs, opset), inputs, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models can run there."""
        return device == "CPU" or (_engine_name(device) == "cuda" and gpu_present())


def _engine_name(device: str) -> Device:
    return "cuda" if device.partition(":")[0] in ("CUDA", "GPU") else "cpu"


def _model_of(node: onnx.NodeProto, inputs: Any, opset: int) -> onnx.ModelProto:
    """A model of one node, its inputs of the types of these arrays."""
    names = list(dict.fromkeys(name for name in node.input if name))
    by_name = inputs if isinstance(inputs, Mapping) else dict(zip(names, map(np.asarray, inputs), strict=True))
    taken = [_declared(name, np.asarray(array)) for name, array in by_name.items()]
    made = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], node.op_type, taken, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)])


def _declared(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


prepare = BrickBackend.prepare
run_model = BrickBackend.run_model
run_node = BrickBackend.run_node
supports_device = BrickBackend.supports_device
