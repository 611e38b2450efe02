"""Where the classes of sessions and values are defined there."""

from __future__ import annotations

from brickrt.onnxruntime.inference_session import InferenceSession
from brickrt.onnxruntime.io_binding import IOBinding
from brickrt.onnxruntime.ort_value import OrtValue

__all__ = ["IOBinding", "InferenceSession", "OrtValue"]
