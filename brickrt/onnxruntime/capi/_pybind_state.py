"""Another name of `onnxruntime_pybind11_state`."""

from __future__ import annotations

from brickrt.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403
