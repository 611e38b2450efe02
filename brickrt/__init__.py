"""brickrt runs ONNX networks as a graph of brick tasks, across layers instead of layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brickrt.version import VERSION as __version__

if TYPE_CHECKING:
    from brickrt.graph.errors import BrickError
    from brickrt.graph.onnx_import.source import load
    from brickrt.onnxruntime.inference_session import InferenceSession
    from brickrt.plan.plan import Plan
    from brickrt.quantization.quantize import quantize
    from brickrt.runtime.cluster.lazy_array import lazy
    from brickrt.runtime.cluster.map_over import map_over
    from brickrt.runtime.cluster.run_on_cluster import run_on_cluster
    from brickrt.runtime.compiled.compiled_model import CompiledModel
    from brickrt.runtime.session.runtime import Runtime
    from brickrt.runtime.stats import Stats
    from brickrt.runtime.stream.stream_report import StreamReport
    from brickrt.runtime.windows.window_report import WindowReport

__all__ = [
    "BrickError",
    "CompiledModel",
    "InferenceSession",
    "Plan",
    "Runtime",
    "Stats",
    "StreamReport",
    "WindowReport",
    "__version__",
    "lazy",
    "load",
    "map_over",
    "quantize",
    "run_on_cluster",
]

_HOMES = {
    "BrickError": "brickrt.graph.errors",
    "CompiledModel": "brickrt.runtime.compiled.compiled_model",
    "InferenceSession": "brickrt.onnxruntime.inference_session",
    "Plan": "brickrt.plan.plan",
    "Runtime": "brickrt.runtime.session.runtime",
    "Stats": "brickrt.runtime.stats",
    "StreamReport": "brickrt.runtime.stream.stream_report",
    "WindowReport": "brickrt.runtime.windows.window_report",
    "lazy": "brickrt.runtime.cluster.lazy_array",
    "load": "brickrt.graph.onnx_import.source",
    "map_over": "brickrt.runtime.cluster.map_over",
    "quantize": "brickrt.quantization.quantize",
    "run_on_cluster": "brickrt.runtime.cluster.run_on_cluster",
}


def __getattr__(name: str) -> object:
    """Imports what the API has on first use, so that `import brickrt` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'brickrt' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The API and nothing else."""
    return __all__
