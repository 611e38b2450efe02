"""brickrt behind ONNX's own backend interface, as its test suite wants it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx.backend.base import Backend, BackendRep

from brickrt import Runtime


class BrickBackendRep(BackendRep):
    """A model ready to run; inputs and outputs go by position."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def run(self, inputs: Sequence[Any], **kwargs: Any) -> tuple[Any, ...]:
        names = self.runtime.source.inputs
        return tuple(self.runtime.execute(dict(zip(names, inputs, strict=True))).values())


class BrickBackend(Backend):
    """The CPU engine."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> BrickBackendRep:
        return BrickBackendRep(Runtime(model, device="cpu"))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"
